//! What of ours stands in a conversation as it is sent: prompts, rounds of our tools, a course.
//!
//! Each was sent once and is put back at its place ever after, until the next course, so that the
//! prefix stays the same and the model sees what it did. The texts and the calls are the session's
//! own; nothing here is ever made from another's.
//!
//! A place is a count of the client's messages, system messages apart. A record whose neighbours are folded away
//! goes with them. A client that takes remarks out of its last message moves the newest places; the session sets
//! them right where a state is inherited. Records end with their course, reminders do not.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Something of ours, at its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectionRecord {
    /// The client's messages before it, system messages apart. It stands right after the last of
    /// them; what belongs to the answer given there is put into the message that follows.
    pub place: u32,
    pub what: InjectionContent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectionContent {
    /// A recovery prompt. As a message, a paragraph or a block: by the profile.
    Prompt(Box<str>),
    /// Whole messages of rounds that the client never saw, between its request and the answer.
    Round(Vec<InjectedMessage>),
    /// Calls of ours that the model made beside the client's, in the answer at this place.
    Calls {
        /// Calls of the client in that answer: what was echoed otherwise is left as it is.
        theirs: u32,
        calls: Vec<InjectedCall>,
        /// Whole `tool` messages that answer them, as JSON.
        results: Vec<Box<str>>,
    },
    /// Text that was taken out of the answer at this place.
    Text {
        /// Characters of the answer, as the client saw it, that stand before it.
        before_chars: u32,
        text: Box<str>,
    },
    /// The answer at this place, as the client saw it, begins with what was said in the round
    /// before it: so many characters, with that digest (see [`crate::json::text::digest`]). They
    /// are left out there, since they stand in the round.
    Spoken { chars: u32, digest: u128 },
}

/// One whole message of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedMessage {
    pub by: InjectedAuthor,
    /// The message, a JSON object.
    pub json: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InjectedAuthor {
    User,
    /// The model, with so many calls.
    Model {
        calls: u32,
    },
    /// A tool of ours, answering one of the calls before.
    Tool,
}

/// A call of ours in an answer that called the client's tools too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedCall {
    /// Calls of the client before it.
    pub before: u32,
    /// The call, a JSON object.
    pub json: Box<str>,
}

/// A stretch of a session after a clear: what came before `boundary` is gone, but for the pinned
/// start, and the preface stands in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// The first one, before any clear, is 1 and has no `Course`.
    pub number: u32,
    /// The first message that is kept after the pinned start, counted without system messages.
    pub boundary: u32,
    /// Bounded; holds the model's reminders, or mechanical facts.
    pub preface: Box<str>,
}

/// What a model wrote of the messages before `boundary`, which are left out for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The first message that is kept after the pinned start, counted without system messages. Not
    /// before that of the course in which the summary was made.
    pub boundary: u32,
    /// Its sections between fences, with nothing in them that looks like one; bounded.
    pub text: Box<str>,
}

/// All of ours that one request carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injections {
    pub course: Option<Course>,
    /// Made in that course.
    pub summary: Option<Summary>,
    /// In the order in which they came about; places never fall.
    pub records: Vec<InjectionRecord>,
    pub tools: Option<InjectedTools>,
    /// New results are held to so many characters, because the session is not healthy.
    pub tight_chars: Option<usize>,
}

/// Schemas of our tools, added to the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedTools {
    /// `tools`, or `functions` for requests of the legacy kind.
    pub field: &'static str,
    /// The elements, commas between, without brackets.
    pub json: Bytes,
}
