//! A wire format for tests. It shares no name and no shape with chat completions. The properties of
//! the guard hold over it too, which shows that nothing outside `format/` knows the JSON of chat.
//!
//! ```json
//! {"engine": "m", "gear": [], "reply_limit": 1024, "log": [
//!   {"who": "owner", "says": {"words": "Be brief."}},
//!   {"who": "person", "says": {"words": [{"line": "What is it?"}, {"sketch": {"at": "https://…", "grain": "coarse"}}]}},
//!   {"who": "machine", "says": {"words": false}, "wants": [{"ticket": "t1", "tool": "look", "with": "{}"}]},
//!   {"who": "report", "for": "t1", "says": {"words": "A boat."}}
//! ]}
//! ```
//!
//! `false` is an empty content. A call outside a list has no ticket, and neither has its report.

mod index;

use bytes::Bytes;
use serde_json::{Value, json};

pub(in crate::format) use self::index::index_body;
use crate::format::{
    AssistantTurn, ClientTools, ProxyToolCall,
    write::{AnswerLimit, TextRequest},
};
use crate::{
    conversation::{Author, Conversation, edit::Edits},
    json::{scan::Span, text},
};

/// The members that cap an answer.
pub(in crate::format) const CAPS: &[&str] = &["hard_limit", "reply_limit"];
/// The lists of tools.
pub(in crate::format) const TOOL_LISTS: &[&str] = &["gear", "old_gear"];

pub(in crate::format) fn wrap_items(entries: &[&str]) -> String {
    format!(r#"{{"log":[{}]}}"#, entries.join(","))
}

pub(in crate::format) fn text_item(author: Author, escaped: &str) -> String {
    let who = match author {
        Author::Model => "machine",
        _ => "person",
    };
    format!(r#"{{"who":"{who}","says":{{"words":"{escaped}"}}}}"#)
}

pub(in crate::format) fn text_block(escaped: &str) -> String {
    format!(r#"{{"line":"{escaped}"}}"#)
}

pub(in crate::format) fn calls_item(calls: &[&str]) -> String {
    let calls = calls.join(",");
    format!(r#"{{"who":"machine","says":{{"words":false}},"wants":[{calls}]}}"#)
}

/// As the model gave it, whatever its length.
pub(in crate::format) fn answer_item(turn: &AssistantTurn) -> Box<str> {
    turn.message.clone()
}

pub(in crate::format) fn result_item(call: &ProxyToolCall, text: &str) -> Box<str> {
    let entry = json!({"who": "report", "for": &*call.id, "says": {"words": text}});
    entry.to_string().into()
}

pub(in crate::format) fn text_request(request: &TextRequest<'_>) -> Bytes {
    let text = text::escape_text(request.text);
    let entry = text_item(Author::User, &text);
    let (engine, limit) = (json!(request.model), request.limit.tokens);
    Bytes::from(format!(
        r#"{{"engine":{engine},"log":[{entry}],"reply_limit":{limit}}}"#
    ))
}

pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    if let Some(field) = part.find_field("engine") {
        edits.replace(field.value, json!(model).to_string());
    }
    part.lower_answer_caps(limit.tokens, edits);
}

pub(in crate::format) const fn find_answer_format(_: &Conversation) -> Option<Span> {
    None
}

pub(in crate::format) const fn takes_plain_text(_: &Conversation) -> bool {
    true
}

pub(in crate::format) const fn managed_by_provider(_: &Conversation) -> Option<&'static str> {
    None
}

pub(in crate::format) const fn may_call_tools(_: &Conversation) -> bool {
    true
}

pub(in crate::format) fn read_client_tools(
    _: &Conversation,
    _: impl Iterator<Item = &'static str>,
) -> Option<ClientTools> {
    None
}

pub(in crate::format) fn write_empty_call(call: &ProxyToolCall) -> Value {
    serde_json::from_str(&call.json).unwrap_or_default()
}
