//! What the proxy injects into a session's conversation: prompts, rounds of its tools, a course, a summary.
//!
//! A record that was sent once is put back at its place in every later request of the course, so that the prefix stays the
//! same and the model sees its own calls. Records are never made from another session's texts.
//!
//! A place is a count of the client's messages without system messages. A record is left out with the messages around it
//! when they are folded. A client that removes remarks from its last message moves the newest places: the session corrects
//! them where it takes over a state. Records end with their course, reminders do not. For rounds before an answer that
//! stays, digests are kept (see [`crate::guard::inject::dropped_rounds`]).

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    conversation::{Format, HiddenPlaces, digest::DigestBuilder},
    guard::text::fence,
    json::text::{self, TextSizes},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectionRecord {
    /// How many messages of the client are before it, without system messages. Prompts and rounds are placed directly after
    /// the last of them. Everything else belongs into the answer that follows.
    pub place: u32,
    pub what: InjectionContent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectionContent {
    /// A recovery prompt. The profile decides between a message, a paragraph and a block.
    Prompt(Box<str>),
    /// Whole messages of rounds that the client never saw, between its request and the answer.
    Round(Vec<InjectedMessage>),
    /// Proxy-executed calls that the model made in one answer with calls of the client's tools, in the answer at this place.
    Calls {
        /// The client's calls in that answer. An echo with another number is not edited.
        client_calls: u32,
        calls: Vec<InjectedCall>,
        /// Whole `tool` messages with their results, as JSON.
        results: Vec<Box<str>>,
    },
    /// Text that the client never saw, taken out of the answer at this place.
    Text {
        /// Characters before it in the answer as the client saw it.
        before_chars: u32,
        text: Box<str>,
    },
    /// The answer at this place, as the client saw it, begins with the text of the round before it: `chars` characters with
    /// this digest (see [`crate::json::text::digest_text`]). They are removed from the answer, since the round has them
    /// already.
    Spoken { chars: u32, digest: u128 },
    /// A round that is no longer sent. The answer at this place, as the client saw it, begins with the blocks that
    /// have these digests, in that order. They are removed from the answer, since no call or result of their round
    /// is sent either.
    DroppedRound { blocks: Vec<u128> },
    /// Tools of the proxy, as an entry next to the prompt before it, with which they came. If the profile allows no such
    /// entry here, the tools are in the request's list of tools.
    Tools {
        set: ToolSet,
        /// Their schemas, with commas between them.
        json: Box<str>,
    },
    /// Where in the answer at this place calls and a text were that the client never saw, as far as their own records do not
    /// say so. Reasoning behind them is valid only there.
    HiddenPlaces(HiddenPlaces),
}

impl InjectionContent {
    /// Whether it is placed before the answer at its place, or was while it was sent, and not in the answer.
    pub(in crate::guard) const fn is_before_answer(&self) -> bool {
        matches!(
            self,
            Self::Prompt(_) | Self::Round(_) | Self::DroppedRound { .. } | Self::Tools { .. }
        )
    }

    /// Whether it is a tool round, sent or dropped.
    pub(in crate::guard) const fn is_round(&self) -> bool {
        matches!(self, Self::Round(_) | Self::DroppedRound { .. })
    }

    /// Digests what is put back.
    pub(in crate::guard) fn digest(&self) -> u128 {
        let mut mix = DigestBuilder::default();
        let mut push = |tag, text: &str| mix.push_digest(tag, text::digest_text(text.as_bytes()));
        match self {
            Self::Prompt(text) | Self::Text { text, .. } => push(b't', text),
            Self::Round(messages) => messages.iter().for_each(|it| push(b'm', &it.json)),
            Self::Calls { calls, results, .. } => {
                calls.iter().for_each(|it| push(b'c', &it.json));
                results.iter().for_each(|it| push(b'r', it));
            }
            Self::Spoken { digest, .. } => mix.push_digest(b's', *digest),
            Self::DroppedRound { .. } | Self::HiddenPlaces(_) => {}
            Self::Tools { json, .. } => push(b'l', json),
        }
        mix.finish()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedMessage {
    pub by: InjectedAuthor,
    /// The message, a JSON object.
    pub json: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectedAuthor {
    User,
    /// The model, with its number of calls.
    Model {
        calls: u32,
    },
    /// A proxy-executed tool, with the result of an earlier call.
    Tool,
}

impl InjectedAuthor {
    pub(in crate::guard) const fn is_model(self) -> bool {
        matches!(self, Self::Model { .. })
    }
}

/// A proxy-executed call in an answer that called the client's tools too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedCall {
    /// The client's calls before it.
    pub before: u32,
    /// The call, a JSON object.
    pub json: Box<str>,
}

/// A stretch of a session after a clear. The preface takes the place of the messages between the pinned start and
/// `boundary`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// From 2 on: the first course, before any clear, has no `Course`.
    pub number: u32,
    /// The first message that is kept after the pinned start, counted without system messages.
    pub boundary: u32,
    /// The model's reminders, or the ledger. Bounded.
    pub preface: Box<str>,
}

/// A model's summary of the messages before `boundary`, which takes their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The first message that is kept after the pinned start, counted without system messages. Not
    /// before the boundary of the course in which the summary was made.
    pub boundary: u32,
    /// Its sections between fences, with nothing in them that looks like a fence; or the block of a summary that the provider
    /// made, as it made it, which is sent in the place of all messages before `boundary`. Bounded.
    pub text: Box<str>,
}

impl Summary {
    /// Whether the provider made it.
    pub fn is_block(&self) -> bool {
        self.text.starts_with('{')
    }

    /// Replaces a summary that the provider made with its text between fences, where its block cannot be sent.
    #[must_use]
    pub fn write_out(self, format: Format) -> Self {
        let read = || format.read_summary_text(&self.text).unwrap_or_default();
        let text = if self.is_block() {
            let (tag, text) = (fence::SUMMARY, read());
            format!("<{tag}>\n{}\n</{tag}>", fence::neutralize_tags(&text)).into()
        } else {
            self.text
        };
        Self { text, ..self }
    }
}

/// Everything that the proxy injects into one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injections {
    pub course: Option<Course>,
    /// Made in that course.
    pub summary: Option<Summary>,
    /// Oldest first; places never fall.
    pub records: Vec<InjectionRecord>,
    pub tools: Option<InjectedTools>,
    /// The tools that replace `tools` in a request that is cut. Their weight counts in every request, so that the cuts do
    /// not depend on when they were added.
    pub tools_when_cut: Option<InjectedTools>,
    /// Whether placeholders may name the id by which `recall` finds what they replace.
    pub names_ids: bool,
    /// The limit of new results in characters, while the session is not healthy.
    pub tight_chars: Option<usize>,
}

