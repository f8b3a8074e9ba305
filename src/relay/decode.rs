//! Unpacks a compressed answer, within a bound.
//!
//! Asked for `identity`, some providers compress all the same. The client gets their bytes as
//! they are and the tap a decoded copy; only a stream out of which our own usage chunk must be
//! taken goes on unpacked. What unpacks to too much at once is given up.

use std::io::{self, Write};

use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header::CONTENT_ENCODING};

/// Bytes that one push may unpack to: a few kilobytes can hold hundreds of megabytes.
const MAX_OUTPUT: usize = 4 << 20;

/// Unpacks what is pushed.
pub(super) enum Decoder {
    Gzip(Box<MultiGzDecoder<Sink>>),
    Deflate(Box<ZlibDecoder<Sink>>),
    Brotli(Box<brotli::DecompressorWriter<Sink>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Sink>>),
    /// Unknown, damaged or too large.
    Blind,
}

impl Decoder {
    /// The decoder for an answer with these headers; `None` if it is not compressed.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let encoding = headers
            .get(CONTENT_ENCODING)?
            .to_str()
            .unwrap_or("?")
            .trim();
        Some(match encoding.to_ascii_lowercase().as_str() {
            "identity" | "" => return None,
            "gzip" | "x-gzip" => Self::Gzip(Box::new(MultiGzDecoder::new(Sink::default()))),
            "deflate" => Self::Deflate(Box::new(ZlibDecoder::new(Sink::default()))),
            "br" => Self::Brotli(Box::new(brotli::DecompressorWriter::new(
                Sink::default(),
                16 << 10,
            ))),
            "zstd" => zstd::stream::write::Decoder::new(Sink::default())
                .map_or(Self::Blind, |decoder| Self::Zstd(Box::new(decoder))),
            _ => Self::Blind,
        })
    }

    /// Whether anything can be read.
    pub(super) const fn reads(&self) -> bool {
        !matches!(self, Self::Blind)
    }

    /// What these bytes unpack to; `None` once nothing can be read any more.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let unpacked = match self {
            Self::Gzip(decoder) => unpack(&mut **decoder, bytes, MultiGzDecoder::get_mut),
            Self::Deflate(decoder) => unpack(&mut **decoder, bytes, ZlibDecoder::get_mut),
            Self::Brotli(decoder) => {
                unpack(&mut **decoder, bytes, brotli::DecompressorWriter::get_mut)
            }
            Self::Zstd(decoder) => {
                unpack(&mut **decoder, bytes, zstd::stream::write::Decoder::get_mut)
            }
            Self::Blind => return None,
        };
        if unpacked.is_none() {
            *self = Self::Blind;
        }
        unpacked
    }
}

fn unpack<W: Write>(
    decoder: &mut W,
    bytes: &[u8],
    sink: impl Fn(&mut W) -> &mut Sink,
) -> Option<Vec<u8>> {
    decoder.write_all(bytes).ok()?;
    decoder.flush().ok()?;
    Some(std::mem::take(&mut sink(decoder).0))
}

/// Takes [`MAX_OUTPUT`] bytes, then refuses.
#[derive(Default)]
pub(super) struct Sink(Vec<u8>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::Error::other("unpacks to too much"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http::HeaderMap;

    use super::Decoder;

    fn decoder(encoding: &str) -> Option<Decoder> {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", encoding.parse().unwrap());
        Decoder::of(&headers)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn unpacks_every_encoding_byte_by_byte() {
        let text = "data: {\"é\":1}\n\n".repeat(50);
        let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        deflate.write_all(text.as_bytes()).unwrap();
        let mut brotli = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
        brotli.write_all(text.as_bytes()).unwrap();
        let packed = [
            ("gzip", gzip(text.as_bytes())),
            ("deflate", deflate.finish().unwrap()),
            ("br", brotli.into_inner()),
            ("zstd", zstd::encode_all(text.as_bytes(), 3).unwrap()),
        ];
        for (encoding, packed) in packed {
            let mut decoder = decoder(encoding).unwrap();
            let mut unpacked = Vec::new();
            for byte in packed {
                unpacked.extend(decoder.push(&[byte]).unwrap());
            }
            assert_eq!(unpacked, text.as_bytes(), "{encoding}");
        }
    }

    #[test]
    fn gives_up_on_bombs_damage_and_unknown_encodings() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert_eq!(decoder("gzip").unwrap().push(&bomb), None);
        assert_eq!(decoder("gzip").unwrap().push(b"no gzip at all"), None);
        assert_eq!(decoder("compress").unwrap().push(b"x"), None);
        assert!(decoder("identity").is_none());
    }
}
