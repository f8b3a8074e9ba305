//! The scanner compared with a byte-by-byte reading; sizes and digests of texts compared over other
//! spellings of the same text.

use super::split;
use plimsoll::json::{
    scan::{JsonKind, JsonScanner, JsonString, MAX_DEPTH, MalformedJson, Span},
    text::{TextDigester, TextWalk, digest_text, measure_and_digest, measure_text},
};
use serde::de::IgnoredAny;

/// The first byte is the offset of the text in its block, the second says how a text is cut.
pub(super) fn check(data: &[u8]) {
    let (head, rest) = split(data, 2);
    let before = usize::from(head[0] % 65);
    let text = [&vec![b' '; before][..], rest].concat();
    value(&text, before);
    let quoted = [&vec![b'x'; before][..], b"\"", rest].concat();
    string(&quoted, before, head[1]);
    members(&text, before);
}

/// A string, read byte by byte.
fn scan_plainly(text: &[u8], start: usize) -> Option<JsonString> {
    let (mut at, mut has_escapes, mut respelled) = (start, false, false);
    loop {
        match *text.get(at)? {
            b'"' => {
                return Some(JsonString {
                    span: Span::new(start, at),
                    has_escapes,
                    respelled,
                });
            }
            b'\\' => {
                let next = *text.get(at + 1)?;
                has_escapes = true;
                respelled |= matches!(next, b'u' | b'/');
                at += 2;
            }
            _ => at += 1,
        }
    }
}

fn string(body: &[u8], at: usize, cut: u8) {
    let mut scan = JsonScanner::new(body, at);
    let found = scan.take_string();
    assert_eq!(found.ok(), scan_plainly(body, at + 1));
    let Ok(text) = found else { return };
    assert_eq!(scan.position(), text.span.end as usize + 1);
    let raw = &body[text.span.range()];
    let described = measure_and_digest(body, text);
    let quoted = std::str::from_utf8(&body[text.quoted_span().range()]).unwrap_or("");
    if serde_json::from_str::<IgnoredAny>(quoted).is_err() {
        // Invalid JSON: the scanner need only return.
        let _ = (measure_text(raw), digest_text(raw));
        return;
    }
    assert_eq!(described, (measure_text(raw), digest_text(raw)));
    let mut ends = Vec::new();
    for character in TextWalk::new(raw) {
        ends.push(character.at + character.len);
    }
    let counted = measure_text(raw).total_chars();
    assert_eq!(counted, ends.len(), "character by character");
    assert_eq!(ends.last().copied().unwrap_or(0), raw.len());
    in_pieces(raw, &ends, usize::from(cut));
}

/// A digest of pieces, none of which ends inside an escape, is that of the whole.
fn in_pieces(raw: &[u8], ends: &[usize], every: usize) {
    let mut digester = TextDigester::new();
    let mut from = 0;
    for end in ends.iter().step_by(every % 7 + 1) {
        digester.push(&raw[from..*end]);
        from = *end;
    }
    digester.push(&raw[from..]);
    assert_eq!(digester.finish(), digest_text(raw));
}

/// End and kind of the value at a place, read byte by byte.
fn plain_value(text: &[u8], at: usize) -> Result<(Span, JsonKind), ()> {
    let white = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    let start = at + text[at..].iter().take_while(|byte| white(byte)).count();
    let number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let word = |word: &[u8]| {
        let whole = text[start..].starts_with(word);
        whole.then_some(start + word.len()).ok_or(())
    };
    let (end, kind) = match text.get(start).ok_or(())? {
        b'"' => {
            let text = scan_plainly(text, start + 1).ok_or(())?;
            (text.span.end as usize + 1, JsonKind::String)
        }
        b'{' => (closing(text, start)?, JsonKind::Object),
        b'[' => (closing(text, start)?, JsonKind::Array),
        b't' => (word(b"true")?, JsonKind::True),
        b'f' => (word(b"false")?, JsonKind::False),
        b'n' => (word(b"null")?, JsonKind::Null),
        byte if *byte == b'-' || byte.is_ascii_digit() => {
            let digits = text[start..].iter().take_while(|byte| number(byte));
            (start + digits.count(), JsonKind::Number)
        }
        _ => return Err(()),
    };
    Ok((Span::new(start, end), kind))
}

/// The place after the bracket that closes the one at `at`.
fn closing(text: &[u8], mut at: usize) -> Result<usize, ()> {
    let mut open = Vec::new();
    loop {
        let byte = *text.get(at).ok_or(())?;
        at += 1;
        match byte {
            b'"' => at = scan_plainly(text, at).ok_or(())?.span.end as usize + 1,
            b'{' | b'[' if open.len() == MAX_DEPTH => return Err(()),
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' if open.pop() != Some(byte) => return Err(()),
            b'}' | b']' if open.is_empty() => return Ok(at),
            _ => {}
        }
    }
}

fn value(text: &[u8], at: usize) {
    let mut scan = JsonScanner::new(text, at);
    let found = scan.take_value();
    assert_eq!(found.map_err(drop), plain_value(text, at));
    if let Ok((span, _)) = found {
        assert_eq!(scan.position(), span.end as usize);
    }
}

/// An object walked member by member ends where one step over it ends, and contains its members.
fn members(text: &[u8], at: usize) {
    let mut last = at as u32;
    let walked = JsonScanner::new(text, at).walk_object(|scan, key| {
        assert!(key.quoted_span().start >= last);
        let (span, _) = scan.take_value()?;
        assert!(span.start > key.quoted_span().end);
        last = span.end;
        Ok::<_, MalformedJson>(())
    });
    if let Ok(span) = walked {
        assert_eq!(plain_value(text, at), Ok((span, JsonKind::Object)));
        assert!(last < span.end);
    }
}
