//! Unpacks a compressed answer, within a bound.
//!
//! Asked for `identity`, some providers compress all the same. The client gets their bytes as
//! they are, and a decoded copy is read; only a stream of which something must be taken out or
//! edited goes on unpacked. What unpacks to too much at once is given up.

use bytes::Bytes;
use http::HeaderMap;

use crate::wire::content_coding::{PIECE_BYTES, Unpacker};

/// Bytes that one push may unpack to: a few kilobytes can hold hundreds of megabytes.
const MAX_OUTPUT: usize = 4 << 20;

/// Unpacks what is pushed. `None`: unknown, damaged or too large.
pub(super) struct Decoder(Option<Box<Unpacker>>);

impl Decoder {
    /// The decoder for an answer with these headers; `None` if it is not compressed.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        match Unpacker::from_headers(headers, MAX_OUTPUT) {
            Ok(unpacker) => unpacker.map(|unpacker| Self(Some(Box::new(unpacker)))),
            Err(_) => Some(Self(None)),
        }
    }

    /// Whether anything can be read.
    pub(super) const fn can_read(&self) -> bool {
        self.0.is_some()
    }

    /// What these bytes unpack to; `None` once nothing can be read any more.
    pub(super) fn push(&mut self, bytes: Bytes) -> Option<Vec<u8>> {
        let unpacked = unpack_bytes(self.0.as_mut()?, bytes);
        if unpacked.is_none() {
            self.0 = None;
        }
        unpacked
    }
}

fn unpack_bytes(unpacker: &mut Unpacker, bytes: Bytes) -> Option<Vec<u8>> {
    unpacker.restart_bound();
    unpacker.push(bytes);
    let (mut text, mut piece) = (Vec::new(), vec![0; PIECE_BYTES]);
    while let Some(made) = unpacker.pull_output(&mut piece).ok()? {
        text.extend_from_slice(&piece[..made]);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http::HeaderMap;

    use super::Decoder;

    fn decoder(encoding: &str) -> Option<Decoder> {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", encoding.parse().unwrap());
        Decoder::from_headers(&headers)
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
                unpacked.extend(decoder.push(vec![byte].into()).unwrap());
            }
            assert_eq!(unpacked, text.as_bytes(), "{encoding}");
        }
    }

    #[test]
    fn gives_up_on_bombs_damage_and_unknown_encodings() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert_eq!(decoder("gzip").unwrap().push(bomb.into()), None);
        assert_eq!(decoder("gzip").unwrap().push("no gzip at all".into()), None);
        assert_eq!(decoder("compress").unwrap().push("x".into()), None);
        assert!(decoder("identity").is_none());
    }
}
