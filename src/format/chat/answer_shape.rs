//! What a request allows its answer to be: tool calls, plain text, several choices.

use crate::{
    conversation::Conversation,
    format::values::{find_member, has_type, parse_field},
    json::scan::JsonKind,
};

pub(in crate::format) fn asks_for_many(conversation: &Conversation) -> bool {
    conversation.find_field("n").is_some_and(|field| {
        field.kind != JsonKind::Null && conversation.number_value("n").is_none_or(|n| n > 1)
    })
}

pub(in crate::format) fn may_call_tools(conversation: &Conversation) -> bool {
    let mut names = ["tool_choice", "function_call"].into_iter();
    names.all(|name| match conversation.find_field(name) {
        // A named function, or a list of allowed tools, leaves the proxy's tools out.
        Some(field) if field.kind != JsonKind::Null => conversation
            .text_value(name)
            .is_some_and(|choice| matches!(&*choice, "auto" | "required" | "any")),
        _ => true,
    })
}

/// Whether the answer continues the last message, whoever wrote it.
pub(in crate::format) fn continues_message(conversation: &Conversation) -> bool {
    let newest = conversation.items.last();
    newest.is_some_and(|message| {
        let prefix = find_member(&conversation.body, message.span.start, b"prefix");
        let is_unset = |kind| matches!(kind, JsonKind::Null | JsonKind::False);
        prefix.is_some_and(|(_, kind)| !is_unset(kind))
    }) || conversation.asks_for("continue_final_message")
}

/// Members that shape an answer so that it cannot end with a continuation block.
const SHAPING_MEMBERS: [&str; 18] = [
    "stop",
    "logprobs",
    "top_logprobs",
    "prediction",
    "audio",
    "echo",
    // Of self-hosted engines.
    "format",
    "grammar",
    "json_schema",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "regex",
    "ebnf",
    "stop_token_ids",
    "ignore_eos",
];

pub(in crate::format) fn takes_plain_text(conversation: &Conversation) -> bool {
    let mut shaping = SHAPING_MEMBERS.iter();
    !shaping.any(|name| is_asked_for(conversation, name))
        && is_text_format(conversation)
        && !asks_for_other_modalities(conversation)
}

/// As [`Conversation::asks_for`]; but 0, and brackets around white space, ask for nothing either.
fn is_asked_for(conversation: &Conversation, name: &str) -> bool {
    conversation.asks_for(name)
        && conversation.number_value(name) != Some(0)
        && conversation.find_field(name).is_some_and(|field| {
            let bytes = conversation.span_bytes(field.value);
            let inner = bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or(b"");
            let brackets = matches!(field.kind, JsonKind::Object | JsonKind::Array);
            !(brackets && inner.trim_ascii().is_empty())
        })
}

fn is_text_format(conversation: &Conversation) -> bool {
    let format = conversation.find_field("response_format");
    format.is_none_or(|field| {
        field.kind == JsonKind::Null || has_type(&conversation.body, field.value.start, "text")
    })
}

fn asks_for_other_modalities(conversation: &Conversation) -> bool {
    let modalities = parse_field(conversation, "modalities");
    let kinds = modalities.as_array();
    !modalities.is_null() && !kinds.is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}
