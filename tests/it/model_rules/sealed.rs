//! Reasoning that only the provider reads that made it, in Responses and Messages: a fallback gets none of it, and the first
//! provider none of the fallback's.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::{STEPS, WINDOW, programs, start_proxy};
use crate::support::{
    MessagesAgent, ProviderStep, ReceivedRequest, ResponsesAgent, ScriptedProvider, answer,
};

/// A provider that refuses reasoning of others, and may fail at one of so many requests.
#[derive(Clone)]
pub(super) struct Sealer {
    name: &'static str,
    fails_each: Option<usize>,
    /// Its model writes code that calls the client's tools.
    runs_code: bool,
    pub(super) requests: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Sealer {
    pub(super) fn new(name: &'static str, fails_each: Option<usize>) -> Self {
        Self {
            name,
            fails_each,
            runs_code: false,
            requests: Arc::default(),
            refused: Arc::default(),
        }
    }

    pub(super) fn with_code(self) -> Self {
        Self {
            runs_code: true,
            ..self
        }
    }

    pub(super) async fn start(&self) -> ScriptedProvider {
        let host = self.clone();
        ScriptedProvider::start_forgetful(move |request| host.reply(request)).await
    }

    fn reply(&self, request: &ReceivedRequest) -> Vec<ProviderStep> {
        let nth = self.requests.fetch_add(1, Ordering::Relaxed);
        if self.fails_each.is_some_and(|each| nth % each == each - 1) {
            return vec![answer("503 Service Unavailable", "", "{}")];
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let is_responses = body["input"].is_array();
        let refusal = if is_responses {
            self.judge_input(body["input"].as_array().unwrap())
        } else {
            self.judge_messages(body["messages"].as_array().unwrap())
        };
        let refusal = refusal.or_else(|| programs::judge(&body).filter(|_| self.runs_code));
        let tokens = (request.body.len() - programs::measure_results(&body)) / 4;
        let refusal = refusal.or_else(|| {
            let message = if is_responses {
                format!("This model's maximum context length is {WINDOW} tokens.")
            } else {
                format!("prompt is too long: {tokens} tokens > {WINDOW} maximum")
            };
            (tokens > WINDOW as usize).then_some(message)
        });
        if let Some(message) = refusal {
            let is_length = message.contains("maximum");
            self.refused
                .fetch_add(usize::from(!is_length), Ordering::Relaxed);
            let error = json!({"type": "invalid_request_error", "message": message, "code": null});
            let error = json!({"type": "error", "error": error});
            return vec![answer("400 Bad Request", "", error.to_string())];
        }
        let answered = if is_responses {
            self.write_response(&body, nth, tokens)
        } else {
            self.write_message(&body, nth, tokens)
        };
        vec![answer("200 OK", "", answered.to_string())]
    }

    /// Encrypted content of others, and items that were made behind reasoning that is not there.
    fn judge_input(&self, entries: &[Value]) -> Option<String> {
        let mut reasoning: Vec<&str> = Vec::new();
        for entry in entries {
            let id = entry["id"].as_str().unwrap_or_default();
            if entry["type"] == "reasoning" {
                let sealed = entry["encrypted_content"].as_str().unwrap_or_default();
                if !sealed.starts_with(self.name) {
                    return Some(format!(
                        "The encrypted content for item {id} could not be verified."
                    ));
                }
                reasoning.push(id);
            } else if let Some((_, behind)) = id.split_once("_behind_")
                && !reasoning.contains(&behind)
            {
                return Some(format!(
                    "Item '{id}' of type 'function_call' was provided without its required 'reasoning' item: '{behind}'."
                ));
            }
        }
        None
    }

    fn judge_messages(&self, entries: &[Value]) -> Option<String> {
        let blocks = entries
            .iter()
            .filter_map(|entry| entry["content"].as_array());
        let mut thinking = blocks.flatten().filter(|block| block["type"] == "thinking");
        let foreign = thinking.any(|block| {
            let signature = block["signature"].as_str().unwrap_or_default();
            !signature.starts_with(self.name)
        });
        foreign.then(|| "messages.1.content.0: Invalid `signature` in `thinking` block".to_owned())
    }

    fn write_response(&self, body: &Value, nth: usize, tokens: usize) -> Value {
        let rs = format!("rs_{}_{nth}", self.name);
        let sealed = format!("{}{}", self.name, "B".repeat(1_200));
        let arguments = json!({"path": format!("src/{nth}.rs")}).to_string();
        let behind = match nth % 13 {
            12 => {
                json!({"type": "message", "role": "assistant", "id": format!("msg_{nth}_behind_{rs}"),
                "status": "completed", "content": [{"type": "output_text", "text": "Done.", "annotations": []}]})
            }
            _ => {
                json!({"type": "function_call", "id": format!("fc_{nth}_behind_{rs}"), "name": "read_file",
                "call_id": format!("c_{}_{nth}", self.name), "arguments": arguments, "status": "completed"})
            }
        };
        json!({"id": format!("resp_{nth}"), "object": "response", "status": "completed", "model": body["model"],
            "output": [{"type": "reasoning", "id": rs, "summary": [], "encrypted_content": sealed}, behind],
            "usage": {"input_tokens": tokens, "output_tokens": 200, "total_tokens": tokens + 200}})
    }

    fn write_message(&self, body: &Value, nth: usize, tokens: usize) -> Value {
        let signature = format!("{}{nth}", self.name);
        let thinking = json!({"type": "thinking", "thinking": "The keel first. ".repeat(40), "signature": signature});
        let content = programs::write(body, self.name, nth, &thinking);
        if let Some(content) = content.filter(|_| self.runs_code) {
            return programs::write_message(body, content, tokens);
        }
        let (block, reason) = match nth % 13 {
            12 => (json!({"type": "text", "text": "Done."}), "end_turn"),
            _ => (
                json!({"type": "tool_use", "id": format!("toolu_{}_{nth}", self.name), "name": "read_file",
                    "input": {"path": format!("src/{nth}.rs")}}),
                "tool_use",
            ),
        };
        json!({"id": format!("msg_{nth}"), "type": "message", "role": "assistant", "model": body["model"],
            "content": [thinking, block], "stop_reason": reason, "stop_sequence": null,
            "usage": {"input_tokens": tokens, "output_tokens": 200}})
    }

    pub(super) fn count_refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_fallback_of_responses_gets_no_reasoning_of_another_provider() {
    let (home, away) = (Sealer::new("home", Some(70)), Sealer::new("away", None));
    let (up, other) = (home.start().await, away.start().await);
    let proxy = start_proxy(
        &up,
        ("openai", "gpt-6.2-sol"),
        Some((&other, "gpt-6.1-sol")),
    )
    .await;
    let mut agent = ResponsesAgent::new(&proxy).set("model", "gpt-6.2-sol");
    agent.keeps_ids = true;
    agent.steps(STEPS).await;
    assert_eq!((home.count_refused(), away.count_refused()), (0, 0));
    assert!(away.requests.load(Ordering::Relaxed) >= 4);
}

#[tokio::test]
async fn a_fallback_of_messages_gets_no_thinking_of_another_provider() {
    for (model, second) in [
        ("claude-opus-5-5", "claude-sonnet-5-5"),
        ("claude-opus-4-8", "glm-5.3"),
    ] {
        let (home, away) = (Sealer::new("home", Some(70)), Sealer::new("away", None));
        let (up, other) = (home.start().await, away.start().await);
        let proxy = start_proxy(&up, ("anthropic", model), Some((&other, second))).await;
        let mut agent = MessagesAgent::new(&proxy).set("model", model);
        agent.steps(STEPS).await;
        assert_eq!(
            (home.count_refused(), away.count_refused()),
            (0, 0),
            "{model}"
        );
        assert!(away.requests.load(Ordering::Relaxed) >= 4, "{model}");
    }
}
