//! Recovery: the model saves reminders before the window is full, and a session at its limit continues in a new course.
//! No I/O and no clock here.
//!
//! Recovery depends on the state that a conversation inherits: a retry counts once, a branch has the recovery clock and
//! the reminders of its prefix, and other tenants share nothing. What the proxy injects is recorded
//! (`guard/inject/injections.rs`), and injected again into every later request. A new course is a fold whose boundary
//! and preface recovery chooses.
//!
//! If settings or a header switch recovery off, recovery decides nothing, and the recovery clock does not advance. Recorded
//! injections stay in requests, since their removal would break the prompt cache. After a failure (an invalid plan, a
//! refusal by the provider, a failed tool round) the additions are withdrawn, and the request continues without them.

pub mod clock;
pub mod course;
pub mod headers;
pub mod hold;
pub mod language;
pub mod reminder;
pub mod tool;

#[cfg(test)]
pub(crate) mod fixture;

use serde::{Deserialize, Serialize};

pub use crate::config::{
    Language,
    prompts::{self as prompt, Prompts},
};
use crate::guard::injections::{Course, InjectionRecord, ToolSet};
pub use clock::{RecoveryAction, RecoveryClock};
pub use hold::{RecoveryHold, has_little_room};
pub use reminder::{Reminder, Reminders};

/// Recovery's part of a session state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryMemory {
    pub clock: RecoveryClock,
    pub reminders: Reminders,
    /// The injections of the current course.
    pub records: Vec<InjectionRecord>,
    /// `None` in the first course.
    pub course: Option<Course>,
    /// The proxy's tools that were added to a request. They stay, since a changed list of tools breaks the cache.
    pub tools: ToolSet,
    /// Chosen once per session.
    pub language: Option<Language>,
    /// The model asked for a new course in an answer that also calls the client's tools. The course begins with the next
    /// request.
    pub clear_due: bool,
    /// Clears by API commands so far.
    pub clears: u32,
    /// The additions without which the session continues.
    pub refused: RefusedAdditions,
    /// Why recovery added nothing new to the last request, or no caution prompt.
    pub held: Option<RecoveryHold>,
}

/// Additions of recovery that a provider refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedAdditions {
    #[default]
    Nothing,
    /// The provider accepted a request only without any of them.
    All,
    /// The provider accepted a request only without a user message after a tool result, or without a system message in the
    /// middle of the list.
    UserAfterTool,
}

impl RecoveryMemory {
    /// The number of the current course; the first is 1.
    pub fn course_number(&self) -> u32 {
        self.course.as_ref().map_or(1, |course| course.number)
    }
}
