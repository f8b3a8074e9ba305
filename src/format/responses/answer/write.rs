//! Answers and events of Responses, as the proxy writes them.

use std::iter::successors;

use bytes::Bytes;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    conversation::Conversation,
    format::{
        SentEvents, answer::usage::Usage, errors::error_body::ErrorBody,
        responses::compaction_item::encode_text,
    },
};

/// A compaction that the proxy made.
pub struct CompactionReply<'a> {
    /// The text that replaces the conversation.
    pub text: &'a str,
    /// As the client named it.
    pub model: &'a str,
    /// The usage of the model's answers that made the text.
    pub usage: Usage,
    /// Seconds since 1970.
    pub created_s: u64,
}

impl CompactionReply<'_> {
    /// The answer to a request that ends in an entry that asks to compact: one compaction entry.
    pub fn write_answer(&self, streamed: bool) -> Bytes {
        let (id, item) = (self.make_id("resp"), self.make_item());
        let with_head = |mut response: Value| {
            (response["id"], response["created_at"]) = (id.clone().into(), self.created_s.into());
            response
        };
        let mut completed = with_head(make_response("completed", self.model, Some(self.usage)));
        completed["output"] = json!([item]);
        if !streamed {
            return Bytes::from(completed.to_string());
        }
        let begun = with_head(make_response("in_progress", self.model, None));
        let events = [
            json!({"type": "response.created", "response": begun}),
            json!({"type": "response.in_progress", "response": begun}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": "response.completed", "response": completed}),
        ];
        write_events(0, events)
    }

    /// The compacted list of `/responses/compact`: the messages of the user as they came, and the compaction entry.
    pub fn write_list(&self, conversation: &Conversation) -> Bytes {
        let items = conversation.items.iter();
        let said = items.filter(|item| item.is_by_user());
        let said = said.map(|item| String::from_utf8_lossy(conversation.span_bytes(item.span)));
        let mut output: Vec<_> = said.collect();
        output.push(self.make_item().to_string().into());
        let (id, created, usage) = (
            self.make_id("resp"),
            self.created_s,
            write_usage(self.usage),
        );
        let output = output.join(",");
        Bytes::from(format!(
            r#"{{"id":"{id}","object":"response.compaction","created_at":{created},"output":[{output}],"usage":{usage}}}"#
        ))
    }

    fn make_item(&self) -> Value {
        let content = encode_text(self.text);
        json!({"type": "compaction", "id": self.make_id("cmp"), "encrypted_content": content})
    }

    /// Makes an id from the text: equal texts have equal ids.
    fn make_id(&self, prefix: &str) -> String {
        format!("{prefix}_{:032x}", xxh3_128(self.text.as_bytes()))
    }
}

/// Writes an error as the last event of a stream, numbered to follow what the client has received. Clients read the error
/// in this event, and not in an event of the type `error`: Codex recognises a full window in this event only.
pub fn error_event(error: &ErrorBody, sent: &SentEvents) -> Bytes {
    let code = error.code.as_deref().unwrap_or("server_error");
    let model = sent
        .model
        .as_ref()
        .and_then(|it| serde_json::from_slice(it).ok());
    let model: String = model.unwrap_or_default();
    let mut response = make_response("failed", &model, None);
    response["error"] = json!({"code": code, "message": error.message});
    let quoted = sent.id.as_ref().map(|id| [b"\"", &id[..], b"\""].concat());
    if let Some(id) = quoted.and_then(|id| serde_json::from_slice(&id).ok()) {
        response["id"] = id;
    }
    let event = json!({"type": "response.failed", "response": response});
    write_events(sent.next_number.unwrap_or(0), [event])
}

/// Writes an answer without output that ends properly. Without an end, the client would report an error or wait for ever.
pub fn empty_answer(streamed: bool, model: &str, usage: Option<Usage>) -> Bytes {
    let completed = make_response("completed", model, usage);
    if !streamed {
        return Bytes::from(completed.to_string());
    }
    let begun = make_response("in_progress", model, None);
    let events = [
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.completed", "response": completed}),
    ];
    write_events(0, events)
}

fn make_response(status: &str, model: &str, usage: Option<Usage>) -> Value {
    json!({
        "id": "resp_plimsoll", "object": "response", "created_at": 0, "status": status, "model": model,
        "output": [], "error": null, "incomplete_details": null, "usage": usage.map(write_usage),
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
    })
}

fn write_usage(usage: Usage) -> Value {
    let output = usage.completion_tokens.unwrap_or(0);
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens.unwrap_or(0),
            "cache_write_tokens": usage.cache_written_tokens.unwrap_or(0),
        },
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens.saturating_add(output),
    })
}

/// `first`: the number of the first event.
fn write_events<const COUNT: usize>(first: u64, events: [Value; COUNT]) -> Bytes {
    let write = |(number, mut event): (u64, Value)| {
        event["sequence_number"] = number.into();
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    };
    let numbers = successors(Some(first), |number| number.checked_add(1));
    Bytes::from(numbers.zip(events).map(write).collect::<String>())
}
