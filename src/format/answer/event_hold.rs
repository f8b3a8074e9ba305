//! Decides which named events of a stream are held until they are complete, though nothing in them is
//! rewritten.

/// The data of the end marker, which follows the last event of a stream in chat completions and at many gateways.
pub(in crate::format) const DONE: &[u8] = b"[DONE]";

/// Whether this may be the beginning of an event of the type `expected`, by the event's name or else by the beginning of
/// its data. If a beginning may be one, then every shorter beginning may be one too.
pub(in crate::format) fn may_be_event(beginning: &[u8], expected: &str) -> bool {
    let mut lines = beginning.split(|byte| matches!(byte, b'\n' | b'\r'));
    let partial = lines.next_back().unwrap_or_default();
    let mut named = false;
    let mut is_possible = |line: &[u8], whole: bool| {
        if let Some(name) = line.strip_prefix(b"event:") {
            let name = name.trim_ascii();
            named = name == expected.as_bytes();
            return named || (!whole && expected.as_bytes().starts_with(name));
        }
        match line.strip_prefix(b"data:") {
            Some(data) => named || may_begin_with_type(data, expected),
            // A comment is passed on at once, since a client may wait for it.
            None => !line.starts_with(b":"),
        }
    };
    lines.all(|line| is_possible(line, true)) && is_possible(partial, false)
}

/// Whether this may be the beginning of the end marker (`[DONE]`) in a format whose events have names. The marker has no
/// name.
pub(in crate::format) fn may_be_unnamed_done(beginning: &[u8]) -> bool {
    !beginning.starts_with(b"event") && may_be_done(beginning)
}

/// Whether all lines of data are empty, except one that is `[DONE]` or the beginning of it. A comment is passed on at
/// once, since a client may wait for it.
pub(in crate::format) fn may_be_done(beginning: &[u8]) -> bool {
    let mut lines = beginning.split(|byte| matches!(byte, b'\n' | b'\r'));
    let partial = lines.next_back().unwrap_or_default();
    let mut done = false;
    let mut is_possible = |line: &[u8], whole: bool| {
        let Some(data) = line.strip_prefix(b"data:") else {
            return !line.starts_with(b":");
        };
        let data = data.trim_ascii();
        if data.is_empty() {
            return true;
        }
        !std::mem::replace(&mut done, true) && (data == DONE || !whole && DONE.starts_with(data))
    };
    lines.all(|line| is_possible(line, true)) && is_possible(partial, false)
}

/// Whether data begins with this type, or may begin with it once more data comes.
fn may_begin_with_type(data: &[u8], expected: &str) -> bool {
    let spelt = [r#"{"type":""#, expected, "\""];
    let mut spelt = spelt.iter().flat_map(|part| part.bytes());
    let mut data = data.iter().filter(|byte| !byte.is_ascii_whitespace());
    loop {
        match (spelt.next(), data.next()) {
            (Some(expected), Some(byte)) if expected == *byte => {}
            (Some(_), Some(_)) => return false,
            (None, _) | (_, None) => return true,
        }
    }
}
