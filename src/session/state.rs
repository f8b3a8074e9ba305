//! The state of a session after each generation.
//!
//! A state is stored as a version byte and a compact encoding of at most [`MAX_BYTES`]. Reading anything else is an
//! error, never a panic: a newer release may have written it. States of all releases from 0.1.0 on are read. The only texts
//! in a state are the tool rounds, prompts, reminders, prefaces and summaries that later requests need.

use std::{borrow::Cow, cmp::Ordering};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    compaction,
    conversation::{Format, PlaceMap},
    guard::{
        AnswerHistory, GuardMemory, SentHistory, SessionKnowledge, dropped_rounds,
        estimate::Calibration,
        injections::{InjectionContent, InjectionRecord, Injections},
    },
    health::{Health, HealthLevel, silent_truncation::UsageSample},
    recovery,
    session::{ReasoningMemory, history::History, history_sketch::HistorySketch},
    store::SessionId,
};

/// Largest stored state, in bytes.
pub const MAX_BYTES: usize = 128 << 10;

/// First byte of every stored state. It changes with the encoding: with every field or variant that is added, moved or
/// removed in [`SessionState`]. Release 0.1.0 writes 14. A release that takes 15 keeps a copy of the structs that it
/// changes, to read 14, and takes the next `FORMAT` of both stores.
const VERSION: u8 = 14;

/// Random id of a generation, never shown to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationId(pub [u8; 8]);

/// A session as it was after one generation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    pub session: SessionId,
    pub id: GenerationId,
    /// The generation before. If this generation carries out a command, the generation that the command names.
    pub follows: GenerationId,
    /// Answers so far, along this branch of the conversation.
    pub generations: u32,
    /// Messages of the request of this generation, without system messages. In an inherited state, at most the number of
    /// messages before the answer in the new request.
    pub messages: u32,
    pub model: Box<str>,
    pub provider: Box<str>,
    /// In tokens; `None` if it is only assumed.
    pub window: Option<u32>,
    pub optimal_max_tokens: Option<u32>,
    pub critical_max_tokens: Option<u32>,
    /// As the provider reported them; `None` if it did not.
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    /// Summed over all calls to providers for this generation; `None` if one of them reported no usage.
    pub billed_prompt_tokens: Option<u32>,
    pub billed_completion_tokens: Option<u32>,
    pub health: HealthLevel,
    /// Compared with the next usage to detect a provider that truncates prompts silently.
    pub sample: Option<UsageSample>,
    pub calibration: Calibration,
    pub guard: GuardMemory,
    pub recovery: recovery::RecoveryMemory,
    pub compaction: compaction::CompactionMemory,
    /// What the last request was made of; `None` if the guard did not plan that request.
    pub made_of: Option<PromptBreakdown>,
    pub history: History,
    /// Seconds since 1970.
    pub updated_s: u64,
    /// The wire format of the conversation and of the messages kept in the records.
    pub format: Format,
    /// Completion tokens of the largest answer so far; 0 before the first answer.
    pub largest_answer: u32,
    /// An answer ended at an answer cap that the guard had lowered. From then on the reserve is the requested cap, half
    /// of the window at most.
    pub cap_was_hit: bool,
    /// What was sent with the last request that the guard planned.
    pub sent_history: SentHistory,
    /// When a due caution prompt began to wait for a summary: milliseconds since 1970.
    pub caution_waits_since_ms: Option<u64>,
    /// When the last request began: milliseconds since 1970, 0 if unknown.
    pub asked_ms: u64,
    pub reasoning: ReasoningMemory,
    /// Distinguishes this conversation, after the client has edited it, from other conversations with the same answer.
    pub sketch: HistorySketch,
}

/// Calibrated estimate of the tokens of one request as it was sent, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptBreakdown {
    pub system: u32,
    /// Tool schemas and the response format.
    pub tools: u32,
    /// User and assistant messages, calls included.
    pub history: u32,
    pub tool_results: u32,
    pub images: u32,
    /// Added by the proxy: prompts, tools, notes and summaries.
    pub ours: u32,
    /// Kept free for the answer.
    pub reserve: u32,
    /// Tokens of the client's request that were not sent.
    pub left_out: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedState {
    pub bytes: Vec<u8>,
    /// Recovery records that were dropped to stay within [`MAX_BYTES`].
    pub records_shed: usize,
}

/// Why a state or commands cannot be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("state of {0} bytes exceeds the limit of {MAX_BYTES}")]
    TooLarge(usize),
    #[error("it has version {0} of a newer release, which this one cannot read")]
    Newer(u8),
    /// The states of all earlier releases are read, so only a build from before the first release can have written this one.
    #[error("it has version {0}, which no release has written")]
    Unreleased(u8),
    #[error("state cannot be encoded or decoded")]
    Malformed(#[from] postcard::Error),
    #[error("state is empty or has trailing bytes")]
    Length,
}

