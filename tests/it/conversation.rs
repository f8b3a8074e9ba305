//! Whole conversations over real sockets: the client's answers, the provider's requests, and the
//! state that each request finds.

mod api;
mod bytes;
mod caps;
mod clear;
mod cold;
mod cuts;
mod foreign;
mod headers;
mod lineage;
mod many;
mod newest;
mod recorded;
mod refusals;
mod rounds;
mod stands_back;
mod streams;

use std::sync::atomic::{AtomicU32, Ordering};

use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, DONE, ProviderStep, ProxyBuilder, ReceivedRequest, RunningProxy,
    ScriptedProvider, TestClient, TestUpload, answer, full_body, model_with_early_levels,
    stream_of,
};

/// A proxy before `up` with this window for model `m`.
pub(super) fn proxy_before(up: &ScriptedProvider, window: u32) -> ProxyBuilder {
    let proxy = up.proxy();
    proxy.set(|config| {
        config
            .models
            .insert("m".into(), model_with_early_levels(window));
        // Recovery is tested elsewhere.
        config.recovery.enabled = false;
    })
}

/// A completion; `message` has the fields beside the role.
pub(super) fn completion(message: &Value, prompt_tokens: Option<u32>) -> String {
    let usage = prompt_tokens.map(|prompt| {
        json!({"prompt_tokens": prompt, "completion_tokens": 3, "total_tokens": prompt + 3})
    });
    let mut message = message.clone();
    message["role"] = "assistant".into();
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    let mut body = json!({"id": "c", "object": "chat.completion", "choices": [choice]});
    if let Some(usage) = usage {
        body["usage"] = usage;
    }
    body.to_string()
}

/// A completion with this text.
pub(super) fn completion_of(text: &str, prompt_tokens: Option<u32>) -> ProviderStep {
    answer(
        "200 OK",
        "",
        completion(&json!({"content": text}), prompt_tokens),
    )
}

/// A provider that numbers its answers, and reports 1,000 tokens plus the number.
pub(super) async fn numbering_provider() -> ScriptedProvider {
    let made = AtomicU32::new(0);
    ScriptedProvider::start_answering(move |_: &ReceivedRequest| {
        let number = made.fetch_add(1, Ordering::Relaxed);
        vec![completion_of(
            &format!("answer {number}"),
            Some(1_000 + number),
        )]
    })
    .await
}

/// A stream of these deltas, with usage as asked.
pub(super) fn stream_of_deltas(deltas: &[Value], prompt_tokens: Option<u32>) -> Vec<ProviderStep> {
    let mut events = String::new();
    let mut event = |choices: Value, usage: Option<Value>| {
        let mut chunk = json!({"id": "c", "object": "chat.completion.chunk", "choices": choices});
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        events.push_str(&format!("data: {chunk}\n\n"));
    };
    for delta in deltas {
        event(json!([{"index": 0, "delta": delta}]), None);
    }
    event(
        json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        None,
    );
    if let Some(prompt) = prompt_tokens {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": 3});
        event(json!([]), Some(usage));
    }
    stream_of([events.as_str(), DONE])
}

pub(super) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A client's conversation, sent again with every request.
pub(super) struct Talk {
    client: TestClient,
    pub(super) messages: Vec<Value>,
    /// Fields of the request beside `model` and `messages`.
    pub(super) fields: Value,
    pub(super) headers: HeaderMap,
}

impl Talk {
    pub(super) fn new(proxy: &RunningProxy) -> Self {
        Self {
            client: proxy.client(),
            messages: Vec::new(),
            fields: json!({}),
            headers: HeaderMap::new(),
        }
    }

    /// Adds a header to every request.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(super) fn body(&self) -> String {
        let mut body = self.fields.clone();
        body["model"] = "m".into();
        body["messages"] = self.messages.clone().into();
        body.to_string()
    }

    fn request(&self) -> Request<TestUpload> {
        let mut request = self
            .client
            .request(Method::POST, "/v1/chat/completions")
            .header("content-type", "application/json")
            .body(full_body(self.body()))
            .unwrap();
        request.headers_mut().extend(self.headers.clone());
        request
    }

    /// Asks with the conversation so far, and keeps nothing of the answer.
    pub(super) async fn ask(&self) -> ClientAnswer {
        self.client.send(self.request()).await
    }

    /// Adds a message, asks, and keeps the answer as it came.
    pub(super) async fn say(&mut self, text: &str) -> ClientAnswer {
        self.messages.push(user(text));
        let answer = self.ask().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let said = answer.json()["choices"][0]["message"].clone();
        self.messages.push(said);
        answer
    }

    /// The session of this answer from the API; `null` where there is none.
    pub(super) async fn session(&self, answer: &ClientAnswer) -> Value {
        let path = format!("/plimsoll/api/sessions/{}", header(answer, "session"));
        let mut request = self.client.request(Method::GET, &path);
        request.headers_mut().unwrap().extend(self.headers.clone());
        let shown = self.client.send_with(request, "").await;
        if shown.status == 404 {
            shown.is_error(404, "session_not_found");
            return Value::Null;
        }
        assert_eq!(shown.status, 200, "{}", shown.text());
        shown.json()
    }
}

/// The value of a `x-plimsoll-` header.
pub(super) fn header<'a>(answer: &'a ClientAnswer, name: &str) -> &'a str {
    let value = answer.headers.get(format!("x-plimsoll-{name}"));
    let value = value.unwrap_or_else(|| panic!("no {name} in {:?}", answer.headers));
    value.to_str().unwrap()
}

/// The health headers in one line; `-` for a missing one.
pub(super) fn health_line(headers: &HeaderMap) -> String {
    let names = [
        "health",
        "health-from",
        "prompt-tokens",
        "context-limit",
        "hard-util",
        "optimal-util",
    ];
    let shown = names.map(|name| {
        let mut values = headers.get_all(format!("x-plimsoll-{name}")).iter();
        let first = values.next().map_or("-", |value| value.to_str().unwrap());
        assert!(values.next().is_none(), "{name} stands there twice");
        first
    });
    shown.join(" ")
}
