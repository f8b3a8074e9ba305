//! Decompresses an answer, within a bound.
//!
//! Some providers compress though they are asked for `identity`. The client gets their bytes as they
//! are, and a decompressed copy is read; only a stream that must be edited goes on decompressed.

use bytes::Bytes;
use http::HeaderMap;

use crate::wire::content_coding::{PIECE_BYTES, Unpacker};

/// Bytes that one push may decompress to: a few kilobytes can hold hundreds of megabytes.
const MAX_OUTPUT: usize = 4 << 20;

/// `None`: the encoding is unknown, or the bytes are damaged or decompress to too much.
pub(super) struct Decoder(Option<Box<Unpacker>>);

impl Decoder {
    /// `None` if an answer with these headers is not compressed.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        match Unpacker::from_headers(headers, MAX_OUTPUT) {
            Ok(unpacker) => unpacker.map(|unpacker| Self(Some(Box::new(unpacker)))),
            Err(_) => Some(Self(None)),
        }
    }

    pub(super) const fn can_read(&self) -> bool {
        self.0.is_some()
    }

    /// Decompresses the next bytes; `None` after the first failure.
    pub(super) fn push(&mut self, bytes: Bytes) -> Option<Vec<u8>> {
        // A failure drops the unpacker.
        let mut unpacker = self.0.take()?;
        unpacker.restart_bound();
        unpacker.push(bytes);
        let (mut text, mut piece) = (Vec::new(), vec![0; PIECE_BYTES]);
        while let Some(len) = unpacker.pull_output(&mut piece).ok()? {
            text.extend_from_slice(&piece[..len]);
        }
        self.0 = Some(unpacker);
        Some(text)
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
        Decoder::from_headers(&headers)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn every_encoding_is_decompressed_byte_by_byte() {
        let text = "data: {\"é\":1}\n\n".repeat(50);
        let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        deflate.write_all(text.as_bytes()).unwrap();
        let mut brotli = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
        brotli.write_all(text.as_bytes()).unwrap();
        let compressed = [
            ("gzip", gzip(text.as_bytes())),
            ("deflate", deflate.finish().unwrap()),
            ("br", brotli.into_inner()),
            ("zstd", zstd::encode_all(text.as_bytes(), 3).unwrap()),
        ];
        for (encoding, compressed) in compressed {
            let mut decoder = decoder(encoding).unwrap();
            let mut unpacked = Vec::new();
            for byte in compressed {
                unpacked.extend(decoder.push(vec![byte].into()).unwrap());
            }
            assert_eq!(unpacked, text.as_bytes(), "{encoding}");
        }
    }

    #[test]
    fn bombs_damage_and_unknown_encodings_are_refused() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert_eq!(decoder("gzip").unwrap().push(bomb.into()), None);
        assert_eq!(decoder("gzip").unwrap().push("no gzip at all".into()), None);
        assert_eq!(decoder("compress").unwrap().push("x".into()), None);
        assert!(decoder("identity").is_none());
    }
}