impl Injections {
    /// How many messages are before the first injection, without system messages; `None` without injections.
    pub(in crate::guard) fn find_first_place(&self) -> Option<usize> {
        let course = self.course.iter().map(|course| course.boundary);
        let summary = self.summary.iter().map(|summary| summary.boundary);
        let records = self.records.iter().map(|record| record.place);
        // No injection is placed before the first message.
        let places = course.chain(summary).chain(records);
        let first = places.filter(|&place| place > 0).min();
        first.map(|first| first as usize)
    }

    /// Whether rounds are put back, with the reasoning in them.
    pub fn has_rounds(&self) -> bool {
        self.records.iter().any(|record| record.what.is_round())
    }

    /// How many tool rounds are sent at this place.
    pub(in crate::guard) fn count_rounds(&self, place: u32) -> u32 {
        let at_place = self.records.iter().filter(|record| record.place == place);
        let rounds = at_place.filter(|record| matches!(record.what, InjectionContent::Round(_)));
        rounds.count() as u32
    }
}

/// Schemas of the proxy's tools, added to the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedTools {
    /// `tools`, or `functions` for requests of the legacy kind.
    pub field: &'static str,
    /// The elements of the array with commas between them, without brackets.
    pub json: Bytes,
    pub set: ToolSet,
    /// The sizes of `json`; shared, since they are large.
    pub(in crate::guard) sizes: Arc<TextSizes>,
}

impl InjectedTools {
    pub fn new(field: &'static str, json: Bytes, set: ToolSet) -> Self {
        let sizes = text::measure_json(&json).into();
        Self {
            field,
            json,
            set,
            sizes,
        }
    }
}

/// Which of the proxy's tools a request has. The first two are encoded like the `false` and `true` of a flag that older
/// states have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolSet {
    #[default]
    Nothing,
    Reminders,
    Recall,
    All,
}

impl ToolSet {
    pub const fn new(reminders: bool, recall: bool) -> Self {
        match (reminders, recall) {
            (false, false) => Self::Nothing,
            (true, false) => Self::Reminders,
            (false, true) => Self::Recall,
            (true, true) => Self::All,
        }
    }

    pub const fn has_reminders(self) -> bool {
        matches!(self, Self::Reminders | Self::All)
    }

    pub const fn has_recall(self) -> bool {
        matches!(self, Self::Recall | Self::All)
    }

    pub const fn is_empty(self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// The tools of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        let reminders = self.has_reminders() || other.has_reminders();
        Self::new(reminders, self.has_recall() || other.has_recall())
    }
}
