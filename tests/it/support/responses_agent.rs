//! An agent that speaks OpenAI's Responses: it keeps its conversation, runs the tools that the model calls, and echoes
//! every item. It fails on a call that is not its own, and on a stream that breaks a rule.

use http::Method;
use serde_json::{Value, json};

use super::{
    agent::{AgentGeneration, words},
    client::{ClientAnswer, TestClient, full_body},
    model::PROXY_TOOLS,
};

pub(crate) struct ResponsesAgent {
    pub(crate) client: TestClient,
    /// Fields of the request, `input` among them.
    pub(crate) fields: Value,
    pub(crate) headers: http::HeaderMap,
    /// Tokens of an output, about.
    pub(crate) result: usize,
    /// Whether it sends items with their ids, as SDKs do; Codex leaves them out.
    pub(crate) keeps_ids: bool,
    results: usize,
}

/// A tool of the client.
pub(crate) fn responses_tool(name: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    json!({"type": "function", "name": name, "description": "Reads", "parameters": schema,
        "strict": false})
}

/// A message of the user.
pub(crate) fn user_entry(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

impl ResponsesAgent {
    /// With a tool, instructions and a first question, as Codex asks.
    pub(crate) fn new(client: impl Into<TestClient>) -> Self {
        Self {
            client: client.into(),
            fields: json!({"model": "m", "instructions": "You mend ships.", "store": false,
                "include": ["reasoning.encrypted_content"], "tool_choice": "auto",
                "tools": [responses_tool("read_file")],
                "input": [user_entry("Find every leak and mend it.")]}),
            headers: http::HeaderMap::new(),
            result: 300,
            keeps_ids: false,
            results: 0,
        }
    }

    pub(crate) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields[name] = value.into();
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn push(&mut self, entries: impl IntoIterator<Item = Value>) {
        let input = self.fields["input"].as_array_mut().unwrap();
        input.extend(entries);
    }

    pub(crate) async fn send(&self) -> ClientAnswer {
        let mut request = self.client.request(Method::POST, "/v1/responses");
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
        AgentGeneration {
            usage: message["usage"].clone(),
            finish: message["status"].as_str().unwrap().to_owned(),
            message,
            answer,
        }
    }

    /// One generation: asks, keeps the answer, then runs the tools or asks the next question.
    pub(crate) async fn step(&mut self) -> AgentGeneration {
        let generation = self.ask().await;
        let mut items = generation.message["output"].as_array().unwrap().clone();
        let is_call = |item: &&Value| item["call_id"].is_string();
        let mut outputs: Vec<Value> = items
            .iter()
            .filter(is_call)
            .map(|call| {
                self.results += 1;
                json!({"type": format!("{}_output", call["type"].as_str().unwrap()),
                "call_id": call["call_id"], "output": words(self.result, self.results)})
            })
            .collect();
        if outputs.is_empty() {
            outputs.push(user_entry(&format!(
                "Well done. Now part {}.",
                self.results
            )));
        }
        for item in &mut items {
            match self.keeps_ids {
                // As Codex writes it.
                true if item["type"] == "reasoning" => item["content"] = Value::Null,
                true => {}
                false => drop(item.as_object_mut().unwrap().remove("id")),
            }
        }
        self.push(items.into_iter().chain(outputs));
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

/// Assembles a stream as the SDKs do, and checks what holds of every stream: one beginning, numbers of events and
/// indices of items without gaps, texts and arguments as their pieces, and at the end the same items again.
fn read_stream(text: &str) -> Value {
    let (mut items, mut pieces) = (Vec::<Value>::new(), String::new());
    let (mut is_open, mut response) = (false, Value::Null);
    let mut count = 0;
    for event in text.split_terminator("\n\n") {
        let Some(event) = event.strip_prefix("event: ") else {
            assert!(event.starts_with(": "), "{event}");
            assert!(response.is_null(), "a comment behind the end: {text}");
            continue;
        };
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        assert_eq!(data["sequence_number"], count, "{text}");
        assert!(response.is_null(), "more behind the end: {text}");
        assert_eq!(name == "response.created", count == 0, "{text}");
        count += 1;
        if data.get("output_index").is_some() {
            let open = items.len() - usize::from(is_open);
            assert_eq!(data["output_index"], open, "{text}");
        }
        match name.rsplit_once('.').unwrap() {
            ("response.output_item", "added") => {
                assert!(!is_open, "{text}");
                is_open = true;
                items.push(data["item"].clone());
            }
            ("response.output_item", _) => {
                is_open = false;
                *items.last_mut().unwrap() = data["item"].clone();
            }
            (_, "delta") => pieces.push_str(data["delta"].as_str().unwrap()),
            (kind, "done") if !kind.ends_with("_part") => {
                let mut whole = ["text", "arguments", "input"].into_iter();
                let whole = whole.find_map(|key| data[key].as_str());
                assert_eq!(whole, Some(&*pieces), "{text}");
                pieces.clear();
            }
            ("response", "completed" | "incomplete" | "failed") => {
                response = data["response"].clone();
            }
            _ => assert!(
                is_open || name == "response.in_progress" || count == 1,
                "{text}"
            ),
        }
    }
    assert!(!is_open && pieces.is_empty(), "{text}");
    assert_eq!(response["output"], Value::from(items), "{text}");
    response
}
