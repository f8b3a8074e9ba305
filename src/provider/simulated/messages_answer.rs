//! Answers in the form of Anthropic's Messages.

use serde_json::{Value, json};

use super::{completion::Completion, token_count::TokenPieces};

impl Completion {
    /// The whole answer.
    pub(super) fn to_message(&self) -> Value {
        let content = &self.reply.content;
        let mut message = self.write_message_head(self.reply.tokens);
        let mut blocks: Vec<Value> = self.write_thinking().into_iter().collect();
        if let Some(mut block) = self.write_block() {
            match content.tool {
                // What a limit has cut is no JSON.
                Some(_) => {
                    let input = serde_json::from_str(&content.text);
                    block["input"] = input.unwrap_or_else(|_| json!({}));
                }
                None => block["text"] = content.text.as_str().into(),
            }
            blocks.push(block);
        }
        message["content"] = blocks.into();
        message["stop_reason"] = self.stop_reason().into();
        message
    }

    /// The events of a stream.
    pub(super) fn to_message_events(&self) -> Vec<Value> {
        let head = self.write_message_head(1);
        let mut events = vec![json!({"type": "message_start", "message": head})];
        if let Some(thought) = &self.thought {
            let block = json!({"type": "thinking", "thinking": "", "signature": ""});
            let delta =
                |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
            events.push(json!({"type": "content_block_start", "index": 0, "content_block": block}));
            let pieces = TokenPieces(thought.text);
            events.extend(
                pieces.map(|piece| delta(json!({"type": "thinking_delta", "thinking": piece}))),
            );
            events.push(delta(
                json!({"type": "signature_delta", "signature": thought.signature}),
            ));
            events.push(json!({"type": "content_block_stop", "index": 0}));
        }
        if let Some(block) = self.write_block() {
            let index = usize::from(self.thought.is_some());
            let start =
                json!({"type": "content_block_start", "index": index, "content_block": block});
            events.extend([start, json!({"type": "ping"})]);
            let content = &self.reply.content;
            events.extend(TokenPieces(&content.text).map(|piece| {
                let delta = match content.tool {
                    Some(_) => json!({"type": "input_json_delta", "partial_json": piece}),
                    None => json!({"type": "text_delta", "text": piece}),
                };
                json!({"type": "content_block_delta", "index": index, "delta": delta})
            }));
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        events.push(json!({"type": "message_delta",
            "delta": {"stop_reason": self.stop_reason(), "stop_sequence": null},
            "usage": self.write_message_usage(self.reply.tokens)}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    fn write_thinking(&self) -> Option<Value> {
        let thought = self.thought.as_ref()?;
        Some(json!({"type": "thinking", "thinking": thought.text, "signature": thought.signature}))
    }

    /// The block behind the thinking, still empty; none where the answer has no text.
    fn write_block(&self) -> Option<Value> {
        let content = &self.reply.content;
        match &content.tool {
            Some(name) => Some(json!({"type": "tool_use", "name": name, "input": {},
                "id": format!("toolu_{:016x}", self.prompt_hash)})),
            None => (!content.text.is_empty()).then(|| json!({"type": "text", "text": ""})),
        }
    }

    fn write_message_head(&self, output_tokens: u32) -> Value {
        let mut head = json!({"id": format!("msg_{:016x}", self.id), "type": "message", "role": "assistant",
            "model": self.model, "content": [], "stop_reason": null,
            "stop_sequence": null, "usage": self.write_message_usage(output_tokens)});
        if let Some(told) = &self.transformations {
            head["input_transformations"] = told.clone().into();
        }
        head
    }

    fn stop_reason(&self) -> &'static str {
        match self.reply.finish {
            "length" if self.window_is_limit => "model_context_window_exceeded",
            "length" => "max_tokens",
            "tool_calls" => "tool_use",
            _ => "end_turn",
        }
    }

    /// `input_tokens` are only those that the cache does not hold.
    fn write_message_usage(&self, output_tokens: u32) -> Value {
        let (read, written) = (self.cached_tokens, self.cache_written);
        json!({"input_tokens": self.prompt_tokens.saturating_sub(read + written),
            "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
            "output_tokens": output_tokens})
    }
}
