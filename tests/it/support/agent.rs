//! An agent as a client: it keeps its conversation, runs the tools that the model calls, and echoes
//! every answer. It knows only the proxy's address, and fails on a call or a block that is not its
//! own.

use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{
    client::{ClientAnswer, TestClient, full_body},
    model::PROXY_TOOLS,
    proxy::RunningProxy,
};

pub(crate) struct Agent {
    /// Where it sends its next request.
    pub(crate) client: TestClient,
    pub(crate) messages: Vec<Value>,
    /// Fields of the request beside `messages`.
    pub(crate) fields: Value,
    pub(crate) headers: HeaderMap,
    /// What a tool returns, by the number of results before it.
    pub(crate) result: fn(usize) -> String,
    /// What the user says when a turn is over.
    pub(crate) user: fn(usize) -> String,
    results: usize,
    turns: usize,
}

/// An answer, and the message that the client assembles from it.
#[derive(Debug)]
pub(crate) struct AgentGeneration {
    pub(crate) answer: ClientAnswer,
    pub(crate) message: Value,
    pub(crate) finish: String,
    /// As the client receives it; `null` where it is absent.
    pub(crate) usage: Value,
}

impl AgentGeneration {
    /// The value of a `x-plimsoll-` header; of a stream, the value at its end.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        if let Some(value) = self.comment(name) {
            return Some(value);
        }
        let value = self.answer.headers.get(format!("x-plimsoll-{name}"));
        value.and_then(|value| value.to_str().ok())
    }

    fn comment(&self, name: &str) -> Option<&str> {
        let lines = std::str::from_utf8(&self.answer.body).ok()?.lines();
        // Earlier comments belong to a request that was still waiting.
        let mut comments = lines.filter_map(|line| line.strip_prefix(": plimsoll "));
        let comment = comments.rfind(|comment| comment.contains('='))?;
        let mut words = comment.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The value of a word of `x-plimsoll-actions`, as of `injected`; `None` where the word is
    /// absent.
    pub(crate) fn action(&self, name: &str) -> Option<&str> {
        let words = self.header("actions")?.split(',');
        let mut pairs = words.filter_map(|word| word.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Whether `x-plimsoll-actions` has a word that has no value, as `compacted`.
    pub(crate) fn has_action(&self, word: &str) -> bool {
        let actions = self.header("actions").unwrap_or("");
        actions.split(',').any(|it| it.trim() == word)
    }

    /// Which prompt was injected: `caution`, `critical`, or none.
    pub(crate) fn injected(&self) -> Option<&str> {
        self.action("injected")
    }

    /// Its course; 1 without the header.
    pub(crate) fn course(&self) -> u32 {
        self.number("course").unwrap_or(1)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.header(name).and_then(|value| value.parse().ok())
    }

    pub(crate) fn text(&self) -> &str {
        self.message["content"].as_str().unwrap_or("")
    }

    /// Names of the calls that the client received.
    pub(crate) fn called(&self) -> Vec<&str> {
        let calls = self.message["tool_calls"].as_array().into_iter().flatten();
        calls
            .filter_map(|call| call["function"]["name"].as_str())
            .collect()
    }
}

/// A tool of the client.
pub(crate) fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "Reads a file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}},
            "required": ["path"]}}})
}

/// About `tokens` tokens of text, different for each `nth`.
pub(crate) fn words(tokens: usize, nth: usize) -> String {
    let mut text = format!("part {nth}:");
    for word in 0..tokens / 2 {
        text.push_str([" keel", " mast", " sail", " rope", " deck"][(word + nth) % 5]);
        text.push_str(" of");
    }
    text
}

impl Agent {
    /// With a tool, a system message and a first question.
    pub(crate) fn new(proxy: impl Into<TestClient>) -> Self {
        let mut agent = Self::bare(proxy);
        agent.fields["tools"] = json!([tool("read_file")]);
        agent.messages = vec![
            json!({"role": "system", "content": "You mend ships in the repository `hull`."}),
            json!({"role": "user", "content": "Find every leak and mend it."}),
        ];
        agent
    }

    /// Without messages and tools.
    pub(crate) fn bare(proxy: impl Into<TestClient>) -> Self {
        Self {
            client: proxy.into(),
            messages: Vec::new(),
            fields: json!({"model": "m"}),
            headers: HeaderMap::new(),
            result: |nth| format!("result {nth}"),
            user: |nth| format!("Well done. Now part {nth}."),
            results: 0,
            turns: 0,
        }
    }

