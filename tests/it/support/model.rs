//! A model on the other side of the proxy: it hears a request, thinks, and answers, streamed or not.
//!
//! It counts with a tokenizer of its own, refuses what does not fit its window and what its profile
//! forbids, and remembers every fault of a request. What it says is a [`Mind`]'s business: one of
//! the usual ones in `manner`, or a closure of the test.

pub(crate) mod manner;
pub(crate) mod notice;
pub(crate) mod render;

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use plimsoll::guard::profile::{Profile, find_profile};
use serde_json::{Value, json};

use self::{notice::Notice, render::Render};
use super::{
    count::Counter,
    parse,
    provider::{Provider, Seen, Step, answer},
    strict,
};

/// The four tools of the proxy.
pub(crate) const OWN: [&str; 4] = [
    "add_reminder",
    "update_reminder",
    "delete_reminder",
    "clear_mind",
];

/// One request, as the model reads it.
pub(crate) struct Heard<'a> {
    pub(crate) body: &'a Value,
    /// By the model's own count.
    pub(crate) tokens: u64,
    /// What the newest words ask for.
    pub(crate) notice: Option<Notice>,
    /// Requests before this one.
    pub(crate) nth: usize,
}

impl Heard<'_> {
    pub(crate) fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Names of the tools that are offered, in their order.
    pub(crate) fn offered(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        let tools = tools.filter_map(|tool| tool["function"]["name"].as_str());
        let legacy = self.body["functions"].as_array().into_iter().flatten();
        tools
            .chain(legacy.filter_map(|function| function["name"].as_str()))
            .collect()
    }

    pub(crate) fn offers(&self, name: &str) -> bool {
        self.offered().contains(&name)
    }

    /// Whether its last message answers a call of one of the proxy's tools.
    pub(crate) fn after_own(&self) -> bool {
        notice::answers_own(self.messages())
    }
}

/// What the model does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// A text, calls, or both.
    Says(String, Vec<Call>),
    /// An error with this status and code.
    Fails(u16, &'static str),
    /// Exactly these bytes.
    Raw(Vec<Step>),
}

impl Said {
    pub(crate) fn text(text: &str) -> Self {
        Self::Says(text.to_owned(), Vec::new())
    }

