//! The requirements: tests for each of 32 numbered rows, named after it, on the started program.
//!
//! The doc comment of a test is the part of the row that it tests. A test here is changed only when its row is.

mod card;
mod cleared;
mod cuts;
mod estimate;
mod health;
mod page;
mod parts;
mod recovery;
mod summaries;
mod summary_settings;
mod windows;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    Agent, AgentGeneration, ClientAnswer, ModelReply, ModelRequest, Process, ProviderStep,
    ReceivedRequest, ScriptedProvider, Settings, full_body,
    model::{
        notice::{find_notice, message_text},
        render::AnswerWriter,
    },
    refuse,
};

/// A provider of which the test chooses the prompt tokens that it reports.
struct Meter {
    up: ScriptedProvider,
    /// 0, as at first: it reports no usage.
    tokens: Arc<AtomicU64>,
}

impl Meter {
    async fn start(mind: impl Fn(&ModelRequest<'_>) -> ModelReply + Send + Sync + 'static) -> Self {
        let tokens = Arc::new(AtomicU64::new(0));
        let (reported, heard) = (Arc::clone(&tokens), AtomicUsize::new(0));
        let up = ScriptedProvider::start_answering(move |seen| {
            let nth = heard.fetch_add(1, SeqCst);
            answer_request(seen, nth, reported.load(SeqCst), &mind)
        });
        Self {
            up: up.await,
            tokens,
        }
    }

    fn set_tokens(&self, tokens: u64) {
        self.tokens.store(tokens, SeqCst);
    }

    /// All requests so far.
    async fn bodies(&self) -> Vec<Value> {
        let seen = self.up.requests(0).await;
        seen.iter().map(parse_body).collect()
    }

    /// The newest request.
    fn last_body(&self) -> Value {
        parse_body(&self.up.last_request())
    }
}

fn parse_body(seen: &ReceivedRequest) -> Value {
    serde_json::from_slice(&seen.body).unwrap()
}

fn answer_request(
    seen: &ReceivedRequest,
    nth: usize,
    tokens: u64,
    mind: &dyn Fn(&ModelRequest<'_>) -> ModelReply,
) -> Vec<ProviderStep> {
    let body = parse_body(seen);
    let heard = ModelRequest {
        notice: find_notice(&body),
        body: &body,
        tokens,
        nth,
    };
    match mind(&heard) {
        ModelReply::Raw(steps) => steps,
        ModelReply::Fails(status, code) => refuse(status, code, "as the test wants it"),
        ModelReply::Says(text, calls) => AnswerWriter {
            body: &body,
            tokens,
            fragment: 5,
            byte_by_byte: false,
            reports_usage: tokens > 0,
        }
        .provider_steps(&text, &calls),
    }
}

/// Answers every request in text.
fn say(heard: &ModelRequest<'_>) -> ModelReply {
    ModelReply::text(&format!("Answer {}.", heard.nth))
}

/// Settings of model `m` at the provider of [`Settings`]; `more` begins with further settings of the model.
fn model_lines(window: u32, more: &str) -> String {
    format!(
        "profile = \"openai\"\n[models.m]\nprovider = \"up\"\ncontext_length = {window}\n{more}"
    )
}

/// The started program with its settings file.
struct Program {
    process: Process,
    settings: Settings,
}

impl Program {
    /// Before `up`, with these lines at the end of the settings file.
    async fn start(up: &ScriptedProvider, lines: &str) -> Self {
        let settings = Settings::new(up);
        settings.write(lines);
        Self::start_with(settings).await
    }

    async fn start_with(settings: Settings) -> Self {
        Self {
            process: Process::start(&settings.file).await,
            settings,
        }
    }

    /// Ends it by SIGKILL, and starts it on the same files.
    async fn kill_and_restart(self) -> Self {
        drop(self.process);
        Self::start_with(self.settings).await
    }

    fn agent(&self) -> Agent {
        Agent::new(self.process.client())
    }

    async fn chat(&self, body: &Value) -> ClientAnswer {
        self.process.client().chat(body.to_string()).await
    }

    async fn get(&self, path: &str) -> ClientAnswer {
        self.process.client().get(path).await
    }

    /// The session of an answer, from the API.
    async fn session(&self, answer: &ClientAnswer) -> Value {
        let id = header(answer, "session");
        let shown = self.get(&format!("/plimsoll/api/sessions/{id}")).await;
        assert_eq!(shown.status, 200, "{}", shown.text());
        shown.json()
    }

    /// Sends a command to the session of an answer, and returns its report.
    async fn command(&self, method: Method, id: &str, rest: &str, body: &str) -> Value {
        let client = self.process.client();
        let path = format!("/plimsoll/api/sessions/{id}{rest}");
        let request = client
            .request(method, &path)
            .body(full_body(body.to_owned()));
        let told = client.send(request.unwrap()).await;
        assert_eq!(told.status, 200, "{}", told.text());
        told.json()
    }

    /// What a provider would get of a request, and the guard's report of it.
    async fn fit(&self, body: &Value) -> (Value, Value) {
        let client = self.process.client();
        let request = client.request(Method::POST, "/plimsoll/api/fit");
        let fitted = client.send_with(request, body.to_string()).await;
        assert_eq!(fitted.status, 200, "{}", fitted.text());
        let mut fitted = fitted.json();
        (fitted["request"].take(), fitted["report"].take())
    }

    /// Stops it; returns the log from the last awaited line on.
    async fn stop(self) -> String {
        self.process.signal("TERM");
        let (status, log) = self.process.wait_for_end().await;
        assert!(status.success());
        log
    }
}

/// The value of a `x-plimsoll-` header; empty where it is absent.
fn header<'a>(answer: &'a ClientAnswer, name: &str) -> &'a str {
    let value = answer.headers.get(format!("x-plimsoll-{name}"));
    value.map_or("", |value| value.to_str().unwrap())
}

