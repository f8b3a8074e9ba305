//! Base64 inside a JSON string.

use std::borrow::Cow;

use base64::{
    Engine as _,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// The bytes of base64 in a JSON string, of its first `most` characters: with escaped slashes and line ends, either
/// alphabet, with padding or without.
pub fn decode_base64(raw: &[u8], most: usize) -> Option<Vec<u8>> {
    let raw = &raw[..raw.len().min(most)];
    let plain = match memchr::memchr(b'\\', raw) {
        None => Cow::Borrowed(raw),
        Some(_) => Cow::Owned(drop_escapes(raw)),
    };
    let plain = plain.trim_ascii_end();
    let is_url_safe = memchr::memchr2(b'-', b'_', plain).is_some();
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let alphabet = if is_url_safe { &URL_SAFE } else { &STANDARD };
    // A single character behind the last whole group says nothing.
    let len = plain.len() - usize::from(plain.len() % 4 == 1);
    let engine = GeneralPurpose::new(alphabet, config);
    engine.decode(&plain[..len]).ok()
}

/// Base64 without the backslashes before slashes, and without line ends.
fn drop_escapes(raw: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => plain.extend(bytes.next().filter(|next| !b"nr".contains(next))),
            _ => plain.push(byte),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::decode_base64;

    #[test]
    fn base64_is_read_in_any_spelling() {
        for raw in [
            &b"aGk/aGk+aGk="[..],
            b"aGk/aGk+aGk",
            b"aGk_aGk-aGk",
            br"aGk\/aGk+\r\naGk=\n",
            b"aGk/aGk+aGk=\n",
        ] {
            assert_eq!(decode_base64(raw, raw.len()).unwrap(), b"hi?hi>hi");
        }
        assert_eq!(decode_base64(b"aGk/aGk+aGk=", 4).unwrap(), b"hi?");
        assert_eq!(decode_base64(b"aGk/a", 5).unwrap(), b"hi?");
        assert_eq!(decode_base64(b"", 9).unwrap(), b"");
        assert_eq!(decode_base64(b"\\", 9).unwrap(), b"");
        for raw in [&b"a b"[..], "aé==".as_bytes(), b"===="] {
            assert_eq!(decode_base64(raw, raw.len()), None);
        }
    }
}
