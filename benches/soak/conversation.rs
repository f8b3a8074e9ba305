//! A conversation as its client has it: its messages, the next request, and the proxy's reports.
//!
//! Every text contains the conversation's marker, and the newest also the turn, so that a provider
//! detects a text of another conversation, and a missing one.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{
    assertions::ExpectedSession,
    run_state::{RedisEpoch, RunState},
};
use crate::support::{generate::Random, tool};

/// A model: its configured window, and its providers' real one.
pub(crate) struct SoakModel {
    pub(crate) name: &'static str,
    pub(crate) told: u32,
    pub(crate) holds: u32,
}

const fn model_as_told(name: &'static str, window: u32) -> SoakModel {
    SoakModel {
        name,
        told: window,
        holds: window,
    }
}

pub(crate) const MODELS: [SoakModel; 5] = [
    model_as_told("m8", 8_192),
    model_as_told("m16", 16_384),
    model_as_told("m32", 32_768),
    model_as_told("m128", 131_072),
    // Its providers have a smaller window than configured.
    SoakModel {
        name: "less",
        told: 32_768,
        holds: 24_576,
    },
];

/// The kind of a conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConversationKind {
    Chat,
    Agent,
    Large,
    Huge,
}

impl ConversationKind {
    /// Half are chats, most others are agents.
    fn from_number(number: usize) -> Self {
        match number % 100 {
            0..50 => Self::Chat,
            50..92 => Self::Agent,
            92..99 => Self::Large,
            _ => Self::Huge,
        }
    }

    /// Bytes of one new text.
    fn draw_text_length(self, random: &mut Random) -> usize {
        match self {
            Self::Chat => random.between(60, 2_000),
            Self::Agent => random.weighted(&[(70, 400), (25, 3_000), (5, 12_000)]),
            Self::Large => random.between(2_000, 30_000),
            Self::Huge => random.between(20_000, 250_000),
        }
    }

    /// Bytes after which a conversation is replaced by a new one.
    fn max_bytes(self) -> usize {
        match self {
            Self::Chat => 70_000,
            Self::Agent => 300_000,
            Self::Large => 1_000_000,
            Self::Huge => 3_500_000,
        }
    }

    fn choose_model(self, random: &mut Random) -> &'static str {
        match self {
            Self::Chat => random.pick(&["m8", "m32"]),
            Self::Agent => random.pick(&["m16", "m32", "less"]),
            Self::Large | Self::Huge => "m128",
        }
    }
}

pub(crate) struct ClientConversation {
    pub(crate) number: usize,
    /// Conversations of this client before this one.
    epoch: u64,
    kind: ConversationKind,
    pub(crate) marker: String,
    pub(crate) model: String,
    /// Messages as in a body, separated by commas.
    history: String,
    pub(crate) turn: u64,
    /// The reported state that must still hold.
    pub(crate) expected: Option<ExpectedSession>,
    pub(crate) random: Random,
}

/// How a request is sent.
#[derive(Clone, Copy)]
pub(crate) struct SendOptions {
    pub(crate) streams: bool,
    pub(crate) wants_usage: bool,
}

impl ClientConversation {
    pub(crate) fn new(world: &RunState, number: usize) -> Self {
        let random = world.random_with_salt(1_000 + number as u64);
        let mut talk = Self {
            number,
            epoch: 0,
            kind: ConversationKind::from_number(number),
            marker: String::new(),
            model: String::new(),
            history: String::new(),
            turn: 0,
            expected: None,
            random,
        };
        talk.begin_conversation();
        talk
    }

    /// A new conversation, with a history that a client may bring from elsewhere.
    fn begin_conversation(&mut self) {
        self.marker = format!(
            "{MARK}{:04}.{:03}.{:06x}",
            self.number,
            self.epoch,
            self.random.next() & 0xff_ffff
        );
        self.epoch += 1;
        let (which, model) = (
            self.random.pick(&["one", "two"]),
            self.kind.choose_model(&mut self.random),
        );
        self.model = format!("{which}/{model}");
        (self.turn, self.expected) = (0, None);
        self.history.clear();
        let marker = &self.marker;
        let system = json!({"role": "system", "content": format!("You mend ships. {marker}")});
        let task =
            json!({"role": "user", "content": format!("{marker} task: find every leak, mend it.")});
        let _ = write!(self.history, "{system},{task}");
        let share = [0, 0, 20, 50, 80][self.random.below(5)];
        let past = self.kind.max_bytes() * share / 100;
        for at in 0.. {
            let said = if self.has_tools() {
                let call = json!({"id": format!("past_{at}"), "type": "function",
                        "function": {"name": "read_file", "arguments": "{\"path\":\"hull.rs\"}"}});
                json!({"role": "assistant", "content": null, "tool_calls": [call]})
            } else {
                json!({"role": "assistant", "content": format!("{} past {at}", self.marker)})
            };
            self.take_message(&said);
            if self.history.len() >= past {
                break;
            }
        }
    }

