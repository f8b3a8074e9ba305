//! An agent that speaks Messages: it keeps its conversation, runs the tools that the model calls, and echoes every
//! answer. It fails on a call that is not its own, and on a stream that breaks a rule.

use http::Method;
use serde_json::{Value, json};

use super::{
    agent::{AgentGeneration, words},
    client::{ClientAnswer, TestClient, full_body},
    model::PROXY_TOOLS,
};

pub(crate) struct MessagesAgent {
    pub(crate) client: TestClient,
    /// Fields of the request, `messages` among them.
    pub(crate) fields: Value,
    pub(crate) headers: http::HeaderMap,
    /// Tokens of a result, about.
    pub(crate) result: usize,
    /// The query of its path.
    pub(crate) query: &'static str,
    results: usize,
}

impl MessagesAgent {
    /// With a tool, a system prompt with a marker, and a first question.
    pub(crate) fn new(client: impl Into<TestClient>) -> Self {
        let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        let system = json!([{"type": "text", "text": "You mend ships.",
            "cache_control": {"type": "ephemeral"}}]);
        let mut agent = Self {
            client: client.into(),
            fields: json!({"model": "m", "max_tokens": 1_000, "system": system,
                "tools": [{"name": "read_file", "description": "Reads", "input_schema": schema}],
                "messages": [{"role": "user", "content": "Find every leak and mend it."}]}),
            headers: http::HeaderMap::new(),
            result: 300,
            query: "",
            results: 0,
        };
        for (name, value) in [
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "context-management-2025-06-27"),
        ] {
            agent = agent.with(name, value);
        }
        agent
    }

    pub(crate) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields[name] = value.into();
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn push(&mut self, role: &str, content: impl Into<Value>) {
        let entries = self.fields["messages"].as_array_mut().unwrap();
        entries.push(json!({"role": role, "content": content.into()}));
    }

    pub(crate) async fn send(&self) -> ClientAnswer {
        let path = format!("/v1/messages{}", self.query);
        let mut request = self.client.request(Method::POST, &path);
        request = request.header("content-type", "application/json");
        if self.fields["stream"] == true {
            request = request.header("x-plimsoll-stream-health", "comment");
        }
        let mut request = request
            .body(full_body(serde_json::to_vec(&self.fields).unwrap()))
            .unwrap();
        request.headers_mut().extend(self.headers.clone());
        self.client.send(request).await
    }

    /// Sends the conversation and reads the answer; the conversation is unchanged.
    pub(crate) async fn ask(&self) -> AgentGeneration {
        let answer = self.send().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.whole);
        for name in PROXY_TOOLS {
            assert!(!answer.text().contains(name), "{}", answer.text());
        }
        let message = if self.fields["stream"] == true {
            read_stream(answer.text())
        } else {
            answer.json()
        };
        let calls = message["content"].as_array().unwrap().iter();
        let calls = calls.filter(|block| block["type"] == "tool_use").count();
        let finish = message["stop_reason"].as_str().unwrap().to_owned();
        assert_eq!(finish == "tool_use", calls > 0, "{message}");
        AgentGeneration {
            usage: message["usage"].clone(),
            finish,
            message,
            answer,
        }
    }

    /// One generation: asks, keeps the answer, then runs the tools or asks the next question.
    pub(crate) async fn step(&mut self) -> AgentGeneration {
        let generation = self.ask().await;
        let content = &generation.message["content"];
        self.push("assistant", content.clone());
        let calls = content.as_array().unwrap().iter();
        let calls = calls.filter(|block| block["type"] == "tool_use");
        let results: Vec<Value> = calls
            .map(|call| {
                self.results += 1;
                json!({"type": "tool_result", "tool_use_id": call["id"],
                    "content": words(self.result, self.results)})
            })
            .collect();
        if results.is_empty() {
            self.push("user", format!("Well done. Now part {}.", self.results))
        } else {
            self.push("user", results)
        }
        generation
    }

    pub(crate) async fn steps(&mut self, count: usize) -> Vec<AgentGeneration> {
        let mut generations = Vec::new();
        for _ in 0..count {
            generations.push(self.step().await);
        }
        generations
    }
}

/// Assembles a stream as the SDKs do, and checks what holds of every stream: one start, blocks one after the other
/// without gaps in their indices, one stop reason, `message_stop` at the end.
fn read_stream(text: &str) -> Value {
    let mut message = Value::Null;
    let mut open: Option<Value> = None;
    let mut inputs = String::new();
    let mut ended = false;
    for event in text.split_terminator("\n\n") {
        let Some(event) = event.strip_prefix("event: ") else {
            assert!(event.starts_with(": "), "{event}");
            assert!(!ended, "a comment behind the end: {text}");
            continue;
        };
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        assert!(!ended, "more behind the end: {text}");
        let count = message["content"].as_array().map_or(0, Vec::len);
        match name {
            "message_start" => {
                assert!(message.is_null(), "two starts: {text}");
                message = data["message"].clone();
            }
            "content_block_start" => {
                assert!(open.is_none(), "{text}");
                assert_eq!(data["index"], count, "{text}");
                open = Some(data["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(data["index"], count, "{text}");
                let block = open.as_mut().unwrap();
                for key in ["text", "thinking", "signature"] {
                    if let Some(piece) = data["delta"][key].as_str() {
                        let before = block[key].as_str().unwrap_or("");
                        block[key] = format!("{before}{piece}").into();
                    }
                }
                inputs.push_str(data["delta"]["partial_json"].as_str().unwrap_or(""));
            }
            "content_block_stop" => {
                assert_eq!(data["index"], count, "{text}");
                let mut block = open.take().unwrap();
                if block["type"] == "tool_use" {
                    block["input"] = serde_json::from_str(&inputs).unwrap();
                    inputs.clear();
                }
                message["content"].as_array_mut().unwrap().push(block);
            }
            "message_delta" => {
                assert!(message["stop_reason"].is_null(), "two stop reasons: {text}");
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                for (key, value) in data["usage"].as_object().unwrap() {
                    message["usage"][key] = value.clone();
                }
            }
            "message_stop" => ended = true,
            "ping" => {}
            other => panic!("{other}: {text}"),
        }
    }
    assert!(ended && open.is_none(), "{text}");
    message
}
