//! What is remembered of a session after each generation.
//!
//! Stored as a version byte and a compact encoding. Reading anything else is an error, never a
//! panic: a store may hold what a newer release wrote. Bounded: a state is at most
//! [`MAX_BYTES`] long. Of what was said it holds the rounds and notes that recovery puts back or
//! carries over, and nothing else.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    compaction,
    conversation::Format,
    guard::{AnswerHistory, GuardMemory, Recall, estimate::Calibration, injections::Injections},
    health::{Health, HealthLevel, silent_truncation::UsageSample},
    recovery,
    session::history::History,
    store::SessionId,
};

/// Bytes of one stored state.
pub const MAX_BYTES: usize = 128 << 10;

/// First byte of every stored state; changes with the meaning of any byte after it.
const VERSION: u8 = 6;

/// The version before, which lacks [`Later`] and is still read.
const VERSION_BEFORE: u8 = 5;

/// Tells a generation from all others of its session; random, and never shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationId([u8; 8]);

impl GenerationId {
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }
}

/// A session as it was after one generation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    pub session: SessionId,
    pub id: GenerationId,
    /// The generation before; or the one that an order was made for which is still open.
    pub follows: GenerationId,
    /// Answers so far, along this branch of the conversation.
    pub generations: u32,
    /// Messages the client sent with the request of that generation, system messages apart. Of an
    /// inherited state: as many of them as may stand before the answer in the new request.
    pub messages: u32,
    pub model: Box<str>,
    pub provider: Box<str>,
    /// In tokens; `None` where it is only assumed.
    pub window: Option<u32>,
    pub optimal_max_tokens: Option<u32>,
    pub critical_max_tokens: Option<u32>,
    /// As the provider reported them; `None` where it did not.
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    /// Summed over all calls to the provider that the generation took; `None` where one of them
    /// was not reported.
    pub billed_prompt_tokens: Option<u32>,
    pub billed_completion_tokens: Option<u32>,
    pub health: HealthLevel,
    /// What tells whether the provider cuts prompts in silence.
    pub sample: Option<UsageSample>,
    pub calibration: Calibration,
    pub guard: GuardMemory,
    pub recovery: recovery::RecoveryMemory,
    pub compaction: compaction::CompactionMemory,
    /// What the last request was made of; `None` where it was not looked at.
    pub made_of: Option<PromptBreakdown>,
    pub history: History,
    /// Seconds since 1970.
    pub updated_s: u64,
    /// The format of the conversation, and so of what is kept of it whole: answers, calls, results.
    #[serde(skip)]
    pub format: Format,
    /// Completion tokens of the largest answer so far; 0 before any.
    #[serde(skip)]
    pub largest_answer: u32,
    /// An answer ended at an answer cap that the guard had lowered: from then on as much as was asked for is
    /// kept free, half of the window at most.
    #[serde(skip)]
    pub cap_was_hit: bool,
    /// The caution prompt that was due waited for a summary, since then: milliseconds since 1970.
    #[serde(skip)]
    pub caution_waits_since_ms: Option<u64>,
}

/// What version 6 stores behind the fields of version 5; nothing where all of it is as by default, which
/// keeps the states of short sessions small.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct StateExtension {
    /// [`Memory::alternates`].
    alternates: Option<bool>,
    largest_answer: u32,
    cap_was_hit: bool,
    /// Of each point of the history, as [`History::completions`] packs them.
    completions: Vec<u32>,
    caution_waits_since_ms: Option<u64>,
}

impl StateExtension {
    fn from_state(state: &SessionState) -> Self {
        Self {
            alternates: state.guard.alternates,
            largest_answer: state.largest_answer,
            cap_was_hit: state.cap_was_hit,
            completions: state.history.pack_completions(),
            caution_waits_since_ms: state.caution_waits_since_ms,
        }
    }

    fn restore_into(self, state: &mut SessionState) {
        state.guard.alternates = self.alternates;
        state.largest_answer = self.largest_answer;
        state.cap_was_hit = self.cap_was_hit;
        state.history.restore_completions(&self.completions);
        state.caution_waits_since_ms = self.caution_waits_since_ms;
    }
}

/// Estimated tokens of one request as it went out, by what they are of, calibrated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptBreakdown {
    pub system: u32,
    /// Tool schemas and the response format.
    pub tools: u32,
    /// User and assistant messages, calls included.
    pub history: u32,
    pub tool_results: u32,
    pub images: u32,
    /// What the proxy added: prompts, tools, notes and summaries.
    pub ours: u32,
    /// Kept free for the answer.
    pub reserve: u32,
    /// Of what came, what did not go out.
    pub left_out: u32,
}

