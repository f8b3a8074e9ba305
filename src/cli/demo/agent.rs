//! The demo's client: an agent that calls tools and keeps its whole history, as agents do.
//!
//! It knows nothing of the proxy but the address: what it reads of the guard, it reads from
//! response headers, as any client could.

use http::HeaderMap;
use serde_json::{Value, json};

use super::{event::Recovery, scene::Scene};

/// The agent's side of the session.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    model: String,
    messages: Vec<Value>,
    scene: Scene,
    turn: usize,
}

/// What one answer told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    pub(super) turn: usize,
    /// What the agent sent, before the guard.
    pub(super) messages: usize,
    pub(super) bytes: usize,
    /// The provider's words, where it refused the request.
    pub(super) refused: Option<String>,
    pub(super) prompt_tokens: Option<u32>,
    pub(super) cached_tokens: u32,
    /// As in the headers: a word each, and the utilisation of the window.
    pub(super) level: String,
    pub(super) actions: String,
    pub(super) hard_util: Option<f64>,
    pub(super) recovery: Recovery,
    /// What the model did: the tools it called, or `answer`.
    pub(super) did: String,
}

impl Agent {
    pub(super) fn new(model: String) -> Self {
        let mut agent = Self {
            model,
            messages: Vec::new(),
            scene: Scene::new(),
            turn: 0,
        };
        agent.begin();
        agent
    }

    /// The next request's body.
    pub(super) fn request(&self) -> Vec<u8> {
        let body = json!({"model": self.model, "messages": self.messages, "tools": Scene::tools()});
        body.to_string().into_bytes()
    }

    /// Takes an answer, does what it asks for, and says what was learnt from it.
    pub(super) fn take(&mut self, status: u16, headers: &HeaderMap, answer: &[u8]) -> Reading {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let usage = &answer["usage"];
        let tokens = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
        let actions = header("x-plimsoll-actions").unwrap_or("none");
        let mut reading = Reading {
            turn: self.turn,
            messages: self.messages.len(),
            bytes: self.request().len(),
            refused: None,
            prompt_tokens: tokens(&usage["prompt_tokens"]),
            cached_tokens: tokens(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(0),
            level: header("x-plimsoll-health").unwrap_or("unknown").to_owned(),
            actions: actions.to_owned(),
            hard_util: header("x-plimsoll-hard-util").and_then(|ratio| ratio.parse().ok()),
            recovery: Recovery::of(headers, actions),
            did: String::new(),
        };
        if status == 200 {
            reading.did = self.go_on(&answer["choices"][0]["message"]);
        } else {
            let said = answer["error"]["message"].as_str().unwrap_or("no message");
            reading.refused = Some(format!("{status}: {said}"));
            // An agent whose request is refused has lost its session: it starts over.
            self.begin();
        }
        reading
    }

    fn begin(&mut self) {
        self.messages = vec![json!({"role": "system", "content": Scene::system()})];
        self.ask();
    }

    fn ask(&mut self) {
        let task = Scene::task(self.turn);
        self.messages.push(json!({"role": "user", "content": task}));
        self.turn += 1;
    }

    fn go_on(&mut self, message: &Value) -> String {
        self.messages.push(message.clone());
        let calls = message["tool_calls"].as_array();
        let mut called = Vec::new();
        for call in calls.into_iter().flatten() {
            let name = call["function"]["name"].as_str().unwrap_or_default();
            let result = self.scene.result(name);
            self.messages
                .push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
            called.push(name);
        }
        if called.is_empty() {
            self.ask();
            return "answer".to_owned();
        }
        called.join(" + ")
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::provider::simulated;

    /// The agent straight at the provider, with nothing between.
    async fn run(model: &str, steps: usize) -> Vec<Reading> {
        let mut agent = Agent::new(model.to_owned());
        let mut readings = Vec::new();
        for _ in 0..steps {
            let request = http::Request::post("/v1/chat/completions");
            let request = request.body(Bytes::from(agent.request())).unwrap();
            let (parts, body) = simulated::answer(request).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            readings.push(agent.take(parts.status.as_u16(), &parts.headers, &body));
        }
        readings
    }

    #[tokio::test]
    async fn the_conversation_stays_valid_and_grows_in_turns() {
        let readings = run("plimsoll-1m", 150).await;
        assert!(
            readings.iter().all(|reading| reading.refused.is_none()),
            "{readings:?}"
        );
        let last = readings.last().unwrap();
        assert!(last.turn > 20 && last.turn < 80, "{last:?}");
        assert!(
            last.prompt_tokens > Some(30_000) && last.cached_tokens > 20_000,
            "{last:?}"
        );
    }

    #[tokio::test]
    async fn without_a_guard_a_small_window_ends_the_session() {
        let readings = run("plimsoll-8k", 80).await;
        let refused: Vec<&Reading> = readings
            .iter()
            .filter(|one| one.refused.is_some())
            .collect();
        assert!(!refused.is_empty());
        let said = refused[0].refused.as_deref().unwrap();
        assert!(said.starts_with("400: This model's maximum context length is 8192 tokens"));
    }
}
