//! What can be learnt from an answer by looking on.
//!
//! Reads the JSON of events and of whole answers, keeps digests and numbers only, never text.
//! What cannot be read is passed over: the tap has no way to fail.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    json::text::Digester,
    wire::{event::Message, usage::Usage},
};

/// Calls remembered of one answer; more make no difference to what follows.
const MAX_CALLS: usize = 1_024;

/// What was heard of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// The last report.
    pub usage: Option<Usage>,
    /// The digest of the first choice's text.
    pub text: u128,
    /// Digests of the first choice's call ids, in their order.
    pub call_ids: Vec<u128>,
    /// A finish reason came.
    pub finished: bool,
    /// The finish reason was `length`.
    pub cut_off: bool,
    /// The last finish reason, where it is one of the usual words.
    pub finish_reason: Option<&'static str>,
    /// `[DONE]` came.
    pub done: bool,
    /// The provider reported an error inside the answer.
    pub error: bool,
    /// The answer could not be read (an unknown content encoding, or more than the bound).
    pub blind: bool,
}

impl Heard {
    /// Whether the answer came to its end.
    pub fn complete(&self) -> bool {
        (self.finished || self.done) && !self.error
    }
}

/// What one event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// `[DONE]`.
    Done,
    /// A chunk with usage and without choices, as `include_usage` makes it.
    UsageOnly,
    Other,
}

pub(super) struct Tap {
    heard: Heard,
    text: Digester,
    calls: Vec<(u64, u128)>,
}

/// A chunk of a stream, or a whole answer.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    x_groq: Option<Groq<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// What is still read where the choices have an unknown shape.
#[derive(Deserialize)]
struct Loose<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Groq<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Said<'a>>,
    #[serde(borrow)]
    message: Option<Said<'a>>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    /// Kimi reports here.
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<Call<'a>>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

impl Tap {
    pub(super) fn new() -> Self {
        Self {
            heard: Heard::default(),
            text: Digester::new(),
            calls: Vec::new(),
        }
    }

    /// One event of a stream.
    pub(super) fn message(&mut self, message: &Message) -> Seen {
        if message.data.trim_ascii() == b"[DONE]" {
            self.heard.done = true;
            return Seen::Done;
        }
        if &message.name[..] == b"error" {
            self.heard.error = true;
        }
        self.answer(&message.data)
    }

    /// The whole of an answer that is not streamed.
    pub(super) fn answer(&mut self, json: &[u8]) -> Seen {
        let Ok(answer) = serde_json::from_slice::<Answer<'_>>(json) else {
            if let Ok(loose) = serde_json::from_slice::<Loose<'_>>(json) {
                self.report(loose.usage);
                self.heard.error |= loose.error.is_some();
            }
            return Seen::Other;
        };
        self.heard.error |= answer.error.is_some();
        let reported = self.report(answer.usage);
        self.report(answer.x_groq.and_then(|groq| groq.usage));
        let Some(choices) = answer.choices else {
            return Seen::Other;
        };
        for choice in &choices {
            self.choice(choice);
        }
        if choices.is_empty() && reported && answer.error.is_none() {
            Seen::UsageOnly
        } else {
            Seen::Other
        }
    }

    /// Another answer goes on with this one: what the last one costs is what counts.
    pub(super) fn turn(&mut self) {
        self.heard.usage = None;
    }

    /// Nothing more will be understood.
    pub(super) fn blind(&mut self) {
        self.heard.blind = true;
    }

    /// All that was heard up to now.
    pub(super) fn heard(&self) -> Heard {
        Heard {
            text: self.text.clone().finish(),
            call_ids: self.calls.iter().map(|(_, id)| *id).collect(),
            ..self.heard.clone()
        }
    }

    fn report(&mut self, usage: Option<&RawValue>) -> bool {
        let Some(usage) = usage.and_then(|usage| Usage::read(usage.get())) else {
            return false;
        };
        self.heard.usage = Some(Usage::later(self.heard.usage, usage));
        true
    }

    fn choice(&mut self, choice: &Choice<'_>) {
        self.report(choice.usage);
        self.heard.finished |= choice
            .finish_reason
            .is_some_and(|reason| reason.get().len() > 2);
        if let Some(word) = choice.finish_reason.and_then(finish_reason) {
            self.heard.finish_reason = Some(word);
            self.heard.cut_off |= word == "length";
        }
        if choice.index.unwrap_or(0) != 0 {
            return;
        }
        for said in [&choice.delta, &choice.message].into_iter().flatten() {
            if let Some(content) = said.content {
                self.content(content.get());
            }
            for call in said.tool_calls.iter().flatten() {
                self.call(call);
            }
        }
    }

    /// A string, or a list of parts of which the text counts.
    fn content(&mut self, json: &str) {
        if let Some(text) = inside(json) {
            self.text.push(text);
        } else if let Ok(parts) = serde_json::from_str::<Vec<Part<'_>>>(json) {
            for part in parts {
                if part.kind.is_none_or(|kind| kind == "text")
                    && let Some(text) = part.text.and_then(|text| inside(text.get()))
                {
                    self.text.push(text);
                }
            }
        }
    }

    /// Some providers say the id in every piece of a call, some give every call index 0.
    fn call(&mut self, call: &Call<'_>) {
        let Some(id) = call.id.and_then(|id| inside(id.get())) else {
            return;
        };
        if id.is_empty() || self.calls.len() >= MAX_CALLS {
            return;
        }
        let mut digest = Digester::new();
        digest.push(id);
        let entry = (call.index.unwrap_or(0), digest.finish());
        if call.index.is_none() || !self.calls.contains(&entry) {
            self.calls.push(entry);
        }
    }
}

/// One of the usual words.
fn finish_reason(said: &RawValue) -> Option<&'static str> {
    const WORDS: [&str; 5] = [
        "stop",
        "tool_calls",
        "length",
        "content_filter",
        "function_call",
    ];
    let said = said.get().strip_prefix('"')?.strip_suffix('"')?;
    WORDS.into_iter().find(|word| *word == said)
}

/// The raw contents of a JSON string.
fn inside(json: &str) -> Option<&[u8]> {
    json.strip_prefix('"')?.strip_suffix('"').map(str::as_bytes)
}