    pub(crate) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields[name] = value.into();
        self
    }

    /// Adds a header to every request.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn says(mut self, text: &str) -> Self {
        self.messages.push(json!({"role": "user", "content": text}));
        self
    }

    /// The same client with another conversation; settings and headers are copied.
    pub(crate) fn branch(&self, proxy: &RunningProxy, messages: &[Value]) -> Self {
        Self {
            client: proxy.client(),
            messages: messages.to_vec(),
            fields: self.fields.clone(),
            headers: self.headers.clone(),
            ..*self
        }
    }

    pub(crate) fn body(&self) -> String {
        let mut body = self.fields.clone();
        body["messages"] = self.messages.clone().into();
        serde_json::to_string(&body).unwrap()
    }

    /// Sends the conversation, and keeps nothing of the answer.
    pub(crate) async fn send(&self) -> ClientAnswer {
        let path = "/v1/chat/completions";
        let mut request = self.client.request(Method::POST, path);
        request = request.header("content-type", "application/json");
        if self.fields["stream"] == true {
            request = request.header("x-plimsoll-stream-health", "comment");
        }
        let mut request = request.body(full_body(self.body())).unwrap();
        request.headers_mut().extend(self.headers.clone());
        self.client.send(request).await
    }

    /// Sends the conversation and reads the answer; the conversation is unchanged.
    pub(crate) async fn ask(&self) -> AgentGeneration {
        let answer = self.send().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.whole);
        let generation = assemble_answer(answer, self.fields["stream"] == true);
        let theirs = self.tools_named_like_proxy();
        if theirs.is_empty() {
            assert_nothing_of_proxy(&generation);
        }
        generation
    }

    /// One generation: asks, keeps the answer, then runs the tools or asks the next question.
    pub(crate) async fn step(&mut self) -> AgentGeneration {
        let generation = self.ask().await;
        self.keep_answer(&generation);
        generation
    }

    pub(crate) fn keep_answer(&mut self, generation: &AgentGeneration) {
        let message = &generation.message;
        self.messages.push(message.clone());
        let listed = message["tool_calls"].as_array().cloned();
        for call in listed.iter().flatten() {
            let result = (self.result)(self.results);
            self.results += 1;
            self.messages
                .push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        }
        let legacy = &message["function_call"];
        if legacy.is_object() {
            let result = (self.result)(self.results);
            self.results += 1;
            self.messages
                .push(json!({"role": "function", "name": legacy["name"], "content": result}));
        } else if listed.is_none_or(|calls| calls.is_empty()) {
            self.turns += 1;
            let user = (self.user)(self.turns);
            self.messages.push(json!({"role": "user", "content": user}));
        }
    }

    /// Runs `count` generations.
    pub(crate) async fn steps(&mut self, count: usize) -> Vec<AgentGeneration> {
        let mut generations = Vec::new();
        for _ in 0..count {
            generations.push(self.step().await);
        }
        generations
    }

    /// Runs generations until one is `wanted`; panics after `most`.
    pub(crate) async fn until(
        &mut self,
        most: usize,
        wanted: impl Fn(&AgentGeneration) -> bool,
    ) -> AgentGeneration {
        for _ in 0..most {
            let generation = self.step().await;
            if wanted(&generation) {
                return generation;
            }
        }
        panic!("not within {most} generations");
    }

    /// The session of this answer, from the API.
    pub(crate) async fn session(&self, generation: &AgentGeneration) -> Value {
        let id = generation.header("session").unwrap();
        let answer = self.api(Method::GET, &format!("sessions/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    pub(crate) async fn api(&self, method: Method, path: &str) -> ClientAnswer {
        let path = format!("/plimsoll/api/{path}");
        let mut request = self.client.request(method, &path);
        request.headers_mut().unwrap().extend(self.headers.clone());
        self.client.send(request.body(full_body("")).unwrap()).await
    }

    /// Tools of the client that have the name of a proxy tool.
    fn tools_named_like_proxy(&self) -> Vec<&str> {
        let tools = self.fields["tools"].as_array().into_iter().flatten();
        let names = tools.filter_map(|tool| tool["function"]["name"].as_str());
        names.filter(|name| PROXY_TOOLS.contains(name)).collect()
    }
}

/// Assembles an answer, and the message that the client echoes.
pub(crate) fn assemble_answer(answer: ClientAnswer, streams: bool) -> AgentGeneration {
    let mut generation = if streams {
        read_stream(answer)
    } else {
        read_whole(answer)
    };
    // Agents echo empty text beside calls as null.
    if generation.text().is_empty() && !generation.called().is_empty() {
        generation.message["content"] = Value::Null;
    }
    generation
}

/// No call and no block of the proxy reached the client.
#[track_caller]
pub(crate) fn assert_nothing_of_proxy(generation: &AgentGeneration) {
    let text = generation.answer.text();
    for name in PROXY_TOOLS {
        assert!(!text.contains(name), "{name} reached the client: {text}");
    }
    let tag = "continuation_package";
    assert!(!text.contains(tag), "a block reached the client: {text}");
    let calls = !generation.called().is_empty();
    let wanted: &[&str] = match (calls, generation.message["function_call"].is_object()) {
        (_, true) => &["function_call", "stop"],
        (true, _) => &["tool_calls", "stop"],
        (false, _) => &["stop", "length"],
    };
    assert!(wanted.contains(&generation.finish.as_str()), "{text}");
    let listed = generation.message.get("tool_calls");
    assert!(
        listed.is_none_or(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty())),
        "an empty list of calls: {text}"
    );
}

