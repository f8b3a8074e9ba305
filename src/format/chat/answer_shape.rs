//! What a request allows its answer to be: tool calls, plain text, several choices.

use serde::Deserialize;

use crate::{
    conversation::{Author, Conversation, Item},
    json::scan::{JsonKind, JsonScanner, MalformedJson},
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
        && !begins_answer(conversation)
}

/// Like [`Conversation::asks_for`], but 0 and brackets around white space ask for nothing too.
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
    #[derive(Deserialize)]
    struct ResponseFormat {
        #[serde(rename = "type")]
        kind: String,
    }
    let format = conversation.find_field("response_format");
    format.is_none_or(|field| {
        let format =
            serde_json::from_slice::<Option<ResponseFormat>>(conversation.span_bytes(field.value));
        format.is_ok_and(|format| format.is_none_or(|format| format.kind == "text"))
    })
}

fn asks_for_other_modalities(conversation: &Conversation) -> bool {
    let modalities = conversation.find_field("modalities");
    modalities.is_some_and(|field| {
        let kinds =
            serde_json::from_slice::<Option<Vec<String>>>(conversation.span_bytes(field.value));
        kinds.map_or(true, |kinds| {
            kinds.iter().flatten().any(|kind| kind != "text")
        })
    })
}
