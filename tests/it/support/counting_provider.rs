//! A provider that counts what it reads by rules of its own: without tools, as chat templates do that ignore them, or with
//! encrypted reasoning at many tokens. It speaks chat completions, Messages and Responses.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{
    count::TokenCounter,
    model::{refuse, refuse_as_openai},
    provider::{ProviderStep, ReceivedRequest, ScriptedProvider, answer},
};

/// How prompts are counted.
#[derive(Clone, Copy)]
pub(crate) struct CountRule {
    /// Tokens; longer prompts are refused.
    pub(crate) window: u32,
    /// Tools are counted as their JSON.
    pub(crate) tools: bool,
    /// Tokens of 100 bytes of what is encrypted.
    pub(crate) sealed: usize,
    /// Tokens that usage names as cached; 0 for an answer that names none.
    pub(crate) cached: u32,
}

pub(crate) struct CountingProvider {
    pub(crate) provider: ScriptedProvider,
    /// Tokens of each request, refused ones too.
    counts: Arc<Mutex<Vec<u32>>>,
}

impl CountingProvider {
    pub(crate) async fn start(rule: CountRule) -> Self {
        let counts = Arc::new(Mutex::new(Vec::new()));
        let (words, kept) = (TokenCounter::o200k(), Arc::clone(&counts));
        let provider = ScriptedProvider::start_answering(move |seen: &ReceivedRequest| {
            // Local engines are asked for the models that they have loaded.
            if !seen.line.starts_with("POST") {
                return vec![answer("404 Not Found", "", String::new())];
            }
            let body: Value = serde_json::from_slice(&seen.body).unwrap();
            let tokens = rule.count(&body, &words);
            kept.lock().unwrap().push(tokens);
            if tokens > rule.window {
                rule.refuse(&seen.line, tokens)
            } else {
                rule.answer(&seen.line, tokens)
            }
        });
        Self {
            provider: provider.await,
            counts,
        }
    }

    /// Tokens of each request so far.
    pub(crate) fn counts(&self) -> Vec<u32> {
        self.counts.lock().unwrap().clone()
    }
}

impl CountRule {
    pub(crate) fn count(&self, body: &Value, words: &TokenCounter) -> u32 {
        let tools = if self.tools {
            words.text(&body["tools"].to_string())
        } else {
            0
        };
        let mut tokens = tools;
        for key in ["system", "instructions", "messages", "input"] {
            tokens += self.count_value(&body[key], "text", words);
        }
        u32::try_from(tokens).unwrap()
    }

    fn count_value(&self, value: &Value, key: &str, words: &TokenCounter) -> u64 {
        match value {
            Value::String(text) => match key {
                "data" | "signature" | "encrypted_content" => {
                    (text.len() * self.sealed / 100) as u64
                }
                "text" | "content" | "thinking" | "output" | "arguments" => words.text(text),
                _ => 0,
            },
            Value::Array(items) => {
                let items = items.iter().map(|item| self.count_value(item, key, words));
                items.sum()
            }
            Value::Object(members) => {
                let frame = if members.contains_key("role") { 4 } else { 0 };
                let members = members.iter();
                let members = members.map(|(key, value)| self.count_value(value, key, words));
                frame + members.sum::<u64>()
            }
            _ => 0,
        }
    }

    fn refuse(&self, line: &str, tokens: u32) -> Vec<ProviderStep> {
        if !line.contains("/messages") {
            return refuse_as_openai(self.window, tokens.into());
        }
        let window = self.window;
        let message = format!("prompt is too long: {tokens} tokens > {window} maximum");
        refuse(400, "invalid_request_error", &message)
    }

    fn answer(&self, line: &str, tokens: u32) -> Vec<ProviderStep> {
        let said = "Well.";
        let details = match self.cached {
            0 => json!({}),
            cached => json!({"cached_tokens": cached}),
        };
        let body = if line.contains("/messages") {
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": said}], "stop_reason": "end_turn",
                "stop_sequence": null, "usage": {"input_tokens": tokens - self.cached,
                    "cache_read_input_tokens": self.cached, "output_tokens": 2}})
        } else if line.contains("/responses") {
            json!({"id": "resp_1", "object": "response", "status": "completed", "error": null,
                "incomplete_details": null, "model": "m",
                "output": [{"id": "msg_1", "type": "message", "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": said, "annotations": []}]}],
                "usage": {"input_tokens": tokens, "input_tokens_details": details,
                    "output_tokens": 2, "total_tokens": tokens + 2}})
        } else {
            let message = json!({"role": "assistant", "content": said});
            json!({"object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": tokens, "completion_tokens": 2,
                    "prompt_tokens_details": details}})
        };
        vec![answer("200 OK", "", body.to_string())]
    }
}
