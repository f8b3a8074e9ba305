//! Texts that can be edited.

use crate::json::text::TextWalk;

/// Whether a text has a decoded form: no half of a surrogate pair, and no unknown escape.
pub(in crate::guard) fn is_decodable(raw: &[u8]) -> bool {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        // Most escapes have one letter and need no walk.
        if let Some(b'n' | b't' | b'r' | b'b' | b'f' | b'"' | b'\\' | b'/') = rest.get(at + 1) {
            rest = &rest[at + 2..];
            continue;
        }
        let mut walk = TextWalk::new(&rest[at..]);
        walk.by_ref().for_each(drop);
        return walk.is_sound();
    }
    true
}