/// The lines of a log that contain these words.
fn lines_with(log: &str, words: &str) -> Vec<Value> {
    let lines = log.lines().filter(|line| line.contains(words));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn said(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// A step: a call of `read_file` for each result, and the results.
fn tool_step(nth: usize, results: &[&str]) -> Vec<Value> {
    let id = |at: usize| format!("call_{nth}_{at}");
    let calls: Vec<Value> = (0..results.len())
        .map(|at| {
            json!({"id": id(at), "type": "function",
                "function": {"name": "read_file", "arguments": format!("{{\"path\":\"{nth}_{at}.rs\"}}")}})
        })
        .collect();
    let mut step = vec![json!({"role": "assistant", "content": null, "tool_calls": calls})];
    for (at, result) in results.iter().enumerate() {
        step.push(json!({"role": "tool", "tool_call_id": id(at), "content": result}));
    }
    step
}

/// The body of a request to model `m` without tools.
fn request_of(messages: &[Value]) -> Value {
    json!({"model": "m", "messages": messages})
}

fn messages_of(body: &Value) -> &[Value] {
    body["messages"].as_array().unwrap()
}

/// Places of these messages that stand in a request as they were said.
fn kept_places(messages: &[Value], sent: &Value) -> Vec<usize> {
    let stands = |message: &Value| {
        let is_user = message["role"] == "user";
        let mut sent = messages_of(sent).iter();
        sent.any(|now| now == message || is_user && stands_as_said(now, message))
    };
    let listed = messages.iter().enumerate();
    let kept = listed.filter(|(_, message)| stands(message));
    kept.map(|(at, _)| at).collect()
}

/// Whether a message stands in a request as it was said. A note of the proxy may follow it, in a paragraph.
fn stands_as_said(now: &Value, came: &Value) -> bool {
    let (text, said) = (message_text(now), message_text(came));
    let rest = text.strip_prefix(&said);
    now["role"] == came["role"]
        && rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with("\n\n[") || rest.starts_with("\n\n【")
        })
}

/// Numbers of the generations, from 1, whose request got this prompt anew.
fn prompted_at(generations: &[AgentGeneration], word: &str) -> Vec<usize> {
    let listed = (1..).zip(generations);
    let found = listed.filter(|(_, it)| it.injected() == Some(word));
    found.map(|(at, _)| at).collect()
}
