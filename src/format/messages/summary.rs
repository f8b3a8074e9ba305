//! Turns the request of a conversation into one for a text that only the proxy reads.

use serde_json::Value;

use super::request;
use crate::{
    conversation::{Conversation, Field, edit::Edits},
    format::write::AnswerLimit,
    json::scan::{JsonKind, Span},
};

/// Changes the members that shape the answer, and no other: tools stay, since the calls in the conversation need them,
/// and with them the provider's cache.
pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    // Providers refuse a budget that the answer cap does not exceed.
    let budget = request::thinking_budget(part);
    let stops_thinking = budget.is_some_and(|budget| budget >= limit.tokens.into());
    let is_dropped = |at: usize| match &*part.decode_text(part.fields[at].key) {
        "stop_sequences" => true,
        "output_config" => request::find_answer_format(part).is_some(),
        // Its edit of thinking is refused without thinking, and it has no other here.
        "thinking" | "context_management" => stops_thinking,
        _ => false,
    };
    let spans: Vec<Span> = part.fields.iter().map(Field::full_span).collect();
    edits.remove_items(&spans, is_dropped);
    let mut added = String::new();
    let mut set = |member: &str, value: String| match part.find_field(member) {
        Some(field) => edits.replace(field.value, value),
        None => added.push_str(&format!(",\"{member}\":{value}")),
    };
    set("model", Value::from(model).to_string());
    set("max_tokens", limit.tokens.to_string());
    if part.find_field("stream").is_some() {
        set("stream", "false".into());
    }
    // The model would make a call that is demanded.
    let choice = part.find_field("tool_choice");
    if choice.is_some_and(|choice| choice.kind != JsonKind::Null) {
        set("tool_choice", r#"{"type":"none"}"#.into());
    }
    if !added.is_empty() {
        edits.insert(part.span.end - 1, added);
    }
}
