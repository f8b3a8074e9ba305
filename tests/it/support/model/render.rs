//! An answer as OpenAI writes it, whole or in events.

use serde_json::{Value, json};

use super::{ModelCall, dialect::ANSWER_TOKENS};
use crate::support::provider::{DONE, ProviderStep, answer, send_bytes, stream_head};

pub(crate) struct AnswerWriter<'a> {
    pub(crate) body: &'a Value,
    pub(crate) tokens: u64,
    /// Minimum bytes of a fragment; a character is never split.
    pub(crate) fragment: usize,
    pub(crate) byte_by_byte: bool,
    /// Whether usage is reported.
    pub(crate) reports_usage: bool,
}

impl AnswerWriter<'_> {
    pub(crate) fn provider_steps(&self, text: &str, calls: &[ModelCall]) -> Vec<ProviderStep> {
        if self.body["stream"] != true {
            return vec![answer(
                "200 OK",
                "",
                self.write_whole(text, calls).to_string(),
            )];
        }
        let events = self.write_events(text, calls);
        let events = if self.byte_by_byte {
            ProviderStep::Drip(events.into_bytes())
        } else {
            send_bytes(events)
        };
        vec![stream_head(), events, send_bytes(DONE), ProviderStep::Close]
    }

    fn is_legacy(&self) -> bool {
        self.body.get("tools").is_none() && self.body.get("functions").is_some()
    }

    fn finish(&self, calls: &[ModelCall]) -> &'static str {
        match (calls.is_empty(), self.is_legacy()) {
            (true, _) => "stop",
            (false, true) => "function_call",
            (false, false) => "tool_calls",
        }
    }

    fn usage(&self) -> Value {
        if !self.reports_usage {
            return Value::Null;
        }
        json!({"prompt_tokens": self.tokens, "completion_tokens": ANSWER_TOKENS,
            "total_tokens": self.tokens + ANSWER_TOKENS})
    }

    pub(crate) fn write_whole(&self, text: &str, calls: &[ModelCall]) -> Value {
        let content = if text.is_empty() && !calls.is_empty() {
            Value::Null
        } else {
            text.into()
        };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        match calls.first() {
            None => {}
            Some(call) if self.is_legacy() => {
                message["function_call"] = json!({"name": call.name, "arguments": call.arguments});
            }
            Some(_) => message["tool_calls"] = calls.iter().map(call_value).collect(),
        }
        let finish = self.finish(calls);
        let choices = (0..self.body["n"].as_u64().unwrap_or(1)).map(|index| {
            json!({"index": index, "message": message, "logprobs": null, "finish_reason": finish})
        });
        json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": choices.collect::<Vec<_>>(), "usage": self.usage()})
    }

    pub(crate) fn write_events(&self, text: &str, calls: &[ModelCall]) -> String {
        let mut events = String::new();
        for index in 0..self.body["n"].as_u64().unwrap_or(1) {
            for delta in self.write_deltas(text, calls) {
                let choice = json!({"index": index, "delta": delta, "finish_reason": null});
                self.push_event(&mut events, json!([choice]), None);
            }
            let finish = self.finish(calls);
            let choice = json!({"index": index, "delta": {}, "finish_reason": finish});
            self.push_event(&mut events, json!([choice]), None);
        }
        if self.reports_usage && self.body["stream_options"]["include_usage"] == true {
            self.push_event(&mut events, json!([]), Some(self.usage()));
        }
        events
    }

    fn push_event(&self, events: &mut String, choices: Value, usage: Option<Value>) {
        let mut chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk",
            "created": 1, "model": "m", "choices": choices});
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        events.push_str(&format!("data: {chunk}\n\n"));
    }

    fn write_deltas(&self, text: &str, calls: &[ModelCall]) -> Vec<Value> {
        let mut deltas = vec![json!({"role": "assistant", "content": ""})];
        let said = split_pieces(text, self.fragment);
        deltas.extend(said.map(|piece| json!({ "content": piece })));
        for (index, call) in calls.iter().enumerate() {
            let arguments = split_pieces(&call.arguments, self.fragment);
            if self.is_legacy() {
                deltas.push(json!({"function_call": {"name": call.name, "arguments": ""}}));
                let more = arguments.map(|it| json!({"function_call": {"arguments": it}}));
                deltas.extend(more);
                continue;
            }
            let mut first = call_value(call);
            first["index"] = index.into();
            first["function"]["arguments"] = "".into();
            deltas.push(json!({"tool_calls": [first]}));
            deltas.extend(arguments.map(|piece| {
                let function = json!({ "arguments": piece });
                json!({"tool_calls": [{"index": index, "function": function}]})
            }));
        }
        deltas
    }
}

fn call_value(call: &ModelCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    let mut value = json!({"type": "function", "function": function});
    if let Some(id) = &call.id {
        value["id"] = id.as_str().into();
    }
    value
}

pub(super) fn split_pieces(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = size.max(1).min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}
