//! Answers in the form of Anthropic's Messages: one JSON body, or a stream of events.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{
    completion::{Completion, SimulatedBody, event_stream_response, json_response},
    token_count::TokenPieces,
};

/// An answer, and what only Messages tells.
pub(super) struct SimulatedMessage {
    pub(super) completion: Completion,
    /// The tokens of the prompt that were written to the cache.
    pub(super) cache_written: u32,
    /// The window ends the answer before its cap does.
    pub(super) window_is_limit: bool,
}

impl SimulatedMessage {
    /// The whole answer in one body.
    pub(super) fn write_whole(&self) -> Response<SimulatedBody> {
        let content = &self.completion.reply.content;
        let mut message = self.write_head(self.completion.reply.tokens);
        if let Some(mut block) = self.write_block() {
            match content.tool {
                // What a limit has cut is no JSON.
                Some(_) => {
                    let input = serde_json::from_str(&content.text);
                    block["input"] = input.unwrap_or_else(|_| json!({}));
                }
                None => block["text"] = content.text.as_str().into(),
            }
            message["content"] = json!([block]);
        }
        message["stop_reason"] = self.stop_reason().into();
        json_response(StatusCode::OK, &message)
    }

    /// The answer as server-sent events, one in a frame.
    pub(super) fn write_events(&self) -> Response<SimulatedBody> {
        let mut events = vec![json!({"type": "message_start", "message": self.write_head(1)})];
        if let Some(block) = self.write_block() {
            let start = json!({"type": "content_block_start", "index": 0, "content_block": block});
            events.extend([start, json!({"type": "ping"})]);
            let content = &self.completion.reply.content;
            events.extend(TokenPieces(&content.text).map(|piece| {
                let delta = match content.tool {
                    Some(_) => json!({"type": "input_json_delta", "partial_json": piece}),
                    None => json!({"type": "text_delta", "text": piece}),
                };
                json!({"type": "content_block_delta", "index": 0, "delta": delta})
            }));
            events.push(json!({"type": "content_block_stop", "index": 0}));
        }
        events.push(json!({"type": "message_delta",
            "delta": {"stop_reason": self.stop_reason(), "stop_sequence": null},
            "usage": self.write_usage(self.completion.reply.tokens)}));
        events.push(json!({"type": "message_stop"}));
        event_stream_response(events.into_iter().map(|event| {
            let name = event["type"].as_str().unwrap_or_default();
            format!("event: {name}\ndata: {event}\n\n")
        }))
    }

    /// The only block, still empty; none where the answer has no text.
    fn write_block(&self) -> Option<Value> {
        let content = &self.completion.reply.content;
        match &content.tool {
            Some(name) => Some(json!({"type": "tool_use", "id": self.completion.call_id,
                "name": name, "input": {}})),
            None => (!content.text.is_empty()).then(|| json!({"type": "text", "text": ""})),
        }
    }

    fn write_head(&self, output_tokens: u32) -> Value {
        json!({"id": self.completion.id, "type": "message", "role": "assistant",
            "model": self.completion.model, "content": [], "stop_reason": null,
            "stop_sequence": null, "usage": self.write_usage(output_tokens)})
    }

    fn stop_reason(&self) -> &'static str {
        match self.completion.reply.finish {
            "length" if self.window_is_limit => "model_context_window_exceeded",
            "length" => "max_tokens",
            "tool_calls" => "tool_use",
            _ => "end_turn",
        }
    }

    /// `input_tokens` are only those that the cache does not hold.
    fn write_usage(&self, output_tokens: u32) -> Value {
        let (read, written) = (self.completion.cached_tokens, self.cache_written);
        json!({"input_tokens": self.completion.prompt_tokens.saturating_sub(read + written),
            "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
            "output_tokens": output_tokens})
    }
}