    pub(crate) fn has_tools(&self) -> bool {
        self.kind != ConversationKind::Chat
    }

    /// Whether it runs on the replicas.
    pub(crate) fn uses_redis(&self) -> bool {
        self.number % 2 == 1
    }

    pub(crate) fn authorization(&self) -> String {
        format!("Bearer tenant-{}", self.number % 40)
    }

    pub(crate) fn wants_summaries(&self) -> bool {
        self.number.is_multiple_of(5)
    }

    pub(crate) fn write_body(&self, how: SendOptions) -> String {
        let mut body = format!("{{\"model\":\"{}\",\"stream\":{}", self.model, how.streams);
        if how.streams && how.wants_usage {
            body.push_str(",\"stream_options\":{\"include_usage\":true}");
        }
        if self.has_tools() {
            let _ = write!(body, ",\"tools\":[{}]", tool("read_file"));
        }
        if self.number.is_multiple_of(3) {
            body.push_str(",\"max_tokens\":700");
        }
        let _ = write!(body, ",\"messages\":[{}]}}", self.history);
        body
    }

    /// Adds the answer, and the next message.
    pub(crate) fn take_message(&mut self, message: &Value) {
        self.turn += 1;
        let _ = write!(self.history, ",{message}");
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let mut answered = false;
        for call in calls {
            let result = self.write_text();
            let result = json!({"role": "tool", "tool_call_id": call["id"], "content": result});
            let _ = write!(self.history, ",{result}");
            answered = true;
        }
        if !answered {
            let said = json!({"role": "user", "content": self.write_text()});
            let _ = write!(self.history, ",{said}");
        }
    }

    /// Replaces a conversation that is too long.
    pub(crate) fn restart_if_long(&mut self) {
        if self.history.len() > self.kind.max_bytes() {
            self.begin_conversation();
        }
    }

    /// Nothing that was stored meanwhile may be expected.
    pub(crate) fn forget_if_disturbed(&mut self, before: RedisEpoch, now: RedisEpoch) {
        if self.uses_redis() && !before.is_undisturbed_until(now) {
            self.expected = None;
        }
    }

    /// The next text: prose and code, with characters to escape, and the marker in every line.
    fn write_text(&mut self) -> String {
        let length = self.kind.draw_text_length(&mut self.random);
        let mut text = format!("{} turn {} ", self.marker, self.turn);
        while text.len() < length {
            let line = LINES[self.random.below(LINES.len())];
            let number = self.random.below(100_000);
            let _ = writeln!(text, "{line} {number} {}", self.marker);
        }
        text
    }
}

/// The prefix of every marker.
pub(crate) const MARK: &str = "mk~";
/// `mk~0123.004.a1b2c3`
pub(crate) const MARK_LENGTH: usize = 18;

const LINES: [&str; 8] = [
    "fn plank(tar: &str) -> Option<\"oak\"> {\n    caulk(tar)?;\n}",
    "{\"deck\": \"\\\\hold\\\\\", \"leaks\": [1, 2, null], \"ok\": true}",
    "The keel is sound; the third plank from the bow is not.",
    "船底有三处漏水，先补最大的一处。",
    "error[E0308]: mismatched types\n  --> src/hull.rs:17:9",
    "Die Naht über der Wasserlinie muß kalfatert werden — bald.",
    "\t0x7f\u{8}\u{1}\u{7f} bilge \u{1f6a2}\u{1f1f3}\u{1f1f1}",
    "    at mend (/srv/hull/src/mend.ts:44:13) </div> &amp; \"quoted\"",
];

/// A model's text: the number of the answer, its length, and that many bytes derived from both and
/// from the conversation.
pub(crate) fn provider_text(
    seed: u64,
    marker: &str,
    turn: u64,
    number: u64,
    length: usize,
) -> String {
    let mut text = format!("[{number:x}:{length}] ");
    let from = text.len();
    let key = xxhash_rust::xxh3::xxh3_64_with_seed(marker.as_bytes(), seed ^ turn);
    let mut random = Random::for_part(key, number);
    while text.len() - from < length {
        text.push_str(WORDS[random.below(WORDS.len())]);
    }
    text
}

const WORDS: [&str; 24] = [
    "keel ",
    "mast ",
    "of ",
    "the ",
    "a \"sail\" ",
    "rope\n",
    "tar, ",
    "deck. ",
    "hold\\ ",
    "né ",
    "船 ",
    "bow; ",
    "stern ",
    "\u{1f6a2} ",
    "plank\t",
    "oar ",
    "to ",
    "and ",
    "17 ",
    "0.3 ",
    "{x} ",
    "<b> ",
    "[y] ",
    "leak ",
];
