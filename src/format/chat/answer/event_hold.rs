//! Decides which events of a stream are held until they are complete, though nothing in them is
//! rewritten.

use serde_json::Value;

use crate::format::answer::event_hold::may_be_done;

/// Whether this may be the beginning of an event that must be complete before it is passed on: the end marker or, with
/// `usage`, a chunk with usage and without choices. If a beginning may be one, then every shorter beginning may be one
/// too.
pub fn may_need_whole_event(beginning: &[u8], usage: bool) -> bool {
    may_be_done(beginning) || (usage && !has_choices(beginning))
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

/// Whether this is a chunk that has nothing but the role, or nothing at all, as the first chunks of a stream do.
pub fn is_role_chunk(data: &[u8]) -> bool {
    let Ok(chunk) = serde_json::from_slice::<Value>(data) else {
        return false;
    };
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let has_none = |choice: &Value| {
        let delta = choice["delta"].as_object();
        let mut members = delta.into_iter().flatten();
        choice["finish_reason"].is_null()
            && members.all(|(name, value)| name == "role" || is_empty(value))
    };
    let choices = chunk["choices"].as_array();
    let is_chunk = choices.is_some_and(|choices| choices.iter().all(has_none));
    is_chunk && chunk["error"].is_null() && chunk["usage"].is_null()
}
