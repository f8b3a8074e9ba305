//! A model behind the proxy: it reads a request, decides on a reply, and answers, streamed or not.
//!
//! The path of a request decides on its format: chat completions, Messages or Responses. A reply rule reads the requests
//! of all in the shape of chat completions. It counts with its own tokenizer, refuses what does not fit its window or breaks its profile,
//! and records every fault of a request. A [`ReplyRule`] decides on the reply: one of those in
//! `manner`, or a closure of the test.

pub(crate) mod dialect;
pub(crate) mod manner;
pub(crate) mod messages;
pub(crate) mod notice;
pub(crate) mod render;
pub(crate) mod responses;

pub(crate) use manner::{Mixing, NoticeManner, Worker};

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use plimsoll::guard::profile::{Profile, find_profile};
use serde_json::{Value, json};

use self::{
    dialect::{Dialect, ReplyWriter},
    notice::Notice,
    render::AnswerWriter,
};
use super::{
    count::TokenCounter,
    parse,
    provider::{ProviderStep, ReceivedRequest, ScriptedProvider, answer, send_bytes, stream_head},
    strict::{self, version::find_refused_by_version},
};

/// The four reminder tools of the proxy.
pub(crate) const PROXY_TOOLS: [&str; 4] = [
    "add_reminder",
    "update_reminder",
    "delete_reminder",
    "clear_mind",
];

/// A request as the model reads it.
pub(crate) struct ModelRequest<'a> {
    pub(crate) body: &'a Value,
    /// By the model's own count.
    pub(crate) tokens: u64,
    /// What the newest messages ask for.
    pub(crate) notice: Option<Notice>,
    /// How many requests came before.
    pub(crate) nth: usize,
}

impl ModelRequest<'_> {
    pub(crate) fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Names of the tools that are offered, in their order.
    pub(crate) fn offered_tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        let tools = tools.filter_map(|tool| tool["function"]["name"].as_str());
        let legacy = self.body["functions"].as_array().into_iter().flatten();
        tools
            .chain(legacy.filter_map(|function| function["name"].as_str()))
            .collect()
    }

    pub(crate) fn offers_tool(&self, name: &str) -> bool {
        self.offered_tools().contains(&name)
    }

    /// Whether its last message answers a call of one of the proxy's tools.
    pub(crate) fn follows_proxy_call(&self) -> bool {
        notice::answers_proxy_call(self.messages())
    }
}

/// The model's reply to a request.
#[derive(Clone, Debug)]
pub(crate) enum ModelReply {
    /// A text, calls, or both.
    Says(String, Vec<ModelCall>),
    /// An error with this status and code.
    Fails(u16, &'static str),
    /// Exactly these bytes.
    Raw(Vec<ProviderStep>),
}

impl ModelReply {
    pub(crate) fn text(text: &str) -> Self {
        Self::Says(text.to_owned(), Vec::new())
    }

