//! Decides which events of a stream are held until they are complete, though nothing in them is
//! rewritten.

use super::DONE;

/// Whether this may be the beginning of an event that must be complete: the end marker, or with
/// `usage` a chunk with usage and without choices. If it may be, so may every shorter beginning.
pub fn may_need_whole_event(beginning: &[u8], usage: bool) -> bool {
    may_be_done(beginning) || (usage && !has_choices(beginning))
}

/// Whether all lines of data are empty, but for one that is `[DONE]` or its beginning. A comment
/// goes out at once, since a client may wait for it.
fn may_be_done(beginning: &[u8]) -> bool {
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

/// Whether there is a `"choices":[` with an element.
fn has_choices(beginning: &[u8]) -> bool {
    const KEY: &[u8] = b"\"choices\"";
    memchr::memmem::find_iter(beginning, KEY).any(|at| {
        let rest = beginning[at + KEY.len()..].trim_ascii_start();
        let rest = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        let rest = rest.and_then(|rest| rest.strip_prefix(b"["));
        let first = rest.and_then(|rest| rest.trim_ascii_start().first());
        first.is_some_and(|first| *first != b']')
    })
}