impl SessionState {
    /// A session before its first generation.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            ..Self::default()
        }
    }

    /// The health of the last generation, as it was judged then.
    pub fn last_health(&self) -> Health {
        Health::from_level(
            self.health,
            self.prompt_tokens,
            self.window,
            self.optimal_max_tokens,
        )
    }

    /// The guard's memory of earlier requests.
    pub fn to_knowledge(&self) -> SessionKnowledge {
        SessionKnowledge {
            memory: self.guard.clone(),
            history: self.sent_history,
            calibration: self.calibration,
            sent_messages: self.messages as usize,
            injections: Injections {
                course: self.recovery.course.clone(),
                summary: self.compaction.summary.clone(),
                records: self.recovery.records.clone(),
                ..Injections::default()
            },
            answers: AnswerHistory {
                largest: self.largest_answer,
                cap_was_hit: self.cap_was_hit,
            },
            ..SessionKnowledge::default()
        }
    }

    /// Adjusts places to a conversation that continues this state and has this generation's answer after `answer_at`
    /// messages.
    ///
    /// The answer may have moved, since clients add remarks after the last message and remove them later. All messages
    /// up to the previous answer are the same. Records of the last request move with its answer. A course cannot begin
    /// after the answer, since the later messages are new.
    pub fn realign_places(&mut self, answer_at: u32) {
        let recovery = &mut self.recovery;
        for record in &mut recovery.records {
            if record.place == self.messages {
                record.place = answer_at;
            }
        }
        recovery.records.retain(|record| record.place <= answer_at);
        self.sent_history.realign(self.messages, answer_at);
        if let Some(course) = &mut recovery.course {
            course.boundary = course.boundary.min(answer_at);
        }
        // A summary that covers more describes messages that are not in this conversation.
        let summary = &mut self.compaction.summary;
        summary.take_if(|summary| summary.boundary > answer_at);
        self.messages = self.messages.min(answer_at);
    }

    /// Moves the places in the state to where their messages are after the client edited its history. What belongs to a
    /// message that is gone is dropped; a boundary moves to the next message that is still there.
    pub(super) fn follow_edits(&mut self, places: &PlaceMap) {
        let move_place = |record: &mut InjectionRecord| {
            let place = places.find_place(record.place);
            record.place = place.unwrap_or(0);
            place.is_some()
        };
        self.recovery.records.retain_mut(move_place);
        self.sent_history.follow_edits(places);
        self.guard.follow_edits(places);
        let course = self.recovery.course.iter_mut().map(|it| &mut it.boundary);
        let summary = self.compaction.summary.iter_mut();
        let boundaries = course.chain(summary.map(|it| &mut it.boundary));
        for place in boundaries.chain([&mut self.messages, &mut self.sketch.began]) {
            *place = places.find_boundary(*place);
        }
        // The boundary of a summary that is still being written is from before the edits.
        self.compaction.job.take_if(|_| !places.is_identity());
    }

    /// The stored form. While it is over [`MAX_BYTES`], the older half of the records is dropped: they are the bulk of
    /// a state, and prompts are repeated. If no record is left, the older half of the limits that the guard remembers is dropped.
    ///
    /// # Errors
    /// [`StateError::TooLarge`] if nothing more can be dropped.
    pub fn encode_bounded(&self) -> Result<EncodedState, StateError> {
        let mut shed = Cow::Borrowed(self);
        loop {
            let bytes = encode_version(VERSION, &*shed)?;
            if bytes.len() <= MAX_BYTES {
                let left = &shed.recovery.records;
                let is_shed = |record: &&InjectionRecord| !left.contains(record);
                let records_shed = match &shed {
                    Cow::Borrowed(_) => 0,
                    Cow::Owned(_) => self.recovery.records.iter().filter(is_shed).count(),
                };
                return Ok(EncodedState {
                    bytes,
                    records_shed,
                });
            }
            let smaller = shed.to_mut();
            if !smaller.shed_records() && !smaller.guard.drop_older_half() {
                return Err(StateError::TooLarge(bytes.len()));
            }
        }
    }

    /// Drops the older half of the records; returns whether there were any. Records of one place are dropped together, since
    /// some are invalid without the others. The digest of a dropped tool round is kept. If only such digests are left, then
    /// the older half of them is dropped.
    fn shed_records(&mut self) -> bool {
        let records = &mut self.recovery.records;
        let is_digest =
            |it: &InjectionRecord| matches!(it.what, InjectionContent::DroppedRound { .. });
        let has_others = !records.iter().all(is_digest);
        let places = records.iter().filter(|it| !has_others || !is_digest(it));
        let places: Vec<u32> = places.map(|record| record.place).collect();
        let Some(last) = places.get(places.len().saturating_sub(1) / 2) else {
            return false;
        };
        let end = records.partition_point(|record| record.place <= *last);
        let older: Vec<_> = records.drain(..end).collect();
        let kept = dropped_rounds::end_records(self.format, &older, 0);
        if kept != older {
            records.splice(..0, kept);
        }
        true
    }

    /// Reads a stored form.
    ///
    /// # Errors
    /// For anything but the whole output of [`Self::encode_bounded`] of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        if bytes.len() > MAX_BYTES {
            return Err(StateError::TooLarge(bytes.len()));
        }
        decode_version(VERSION, bytes)
    }
}

/// The version byte, and the encoding of a value.
pub(super) fn encode_version(version: u8, value: &impl Serialize) -> Result<Vec<u8>, StateError> {
    Ok(postcard::to_extend(value, vec![version])?)
}

pub(super) fn decode_version<T: DeserializeOwned>(
    version: u8,
    bytes: &[u8],
) -> Result<T, StateError> {
    let (&found, rest) = bytes.split_first().ok_or(StateError::Length)?;
    match found.cmp(&version) {
        Ordering::Less => return Err(StateError::Unreleased(found)),
        Ordering::Equal => {}
        Ordering::Greater => return Err(StateError::Newer(found)),
    }
    match postcard::take_from_bytes(rest)? {
        (value, []) => Ok(value),
        _ => Err(StateError::Length),
    }
}

#[cfg(test)]
mod tests;
