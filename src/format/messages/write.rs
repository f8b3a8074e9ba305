//! Messages, calls, requests and answers of the Messages API, as the proxy writes them.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::json;

use crate::{
    conversation::Author,
    format::{AssistantTurn, ProxyToolCall, values::walk_if_object, write::TextRequest},
    json::scan::JsonScanner,
};

pub(in crate::format) fn wrap_messages(items: &[&str]) -> String {
    format!(r#"{{"messages":[{}]}}"#, write_entries(items))
}

/// Items that are blocks share an entry with those beside them: all results of an answer stand in one.
pub(in crate::format) fn write_entries(items: &[&str]) -> String {
    let runs = items.chunk_by(|item, next| is_block(item) && is_block(next));
    let entries = runs.map(|run| match run {
        [first, ..] if is_block(first) => {
            let blocks = run.join(",");
            format!(r#"{{"role":"user","content":[{blocks}]}}"#)
        }
        run => run.join(","),
    });
    entries.collect::<Vec<_>>().join(",")
}

/// Whether the JSON of an item is a block of an entry, and no entry.
fn is_block(item: &str) -> bool {
    let mut has_role = false;
    let mut scan = JsonScanner::new(item.as_bytes(), 0);
    let walked = walk_if_object(&mut scan, |scan, key| {
        has_role |= &item.as_bytes()[key.span.range()] == b"role";
        scan.take_value().map(|_| ())
    });
    walked.is_ok() && !has_role
}

pub(in crate::format) fn text_item(author: Author, escaped: &str) -> String {
    let role = match author {
        Author::Model => "assistant",
        _ => "user",
    };
    format!(r#"{{"role":"{role}","content":"{escaped}"}}"#)
}

pub(in crate::format) fn calls_item(calls: &[&str]) -> String {
    let calls = calls.join(",");
    format!(r#"{{"role":"assistant","content":[{calls}]}}"#)
}

pub(in crate::format) fn answer_item(
    turn: &AssistantTurn,
    max_bytes: usize,
    max_argument_bytes: usize,
) -> Box<str> {
    let calls = &turn.proxy_calls;
    let fits = !turn.message.is_empty() && turn.message.len() <= max_bytes;
    if fits && !calls.iter().any(|it| it.is_overlong(max_argument_bytes)) {
        return turn.message.clone();
    }
    // Too long to be sent again. Its calls stay, since the results need them.
    let calls = calls.iter().map(|it| write_call(it, max_argument_bytes));
    let calls: Vec<_> = calls.collect();
    let calls: Vec<&str> = calls.iter().map(|call| &**call).collect();
    match (&calls[..], &turn.package) {
        ([], Some(package)) => json!({"role": "assistant", "content": &*package.text}).to_string(),
        _ => calls_item(&calls),
    }
    .into()
}

pub(in crate::format) fn write_call(
    call: &ProxyToolCall,
    max_argument_bytes: usize,
) -> Cow<'_, str> {
    if !call.is_overlong(max_argument_bytes) {
        return Cow::Borrowed(&call.json);
    }
    let call = json!({"type": "tool_use", "id": &*call.id, "name": &*call.name, "input": {}});
    Cow::Owned(call.to_string())
}

/// A block, which stands beside the other results of the same answer.
pub(in crate::format) fn result_item(call: &ProxyToolCall, text: &str) -> Box<str> {
    let block = json!({"type": "tool_result", "tool_use_id": &*call.id, "content": text});
    block.to_string().into()
}

pub(in crate::format) fn text_request(request: &TextRequest<'_>) -> Bytes {
    let body = json!({
        "model": request.model,
        "max_tokens": request.limit.tokens,
        "messages": [{"role": "user", "content": request.text}],
    });
    Bytes::from(body.to_string())
}
