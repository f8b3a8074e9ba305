//! Parses a body without code of the proxy: by serde_json, after repairing what it refuses.

use serde_json::Value;

/// The body as a tree; a lone surrogate becomes U+FFFD, and a BOM is skipped.
///
/// # Errors
///
/// serde_json's error for a body that is not JSON, or is nested deeper than 128.
pub(crate) fn parse_value(body: &[u8]) -> Result<Value, serde_json::Error> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    serde_json::from_slice(body).or_else(|_| serde_json::from_slice(&without_lone_surrogates(body)))
}

/// The same JSON with `\ufffd` for each unpaired surrogate escape.
pub(crate) fn without_lone_surrogates(body: &[u8]) -> Vec<u8> {
    let mut out = body.to_vec();
    let mut at = 0;
    while at < body.len() {
        if body[at] != b'\\' {
            at += 1;
            continue;
        }
        let Some(unit) = code_unit(body, at) else {
            at += 2;
            continue;
        };
        let paired = (0xD800..0xDC00).contains(&unit)
            && code_unit(body, at + 6).is_some_and(|next| (0xDC00..0xE000).contains(&next));
        if (0xD800..0xE000).contains(&unit) && !paired {
            out[at + 2..at + 6].copy_from_slice(b"fffd");
        }
        at += if paired { 12 } else { 6 };
    }
    out
}

/// The code unit of the escape `\uXXXX` at this place.
fn code_unit(body: &[u8], at: usize) -> Option<u16> {
    let escape = body.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[test]
fn only_lone_surrogates_are_replaced() {
    let body = br#""\ud83d\ude42 \ud800 \\ud800 \udc00\ud800\u0041 \ud800\ud83d\ude42""#;
    let text: String = serde_json::from_slice(&without_lone_surrogates(body)).unwrap();
    assert_eq!(
        text,
        "\u{1f642} \u{fffd} \\ud800 \u{fffd}\u{fffd}A \u{fffd}\u{1f642}"
    );
}
