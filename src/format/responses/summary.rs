//! Turns the request of a conversation into one for a text that only the proxy reads.

use serde_json::Value;

use super::request;
use crate::{
    conversation::{Conversation, Field, edit::Edits},
    format::write::AnswerLimit,
    json::scan::{JsonKind, Span},
};

/// Members that shape the answer or say where it goes. `metadata` is of use only with a stored answer.
const DROPPED: [&str; 9] = [
    "stream_options",
    "include",
    "background",
    "metadata",
    "top_logprobs",
    "max_tool_calls",
    "parallel_tool_calls",
    "moderation",
    "modalities",
];

/// Changes the members that shape the answer, and no other: tools stay, since the calls in the conversation need them,
/// and with them the provider's cache.
pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    let is_dropped = |at: usize| {
        let name = &*part.decode_text(part.fields[at].key);
        DROPPED.contains(&name) || name == "text" && request::find_answer_format(part).is_some()
    };
    let spans: Vec<Span> = part.fields.iter().map(Field::full_span).collect();
    edits.remove_items(&spans, is_dropped);
    let mut added = String::new();
    let mut set = |member: &str, value: String| match part.find_field(member) {
        Some(field) => edits.replace(field.value, value),
        None => added.push_str(&format!(",\"{member}\":{value}")),
    };
    set("model", Value::from(model).to_string());
    set(request::CAPS[0], limit.tokens.to_string());
    if part.find_field("stream").is_some() {
        set("stream", "false".into());
    }
    // Where the client stores its answers, its entries may be known by their ids only there.
    if part.find_field("store").is_none() {
        set("store", "false".into());
    }
    // The model would make a call that is demanded.
    let choice = part.find_field("tool_choice");
    if choice.is_some_and(|choice| choice.kind != JsonKind::Null) {
        set("tool_choice", "\"none\"".into());
    }
    if !added.is_empty() {
        edits.insert(part.span.end - 1, added);
    }
}
