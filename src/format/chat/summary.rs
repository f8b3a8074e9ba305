//! Turns the request of a conversation into one for a text that only the proxy reads.

use serde_json::Value;

use crate::{
    conversation::{Conversation, Field, edit::Edits},
    format::write::AnswerLimit,
    json::scan::{JsonKind, Span},
};

/// Members that shape the answer or say where it goes: the answer is one text, for the proxy only.
/// `metadata` is refused without `store`.
const DROPPED: [&str; 23] = [
    "stream_options",
    "n",
    "stop",
    "response_format",
    "logprobs",
    "top_logprobs",
    "prediction",
    "audio",
    "modalities",
    "logit_bias",
    "parallel_tool_calls",
    "store",
    "metadata",
    "web_search_options",
    "min_tokens",
    "ignore_eos",
    "echo",
    "add_generation_prompt",
    "continue_final_message",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "structured_outputs",
];
/// The names of the answer cap.
const LIMITS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    let is_set = |name: &str| {
        let field = part.find_field(name);
        field.is_some_and(|field| field.kind != JsonKind::Null)
    };
    // The name that the client uses: reasoning models refuse `max_tokens`, other engines know no other.
    let used_limit = LIMITS.into_iter().find(|name| is_set(name));
    let limit_name = used_limit.unwrap_or_else(|| usual_limit(limit));
    let is_dropped = |at: usize| {
        let field = &part.fields[at];
        let name = &*part.decode_text(field.key);
        DROPPED.contains(&name)
            || LIMITS.contains(&name) && name != limit_name
            || name == "thinking" && thinking_exceeds_limit(part, field.value, limit.tokens)
    };
    let spans: Vec<Span> = part.fields.iter().map(Field::full_span).collect();
    edits.remove_items(&spans, is_dropped);
    let mut added = String::new();
    let mut set = |member: &str, value: String| match part.find_field(member) {
        Some(field) => edits.replace(field.value, value),
        None => added.push_str(&format!(",\"{member}\":{value}")),
    };
    set("model", Value::from(model).to_string());
    set(limit_name, limit.tokens.to_string());
    if part.find_field("stream").is_some() {
        set("stream", "false".into());
    }
    // The model would make a call that is demanded.
    for choice in ["tool_choice", "function_call"] {
        if is_set(choice) {
            set(choice, "\"none\"".into());
        }
    }
    if !added.is_empty() {
        edits.insert(part.span.end - 1, added);
    }
}

/// Whether a thinking budget reaches the answer cap, which providers refuse.
fn thinking_exceeds_limit(part: &Conversation, value: Span, max_tokens: u32) -> bool {
    let thinking = serde_json::from_slice::<Value>(part.span_bytes(value));
    let budget = thinking.ok().and_then(|it| it["budget_tokens"].as_f64());
    budget.is_some_and(|budget| budget >= f64::from(max_tokens))
}

/// The name of the answer cap for a provider of which nothing else is known.
pub(super) const fn usual_limit(limit: AnswerLimit) -> &'static str {
    match limit.is_openai {
        true => LIMITS[0],
        false => LIMITS[1],
    }
}