fn read_whole(answer: ClientAnswer) -> AgentGeneration {
    let body = answer.json();
    let choice = &body["choices"][0];
    AgentGeneration {
        message: choice["message"].clone(),
        finish: choice["finish_reason"].as_str().unwrap_or("").to_owned(),
        usage: body["usage"].clone(),
        answer,
    }
}

/// Assembles a stream, and checks what holds of every stream: one id, one role, indices without
/// gaps, one finish reason, `[DONE]` at the end.
fn read_stream(answer: ClientAnswer) -> AgentGeneration {
    let text = answer.text();
    let mut events: Vec<&str> = text
        .split_terminator("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .collect();
    assert_eq!(events.pop(), Some("[DONE]"), "{text}");
    let (mut usage, mut finish) = (Value::Null, None);
    let mut message = json!({"role": null, "content": null});
    let mut ids = Vec::new();
    for event in events {
        let chunk: Value = serde_json::from_str(event).unwrap();
        ids.push(chunk["id"].clone());
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
        let Some(choice) = chunk["choices"].get(0) else {
            continue;
        };
        assert!(finish.is_none(), "more after the finish: {text}");
        add_delta(&mut message, &choice["delta"]);
        finish = choice["finish_reason"].as_str().map(str::to_owned);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "several ids in {text}");
    assert_eq!(message["role"], "assistant", "{text}");
    AgentGeneration {
        message,
        finish: finish.expect("a stream has a finish"),
        usage,
        answer,
    }
}

/// Adds a delta to the message as the SDKs do.
fn add_delta(message: &mut Value, delta: &Value) {
    if let Some(role) = delta["role"].as_str() {
        assert!(message["role"].is_null(), "the role comes once");
        message["role"] = role.into();
    }
    append_text(&mut message["content"], &delta["content"]);
    for key in ["reasoning", "reasoning_content"] {
        if delta[key].is_string() {
            append_text(&mut message[key], &delta[key]);
        }
    }
    for key in ["reasoning_details", "thinking_blocks"] {
        if let Some(blocks) = delta[key].as_array() {
            let before = message[key].as_array().cloned().unwrap_or_default();
            message[key] = [before, blocks.clone()].concat().into();
        }
    }
    let legacy = &delta["function_call"];
    if legacy.is_object() {
        append_text(&mut message["function_call"]["name"], &legacy["name"]);
        append_text(
            &mut message["function_call"]["arguments"],
            &legacy["arguments"],
        );
    }
    for piece in delta["tool_calls"].as_array().into_iter().flatten() {
        let at = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
        if message["tool_calls"].is_null() {
            message["tool_calls"] = json!([]);
        }
        let calls = message["tool_calls"].as_array_mut().unwrap();
        assert!(at <= calls.len(), "an index was left out");
        if at == calls.len() {
            assert!(
                piece["function"]["name"].is_string(),
                "a call without a name"
            );
            calls.push(json!({"id": piece["id"], "type": "function",
                "function": {"name": piece["function"]["name"], "arguments": ""}}));
        }
        append_text(
            &mut calls[at]["function"]["arguments"],
            &piece["function"]["arguments"],
        );
    }
}

fn append_text(to: &mut Value, piece: &Value) {
    if let Some(piece) = piece.as_str() {
        let before = to.as_str().unwrap_or("");
        *to = format!("{before}{piece}").into();
    }
}
