//! What a request allows its answer to be: tool calls, plain text, more than one.

use serde::Deserialize;

use crate::{
    conversation::{Author, Conversation, Item},
    json::scan::{JsonKind, JsonScanner, MalformedJson},
};

/// More than one answer.
pub(in crate::format) fn asks_for_many(conversation: &Conversation) -> bool {
    conversation.find_field("n").is_some_and(|field| {
        field.kind != JsonKind::Null && conversation.number_value("n").is_none_or(|n| n > 1)
    })
}

/// Whether the model may choose among the tools.
pub(in crate::format) fn may_call_tools(conversation: &Conversation) -> bool {
    ["tool_choice", "function_call"].iter().all(|name| {
        conversation
            .find_field(name)
            .is_none_or(|field| match field.kind {
                JsonKind::Null => true,
                JsonKind::String => conversation
                    .text_value(name)
                    .is_some_and(|choice| matches!(&*choice, "auto" | "required" | "any")),
                // A named function, or the tools that are allowed: none of the proxy is among them.
                _ => false,
            })
    })
}

/// Whether the answer is to continue a message that is there already.
pub(in crate::format) fn begins_answer(conversation: &Conversation) -> bool {
    let newest = conversation.items.last();
    newest.is_some_and(|message| {
        message.author == Author::Model || has_member(conversation, message, b"prefix")
    }) || conversation.asks_for("continue_final_message")
}

fn has_member(conversation: &Conversation, message: &Item, name: &[u8]) -> bool {
    let mut found = false;
    let mut scan = JsonScanner::new(&conversation.body, message.span.start as usize);
    let walked = scan.walk_object(|scan, key| {
        let (_, kind) = scan.take_value()?;
        found |= conversation.raw_bytes(key) == name
            && !matches!(kind, JsonKind::Null | JsonKind::False);
        Ok::<_, MalformedJson>(())
    });
    found || walked.is_err()
}

/// Members that give an answer a form of its own, in which a block has no place.
const SHAPED: [&str; 18] = [
    "stop",
    "logprobs",
    "top_logprobs",
    "prediction",
    "audio",
    "echo",
    // Of engines that are run at home.
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

/// Whether the answer is plain text that may end with a block.
pub(in crate::format) fn takes_plain_text(conversation: &Conversation) -> bool {
    !SHAPED
        .iter()
        .any(|name| has_request_for(conversation, name))
        && is_text_format(conversation)
        && !wants_other_modalities(conversation)
        && !begins_answer(conversation)
}

/// As [`Conversation::asks_for`], whatever white space stands between brackets; 0 asks for nothing.
fn has_request_for(conversation: &Conversation, name: &str) -> bool {
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
    #[derive(Deserialize)]
    struct ResponseFormat {
        #[serde(rename = "type")]
        kind: String,
    }
    conversation
        .find_field("response_format")
        .is_none_or(|field| {
            field.kind == JsonKind::Null
                || serde_json::from_slice::<ResponseFormat>(conversation.span_bytes(field.value))
                    .is_ok_and(|format| format.kind == "text")
        })
}

/// Whether anything but text is asked for.
fn wants_other_modalities(conversation: &Conversation) -> bool {
    conversation.find_field("modalities").is_some_and(|field| {
        field.kind != JsonKind::Null
            && serde_json::from_slice::<Vec<String>>(conversation.span_bytes(field.value))
                .map_or(true, |modalities| {
                    modalities.iter().any(|kind| kind != "text")
                })
    })
}
