//! Answers in the form of OpenAI's Responses: one JSON body, or a stream of events.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{
    completion::{CREATED, Completion, SimulatedBody, event_stream_response, json_response},
    token_count::TokenPieces,
};

impl Completion {
    /// The whole answer in one body, as a response.
    pub(super) fn write_response(&self) -> Response<SimulatedBody> {
        json_response(StatusCode::OK, &self.to_response())
    }

    /// The answer as server-sent events of a response, one in a frame.
    pub(super) fn write_response_events(&self) -> Response<SimulatedBody> {
        let whole = self.to_response();
        let mut begun = whole.clone();
        begun["status"] = "in_progress".into();
        begun["output"] = json!([]);
        begun["usage"] = Value::Null;
        begun["incomplete_details"] = Value::Null;
        let mut events = vec![
            json!({"type": "response.created", "response": begun}),
            json!({"type": "response.in_progress", "response": begun}),
        ];
        if let Some(item) = self.to_item() {
            events.extend(self.item_events(item));
        }
        let kind = match self.reply.finish {
            "length" => "response.incomplete",
            _ => "response.completed",
        };
        events.push(json!({"type": kind, "response": whole}));
        event_stream_response(events.into_iter().enumerate().map(|(number, mut event)| {
            event["sequence_number"] = number.into();
            let name = event["type"].as_str().unwrap_or_default();
            format!("event: {name}\ndata: {event}\n\n")
        }))
    }

    fn item_events(&self, item: Value) -> Vec<Value> {
        let content = &self.reply.content;
        let mut begun = item.clone();
        begun["status"] = "in_progress".into();
        let (kind, member) = match content.tool {
            Some(_) => ("response.function_call_arguments", "arguments"),
            None => ("response.output_text", "text"),
        };
        let mut place = json!({"output_index": 0, "item_id": item["id"]});
        let mut events = Vec::new();
        let part = item["content"][0].clone();
        if content.tool.is_some() {
            begun["arguments"] = "".into();
        } else {
            begun["content"] = json!([]);
            place["content_index"] = 0.into();
        }
        let at_place = |kind: &str, members: Value| {
            let mut event = place.clone();
            event["type"] = kind.into();
            for (key, value) in members.as_object().into_iter().flatten() {
                event[key] = value.clone();
            }
            event
        };
        events
            .push(json!({"type": "response.output_item.added", "output_index": 0, "item": begun}));
        if content.tool.is_none() {
            let empty = json!({"type": "output_text", "text": "", "annotations": []});
            events.push(at_place(
                "response.content_part.added",
                json!({"part": empty}),
            ));
        }
        let delta = format!("{kind}.delta");
        events.extend(
            TokenPieces(&content.text).map(|piece| at_place(&delta, json!({"delta": piece}))),
        );
        events.push(at_place(
            &format!("{kind}.done"),
            json!({member: content.text}),
        ));
        if content.tool.is_none() {
            events.push(at_place(
                "response.content_part.done",
                json!({"part": part}),
            ));
        }
        events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
        events
    }

    /// The only item; none where the answer has no text.
    fn to_item(&self) -> Option<Value> {
        let content = &self.reply.content;
        let status = match self.reply.finish {
            "length" => "incomplete",
            _ => "completed",
        };
        let hash = self.id.trim_start_matches("resp_");
        match &content.tool {
            Some(name) => Some(json!({"type": "function_call", "id": format!("fc_{hash}"),
                "call_id": self.call_id, "name": name, "arguments": content.text, "status": status})),
            None => (!content.text.is_empty()).then(|| {
                let part = json!({"type": "output_text", "text": content.text, "annotations": []});
                json!({"type": "message", "id": format!("msg_{hash}"), "role": "assistant",
                    "status": status, "content": [part]})
            }),
        }
    }

    fn to_response(&self) -> Value {
        let (status, details) = match self.reply.finish {
            "length" => ("incomplete", json!({"reason": "max_output_tokens"})),
            _ => ("completed", Value::Null),
        };
        let (prompt, output) = (self.prompt_tokens, self.reply.tokens);
        let written = prompt.saturating_sub(self.cached_tokens);
        json!({"id": self.id, "object": "response", "created_at": CREATED, "status": status,
            "model": self.model, "output": self.to_item().into_iter().collect::<Vec<_>>(),
            "error": null, "incomplete_details": details, "instructions": null, "metadata": {},
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
            "usage": {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output,
                "input_tokens_details": {"cached_tokens": self.cached_tokens, "cache_write_tokens": written},
                "output_tokens_details": {"reasoning_tokens": 0}}})
    }
}
