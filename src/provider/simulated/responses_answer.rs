//! Answers in the form of OpenAI's Responses.

use serde_json::{Value, json};

use super::{
    completion::{CREATED, Completion},
    token_count::TokenPieces,
};

impl Completion {
    /// The events of a stream.
    pub(super) fn to_response_events(&self) -> Vec<Value> {
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
        if let Some(item) = self.write_reasoning() {
            let mut begun = item.clone();
            begun["encrypted_content"] = "".into();
            events.extend([("added", begun), ("done", item)].map(|(event, item)| {
                json!({"type": format!("response.output_item.{event}"), "output_index": 0, "item": item})
            }));
        }
        if let Some(item) = self.to_item() {
            events.extend(self.item_events(item));
        }
        let kind = match self.reply.finish {
            "length" => "response.incomplete",
            _ => "response.completed",
        };
        events.push(json!({"type": kind, "response": whole}));
        for (number, event) in events.iter_mut().enumerate() {
            event["sequence_number"] = number.into();
        }
        events
    }

    fn item_events(&self, item: Value) -> Vec<Value> {
        let content = &self.reply.content;
        let mut begun = item.clone();
        begun["status"] = "in_progress".into();
        let index = usize::from(self.thought.is_some());
        let mut place = json!({"output_index": index, "item_id": item["id"]});
        let (kind, member) = match content.tool {
            Some(_) => ("function_call_arguments", "arguments"),
            None => ("output_text", "text"),
        };
        match content.tool {
            Some(_) => begun["arguments"] = "".into(),
            None => {
                begun["content"] = json!([]);
                place["content_index"] = 0.into();
            }
        }
        let at_place = |kind: String, member: &str, value: Value| {
            let mut event = place.clone();
            event["type"] = kind.into();
            event[member] = value;
            event
        };
        let part_event = |event: &str, part: Value| {
            let kind = format!("response.content_part.{event}");
            content.tool.is_none().then(|| at_place(kind, "part", part))
        };
        let mut events = vec![
            json!({"type": "response.output_item.added", "output_index": index, "item": begun}),
        ];
        let empty = json!({"type": "output_text", "text": "", "annotations": []});
        events.extend(part_event("added", empty));
        let deltas = TokenPieces(&content.text);
        events.extend(
            deltas.map(|piece| at_place(format!("response.{kind}.delta"), "delta", piece.into())),
        );
        let text = content.text.as_str().into();
        events.push(at_place(format!("response.{kind}.done"), member, text));
        events.extend(part_event("done", item["content"][0].clone()));
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
        events
    }

    fn write_reasoning(&self) -> Option<Value> {
        let thought = self.thought.as_ref()?;
        let id = format!("rs_{:016x}", self.id);
        Some(match thought.is_plain {
            true => json!({"type": "reasoning", "id": id, "summary": [],
                "content": [{"type": "reasoning_text", "text": thought.text}]}),
            false => json!({"type": "reasoning", "id": id, "summary": [],
                "encrypted_content": thought.signature}),
        })
    }

    /// The item behind the reasoning; none where the answer has no text.
    fn to_item(&self) -> Option<Value> {
        let content = &self.reply.content;
        let status = match self.reply.finish {
            "length" => "incomplete",
            _ => "completed",
        };
        let id = self.id;
        let call_id = format!("call_{:016x}", self.prompt_hash);
        match &content.tool {
            Some(name) => Some(
                json!({"type": "function_call", "id": format!("fc_{id:016x}"),
                "call_id": call_id, "name": name, "arguments": content.text, "status": status}),
            ),
            None => (!content.text.is_empty()).then(|| {
                let part = json!({"type": "output_text", "text": content.text, "annotations": []});
                json!({"type": "message", "id": format!("msg_{id:016x}"), "role": "assistant",
                    "status": status, "content": [part]})
            }),
        }
    }

    /// The whole answer.
    pub(super) fn to_response(&self) -> Value {
        let (status, details) = match self.reply.finish {
            "length" => ("incomplete", json!({"reason": "max_output_tokens"})),
            _ => ("completed", Value::Null),
        };
        let (prompt, output) = (self.prompt_tokens, self.reply.tokens);
        let written = prompt.saturating_sub(self.cached_tokens);
        let id = format!("resp_{:016x}", self.id);
        let reasoning = self.thought.as_ref().map_or(0, |thought| thought.tokens);
        let output_items: Vec<Value> = self
            .write_reasoning()
            .into_iter()
            .chain(self.to_item())
            .collect();
        let mut response = json!({"id": id, "object": "response", "created_at": CREATED, "status": status,
            "model": self.model, "output": output_items,
            "error": null, "incomplete_details": details, "instructions": null, "metadata": {},
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
            "usage": {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output,
                "input_tokens_details": {"cached_tokens": self.cached_tokens, "cache_write_tokens": written},
                "output_tokens_details": {"reasoning_tokens": reasoning}}});
        if let Some(told) = &self.transformations {
            response["input_transformations"] = told.clone().into();
        }
        response
    }
}