    pub(crate) fn calls(calls: impl Into<Vec<Call>>) -> Self {
        Self::Says(String::new(), calls.into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// `None`: the model gives none at all.
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    /// As written; need not be JSON.
    pub(crate) arguments: String,
}

impl Call {
    pub(crate) fn new(id: &str, name: &str, arguments: &Value) -> Self {
        Self {
            id: Some(id.to_owned()),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        }
    }
}

/// Decides what is said.
pub(crate) type Mind = Box<dyn Fn(&Heard<'_>) -> Said + Send + Sync>;

/// How the provider of the model is built.
pub(crate) struct Model {
    /// In tokens; what does not fit is refused.
    pub(crate) window: u32,
    pub(crate) profile: &'static Profile,
    /// Bytes of one fragment of a streamed text or argument.
    pub(crate) fragment: usize,
    /// Streams are written byte by byte.
    pub(crate) drips: bool,
    /// Answers tell their usage.
    pub(crate) reports: bool,
    /// Nothing is read nor checked, and a token counted for every four bytes: for requests that
    /// are too long to be read each time. The mind hears an empty request.
    pub(crate) deaf: bool,
    /// How it says that a request does not fit, given its window and the request's tokens.
    pub(crate) refusal: Refusal,
}

pub(crate) type Refusal = fn(u32, u64) -> Vec<Step>;

/// As OpenAI says it.
pub(crate) fn classic(window: u32, tokens: u64) -> Vec<Step> {
    let message = format!(
        "This model's maximum context length is {window} tokens. However, your messages \
         resulted in {tokens} tokens. Please reduce the length of the messages."
    );
    refuse(400, "context_length_exceeded", &message)
}

impl Model {
    pub(crate) fn new(window: u32) -> Self {
        Self {
            window,
            profile: find_profile("openai").unwrap(),
            fragment: 5,
            drips: false,
            reports: true,
            deaf: false,
            refusal: classic,
        }
    }

    pub(crate) fn profile(mut self, profile: &'static Profile) -> Self {
        self.profile = profile;
        self
    }

    pub(crate) async fn start(
        self,
        mind: impl Fn(&Heard<'_>) -> Said + Send + Sync + 'static,
    ) -> Up {
        let log = Arc::new(Log::default());
        let (mind, kept): (Mind, _) = (Box::new(mind), Arc::clone(&log));
        let provider = Provider::answering(move |seen| self.answer(seen, &mind, &kept)).await;
        Up { provider, log }
    }

    fn answer(&self, seen: &Seen, mind: &Mind, log: &Log) -> Vec<Step> {
        let nth = log.heard.fetch_add(1, Ordering::SeqCst);
        let Some((body, tokens)) = self.read(nth, &seen.body, log) else {
            return refuse(400, "invalid_json", "not JSON");
        };
        log.tokens.lock().unwrap().push(tokens);
        if !self.fits(&body, tokens) {
            log.overflows.fetch_add(1, Ordering::SeqCst);
            return (self.refusal)(self.window, tokens);
        }
        let heard = Heard {
            notice: notice::of(&body),
            tokens,
            nth,
            body: &body,
        };
        match mind(&heard) {
            Said::Raw(steps) => steps,
            Said::Fails(status, code) => refuse(status, code, "as the test wants it"),
            Said::Says(text, calls) => {
                let render = Render {
                    body: &body,
                    tokens,
                    fragment: self.fragment,
                    drips: self.drips,
                    reports: self.reports,
                };
                render.steps(&text, &calls)
            }
        }
    }
}

impl Model {
    /// The request and its count, with every fault of it kept.
    fn read(&self, nth: usize, bytes: &[u8], log: &Log) -> Option<(Value, u64)> {
        if self.deaf {
            return Some((json!({}), bytes.len() as u64 / 4));
        }
        let Ok(body) = parse::value(bytes) else {
            log.fault(nth, "not JSON".to_owned());
            return None;
        };
        for found in strict::violations(bytes, self.profile) {
            log.fault(nth, format!("{found:?}"));
        }
        for found in tools_of(&body) {
            log.fault(nth, found);
        }
        let tokens = foreign(bytes);
        Some((body, tokens))
    }

    fn fits(&self, body: &Value, tokens: u64) -> bool {
        let asked = ["max_completion_tokens", "max_tokens"];
        let asked = asked.iter().find_map(|name| body[*name].as_u64());
        let asked = asked.filter(|_| self.profile.answer_inside_window);
        tokens + asked.unwrap_or(0) <= u64::from(self.window)
    }
}

/// A running model.
pub(crate) struct Up {
    pub(crate) provider: Provider,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    heard: AtomicUsize,
    overflows: AtomicUsize,
    faults: Mutex<Vec<String>>,
    tokens: Mutex<Vec<u64>>,
}

impl Log {
    fn fault(&self, nth: usize, what: String) {
        let mut faults = self.faults.lock().unwrap();
        faults.push(format!("request {nth}: {what}"));
    }
}

impl Up {
    /// Fails if any request broke a rule of the profile.
    #[track_caller]
    pub(crate) fn is_content(&self) {
        let faults = self.log.faults.lock().unwrap();
        assert!(faults.is_empty(), "{:#?}", &faults[..faults.len().min(5)]);
    }

    /// Requests that did not fit.
    pub(crate) fn overflows(&self) -> usize {
        self.log.overflows.load(Ordering::SeqCst)
    }

    /// Requests up to now.
    pub(crate) fn count(&self) -> usize {
        self.provider.count()
    }

    /// What each request counted.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        self.log.tokens.lock().unwrap().clone()
    }

    /// All bodies that came, read.
    pub(crate) async fn bodies(&self) -> Vec<Value> {
        self.bodies_from(0).await
    }

    /// Those after so many, read; in a long session the others need not be read each time.
    pub(crate) async fn bodies_from(&self, start: usize) -> Vec<Value> {
        let seen = self.provider.requests(0).await;
        let new = seen.iter().skip(start);
        new.map(|seen| parse::value(&seen.body).unwrap()).collect()
    }
}

/// By a vocabulary that the proxy does not have.
fn foreign(body: &[u8]) -> u64 {
    static COUNTER: OnceLock<Counter> = OnceLock::new();
    COUNTER.get_or_init(Counter::o200k).request(body)
}

/// What is wrong with the offered tools: a name twice, or a choice of one that is not there.
pub(crate) fn tools_of(body: &Value) -> Vec<String> {
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
pub(crate) fn refuse(status: u16, code: &str, message: &str) -> Vec<Step> {
    let body = json!({"error": {"message": message, "type": "invalid_request_error",
        "param": null, "code": code}});
    vec![answer(&format!("{status} Refused"), "", body.to_string())]
}
