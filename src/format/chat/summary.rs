//! A conversation's own request, turned into one for a text that nobody but the proxy reads.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    conversation::{Conversation, edit::Edits},
    format::write::AnswerLimit,
    json::scan::{JsonKind, Span},
};

/// Members that say how the answer is to look or where it goes: the answer is one text, for
/// the proxy alone. `metadata` is refused without `store`.
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
/// The longest answer, by both names.
const LIMITS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    let name = |at: usize| -> Cow<'_, str> { part.decode_text(part.fields[at].key) };
    let spans: Vec<Span> = part
        .fields
        .iter()
        .map(|field| Span {
            start: field.key.quoted_span().start,
            end: field.value.end,
        })
        .collect();
    let limit_name = limit_name(part, limit);
    let gone = |at: usize| {
        let name = name(at);
        DROPPED.contains(&&*name)
            || LIMITS.contains(&&*name) && name != limit_name
            || *name == *"thinking"
                && thinking_exceeds_limit(part, part.fields[at].value, limit.tokens)
    };
    edits.take_out(&spans, gone);
    let mut added = String::new();
    let mut set = |member: &str, value: String, anyway: bool| match part.find_field(member) {
        Some(field) => edits.replace(field.value, value),
        None if anyway => added.push_str(&format!(",\"{member}\":{value}")),
        None => {}
    };
    set("model", Value::from(model).to_string(), true);
    set("stream", "false".into(), false);
    set(limit_name, limit.tokens.to_string(), true);
    // A call that is demanded would be made.
    for choice in ["tool_choice", "function_call"] {
        if part
            .find_field(choice)
            .is_some_and(|field| field.kind != JsonKind::Null)
        {
            set(choice, "\"none\"".into(), false);
        }
    }
    if !added.is_empty() {
        edits.insert(part.span.end - 1, added);
    }
}

/// Whether a member asks for more thought than the whole answer may be: refused, where such a
/// member is known.
fn thinking_exceeds_limit(part: &Conversation, value: Span, most: u32) -> bool {
    let thinking = serde_json::from_slice::<Value>(&part.body[value.range()]);
    let budget = thinking.ok().and_then(|it| it["budget_tokens"].as_f64());
    budget.is_some_and(|budget| budget >= f64::from(most))
}

/// The name of the limit that the client uses: models that think refuse `max_tokens`, other
/// engines know nothing else.
fn limit_name(part: &Conversation, limit: AnswerLimit) -> &'static str {
    let used = |name: &&&'static str| {
        part.find_field(name)
            .is_some_and(|it| it.kind != JsonKind::Null)
    };
    LIMITS
        .iter()
        .find(used)
        .copied()
        .unwrap_or_else(|| usual_limit(limit))
}

/// The name of the limit with a provider of whom nothing else is known.
pub(super) const fn usual_limit(limit: AnswerLimit) -> &'static str {
    match limit.is_openai {
        true => LIMITS[0],
        false => LIMITS[1],
    }
}