    pub(crate) fn calls(calls: impl Into<Vec<ModelCall>>) -> Self {
        Self::Says(String::new(), calls.into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelCall {
    /// `None`: the model sends no id.
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    /// As written; need not be JSON.
    pub(crate) arguments: String,
}

impl ModelCall {
    pub(crate) fn new(id: &str, name: &str, arguments: &Value) -> Self {
        Self {
            id: Some(id.to_owned()),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        }
    }
}

/// Decides on the reply.
pub(crate) type ReplyRule = Box<dyn Fn(&ModelRequest<'_>) -> ModelReply + Send + Sync>;

/// How the provider of the model is built.
pub(crate) struct ModelSetup {
    /// In tokens; what does not fit is refused.
    pub(crate) window: u32,
    pub(crate) profile: &'static Profile,
    /// Bytes of one fragment of a streamed text or argument.
    pub(crate) fragment: usize,
    /// Streams are written byte by byte.
    pub(crate) byte_by_byte: bool,
    /// Answers report usage.
    pub(crate) reports_usage: bool,
    /// Requests are neither parsed nor checked, and four bytes count as a token: for requests too
    /// long to parse each time. The reply rule gets an empty request.
    pub(crate) skips_reading: bool,
    /// The refusal of a request that does not fit, from the window and the request's tokens.
    pub(crate) refusal: RefusalWriter,
}

pub(crate) type RefusalWriter = fn(u32, u64) -> Vec<ProviderStep>;

/// OpenAI's wording.
pub(crate) fn refuse_as_openai(window: u32, tokens: u64) -> Vec<ProviderStep> {
    let message = format!(
        "This model's maximum context length is {window} tokens. However, your messages \
         resulted in {tokens} tokens. Please reduce the length of the messages."
    );
    refuse(400, "context_length_exceeded", &message)
}

impl ModelSetup {
    pub(crate) fn new(window: u32) -> Self {
        Self {
            window,
            profile: find_profile("openai").unwrap(),
            fragment: 5,
            byte_by_byte: false,
            reports_usage: true,
            skips_reading: false,
            refusal: refuse_as_openai,
        }
    }

    pub(crate) fn profile(mut self, profile: &'static Profile) -> Self {
        self.profile = profile;
        self
    }

    pub(crate) async fn start(
        self,
        mind: impl Fn(&ModelRequest<'_>) -> ModelReply + Send + Sync + 'static,
    ) -> RunningModel {
        let log = Arc::new(RequestLog::default());
        let (mind, kept): (ReplyRule, _) = (Box::new(mind), Arc::clone(&log));
        let provider =
            ScriptedProvider::start_answering(move |seen| self.answer_request(seen, &mind, &kept))
                .await;
        RunningModel { provider, log }
    }

    fn answer_request(
        &self,
        seen: &ReceivedRequest,
        mind: &ReplyRule,
        log: &RequestLog,
    ) -> Vec<ProviderStep> {
        let nth = log.heard.fetch_add(1, Ordering::SeqCst);
        for (path, dialect) in [
            ("/messages", &messages::DIALECT),
            ("/responses", &responses::DIALECT),
        ] {
            if seen.line.contains(path) {
                return self.answer_in(dialect, seen, mind, log, nth);
            }
        }
        let Some((body, tokens)) = self.read_request(nth, &seen.body, log) else {
            return refuse(400, "invalid_json", "not JSON");
        };
        log.tokens.lock().unwrap().push(tokens);
        if !self.fits_window(&body, tokens) {
            log.overflows.fetch_add(1, Ordering::SeqCst);
            return (self.refusal)(self.window, tokens);
        }
        let heard = ModelRequest {
            notice: notice::find_notice(&body),
            tokens,
            nth,
            body: &body,
        };
        match mind(&heard) {
            ModelReply::Raw(steps) => steps,
            ModelReply::Fails(status, code) => refuse(status, code, "as the test wants it"),
            ModelReply::Says(text, calls) => {
                let render = AnswerWriter {
                    body: &body,
                    tokens,
                    fragment: self.fragment,
                    byte_by_byte: self.byte_by_byte,
                    reports_usage: self.reports_usage,
                };
                render.provider_steps(&text, &calls)
            }
        }
    }
}

impl ModelSetup {
    fn answer_in(
        &self,
        dialect: &Dialect,
        seen: &ReceivedRequest,
        mind: &ReplyRule,
        log: &RequestLog,
        nth: usize,
    ) -> Vec<ProviderStep> {
        for found in (dialect.find_violations)(&seen.body) {
            log.record_fault(nth, format!("{found:?}"));
        }
        let body = parse::parse_value(&seen.body).unwrap();
        let version = seen.header("anthropic-version").unwrap_or("");
        for found in find_refused_by_version(version, &body) {
            log.record_fault(nth, format!("refused by {version}: {found}"));
        }
        let view = (dialect.view)(&body);
        for found in find_tool_faults(&view) {
            log.record_fault(nth, found);
        }
        let tokens = count_tokens(view.to_string().as_bytes());
        log.tokens.lock().unwrap().push(tokens);
        if tokens > u64::from(self.window) {
            log.overflows.fetch_add(1, Ordering::SeqCst);
            return (dialect.refuse)(self.window, tokens);
        }
        let heard = ModelRequest {
            notice: notice::find_notice(&view),
            tokens,
            nth,
            body: &view,
        };
        match mind(&heard) {
            ModelReply::Raw(steps) => steps,
            ModelReply::Fails(status, kind) => (dialect.fail)(status, kind, "as the test wants it"),
            ModelReply::Says(text, calls) => {
                let writer = ReplyWriter {
                    body: &body,
                    tokens,
                    nth,
                    fragment: self.fragment,
                };
                let (whole, events) = (dialect.write)(&writer, &text, &calls);
                self.send_answer(&body, &whole, &events)
            }
        }
    }

    /// An answer, whole or as its events.
    fn send_answer(&self, body: &Value, whole: &Value, events: &str) -> Vec<ProviderStep> {
        if body["stream"] != true {
            return vec![answer("200 OK", "", whole.to_string())];
        }
        let events = if self.byte_by_byte {
            ProviderStep::Drip(events.as_bytes().to_vec())
        } else {
            send_bytes(events)
        };
        vec![stream_head(), events, ProviderStep::Close]
    }

    /// The parsed request and its tokens; every fault is recorded.
    fn read_request(&self, nth: usize, bytes: &[u8], log: &RequestLog) -> Option<(Value, u64)> {
        if self.skips_reading {
            return Some((json!({}), bytes.len() as u64 / 4));
        }
        let Ok(body) = parse::parse_value(bytes) else {
            log.record_fault(nth, "not JSON".to_owned());
            return None;
        };
        for found in strict::find_violations(bytes, self.profile) {
            log.record_fault(nth, format!("{found:?}"));
        }
        let rules = self.profile.for_model(body["model"].as_str().unwrap_or(""));
        for found in strict::find_lacking_members(&body, rules) {
            log.record_fault(nth, format!("{found:?}"));
        }
        for found in find_tool_faults(&body) {
            log.record_fault(nth, found);
        }
        let tokens = count_tokens(bytes);
        Some((body, tokens))
    }

    fn fits_window(&self, body: &Value, tokens: u64) -> bool {
        let asked = ["max_completion_tokens", "max_tokens"];
        let asked = asked.iter().find_map(|name| body[*name].as_u64());
        let asked = asked.filter(|_| self.profile.checks_answer_cap());
        tokens + asked.unwrap_or(0) <= u64::from(self.window)
    }
}

/// A running model.
pub(crate) struct RunningModel {
    pub(crate) provider: ScriptedProvider,
    log: Arc<RequestLog>,
}

#[derive(Default)]
struct RequestLog {
    heard: AtomicUsize,
    overflows: AtomicUsize,
    faults: Mutex<Vec<String>>,
    tokens: Mutex<Vec<u64>>,
}

impl RequestLog {
    fn record_fault(&self, nth: usize, what: String) {
        let mut faults = self.faults.lock().unwrap();
        faults.push(format!("request {nth}: {what}"));
    }
}

impl RunningModel {
    /// Panics if any request broke a rule of the profile.
    #[track_caller]
    pub(crate) fn assert_no_faults(&self) {
        let faults = self.log.faults.lock().unwrap();
        assert!(faults.is_empty(), "{:#?}", &faults[..faults.len().min(5)]);
    }

    /// Requests that did not fit.
    pub(crate) fn overflows(&self) -> usize {
        self.log.overflows.load(Ordering::SeqCst)
    }

    /// Requests up to now.
    pub(crate) fn count(&self) -> usize {
        self.provider.count_requests()
    }

    /// What each request counted.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        self.log.tokens.lock().unwrap().clone()
    }

    /// All received bodies, parsed.
    pub(crate) async fn bodies(&self) -> Vec<Value> {
        self.bodies_from(0).await
    }

    /// The bodies from number `start`, parsed; in a long session the others need not be parsed
    /// again.
    pub(crate) async fn bodies_from(&self, start: usize) -> Vec<Value> {
        let seen = self.provider.requests(0).await;
        let new = seen.iter().skip(start);
        new.map(|seen| parse::parse_value(&seen.body).unwrap())
            .collect()
    }
}

/// A vocabulary that the proxy does not use.
fn count_tokens(body: &[u8]) -> u64 {
    static COUNTER: OnceLock<TokenCounter> = OnceLock::new();
    COUNTER.get_or_init(TokenCounter::o200k).request(body)
}

/// Faults of the offered tools: a name twice, or a choice of a tool that is not there.
pub(crate) fn find_tool_faults(body: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let tools = body["tools"].as_array().into_iter().flatten();
    let names: Vec<&Value> = tools.map(|tool| &tool["function"]["name"]).collect();
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            faults.push(format!("{name} is offered twice"));
        }
    }
    let chosen = &body["tool_choice"]["function"]["name"];
    if chosen.is_string() && !names.contains(&chosen) {
        faults.push(format!("{chosen} is chosen and not offered"));
    }
    if names.is_empty() && body.get("tool_choice").is_some_and(|it| it != "none") {
        faults.push("a tool_choice without tools".to_owned());
    }
    faults
}

/// An error of that status and code.
pub(crate) fn refuse(status: u16, code: &str, message: &str) -> Vec<ProviderStep> {
    let body = json!({"error": {"message": message, "type": "invalid_request_error",
        "param": null, "code": code}});
    vec![answer(&format!("{status} Refused"), "", body.to_string())]
}