/// A state's stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedState {
    pub bytes: Vec<u8>,
    /// Records of recovery that were left out, because there was too much.
    pub records_shed: usize,
}

/// Why a state cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("state of {0} bytes is over the limit")]
    TooLarge(usize),
    #[error("state of version {0}, which this release does not know")]
    Version(u8),
    #[error("state cannot be encoded or decoded")]
    Malformed(#[source] postcard::Error),
    #[error("state is empty or has bytes left over")]
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

    /// What the guard needs to know of the requests before.
    pub fn to_recall(&self) -> Recall {
        Recall {
            memory: self.guard.clone(),
            calibration: self.calibration,
            counted: false,
            messages: self.messages as usize,
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
        }
    }

    /// Moves places to where they are in a conversation that continues this state, whose answer
    /// stands after so many messages there.
    ///
    /// Clients put passing remarks behind the last message and take them out later, so the answer
    /// may have moved. All up to the answer before it is the same. What was done with the request
    /// belongs to its answer and moves along; a course cannot begin behind it, since from there on
    /// nothing was known.
    pub fn realign_places(&mut self, answer_at: u32) {
        let recovery = &mut self.recovery;
        for record in &mut recovery.records {
            if record.place == self.messages {
                record.place = answer_at;
            }
        }
        recovery.records.retain(|record| record.place <= answer_at);
        if let Some(course) = &mut recovery.course {
            course.boundary = course.boundary.min(answer_at);
        }
        // It tells of messages that are not there.
        let summary = &mut self.compaction.summary;
        if summary.as_ref().is_some_and(|it| it.boundary > answer_at) {
            *summary = None;
        }
        self.messages = self.messages.min(answer_at);
    }

    /// The stored form. While it is over [`MAX_BYTES`], the oldest records go first, since they
    /// are the bulk and what they say is said again; then the guard's memory sheds its oldest.
    ///
    /// # Errors
    /// [`StateError::TooLarge`] where nothing more could be dropped.
    pub fn encode_bounded(&self) -> Result<EncodedState, StateError> {
        let mut shed = Cow::Borrowed(self);
        loop {
            let bytes = shed.to_bytes()?;
            if bytes.len() <= MAX_BYTES {
                let records_shed = self.recovery.records.len() - shed.recovery.records.len();
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

    /// Drops the older half of the records; returns whether there were any. Those of one place go
    /// together: some are nothing, or wrong, without the others.
    fn shed_records(&mut self) -> bool {
        let records = &mut self.recovery.records;
        let half = records.len().div_ceil(2);
        let Some(last) = half.checked_sub(1).and_then(|last| records.get(last)) else {
            return false;
        };
        let last = last.place;
        records.retain(|record| record.place > last);
        true
    }

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let bytes = postcard::to_extend(self, vec![VERSION]).map_err(StateError::Malformed)?;
        let (later, format) = (StateExtension::from_state(self), self.format);
        if later == StateExtension::default() && format == Format::default() {
            return Ok(bytes);
        }
        let bytes = postcard::to_extend(&later, bytes).map_err(StateError::Malformed)?;
        if format == Format::default() {
            return Ok(bytes);
        }
        postcard::to_extend(&format, bytes).map_err(StateError::Malformed)
    }

    /// Reads a stored form.
    ///
    /// # Errors
    /// For anything but the whole of what [`Self::encode`] of this version, or of the one before, wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        let (&version, rest) = bytes.split_first().ok_or(StateError::Length)?;
        if bytes.len() > MAX_BYTES {
            return Err(StateError::TooLarge(bytes.len()));
        }
        if version != VERSION && version != VERSION_BEFORE {
            return Err(StateError::Version(version));
        }
        let (mut state, mut rest) =
            postcard::take_from_bytes::<Self>(rest).map_err(StateError::Malformed)?;
        if version == VERSION && !rest.is_empty() {
            let later;
            (later, rest) =
                postcard::take_from_bytes::<StateExtension>(rest).map_err(StateError::Malformed)?;
            later.restore_into(&mut state);
            // Of chat completions, whose states are the oldest, nothing more is written.
            if !rest.is_empty() {
                (state.format, rest) =
                    postcard::take_from_bytes(rest).map_err(StateError::Malformed)?;
                if state.format == Format::default() {
                    return Err(StateError::Length);
                }
            }
        }
        match rest {
            [] => Ok(state),
            _ => Err(StateError::Length),
        }
    }
}

#[cfg(test)]
mod tests;
