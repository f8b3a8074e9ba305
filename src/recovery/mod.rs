//! Recovery: the model writes down what matters before the window is full, and a session that
//! reached its limit goes on in a new course.
//!
//! No I/O and no clock here.
//!
//! All of it hangs on the state that a conversation inherits: a retry counts once, a branch has the clock and the
//! reminders of its prefix, and another tenant has nothing of it. What was added is recorded (`guard/injections.rs`)
//! and put back into every later request. A new course is a fold with a place and a preface of its own.
//!
//! Switched off, by settings or by a header, recovery decides nothing and its clock stands still; what was recorded
//! is still put back, since taking it out would cost the prefix. What fails is taken back: a plan that is unsound,
//! a provider that refuses, a round that fails. The request then goes on as if recovery were not there.

pub mod clock;
pub mod course;
pub mod headers;
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
use crate::guard::injections::{Course, InjectionRecord};
pub use clock::{RecoveryAction, RecoveryClock};
pub use reminder::{Reminder, Reminders};

/// What recovery remembers of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryMemory {
    pub clock: RecoveryClock,
    pub reminders: Reminders,
    /// Of the current course.
    pub records: Vec<InjectionRecord>,
    /// `None` in the first course.
    pub course: Option<Course>,
    /// Our tools were added once, so they stay: a list of tools that changes costs the cache.
    pub tools: bool,
    /// Chosen once for a session.
    pub language: Option<Language>,
    /// The model asked for a new course together with calls of the client; it begins with the
    /// next request.
    pub clear_due: bool,
    /// Clears asked for from outside that were carried out.
    pub clears: u32,
    /// What of recovery's additions a provider refused: the session goes on without it.
    pub refused: RefusedAdditions,
}

/// What of recovery's additions a provider refused. Stored as the flag `refused` of older states: their
/// `false` and `true` are the first two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedAdditions {
    #[default]
    Nothing,
    /// A request was taken only without any of them.
    All,
    /// A request was taken only without a user message after a tool result.
    UserAfterTool,
}

impl RecoveryMemory {
    /// The number of the current course; the first is 1.
    pub fn course_number(&self) -> u32 {
        self.course.as_ref().map_or(1, |course| course.number)
    }
}

#[cfg(test)]
mod tests {
    use super::RefusedAdditions;

    #[test]
    fn what_was_refused_is_read_from_the_flag_of_older_states() {
        for (flag, read) in [
            (false, RefusedAdditions::Nothing),
            (true, RefusedAdditions::All),
        ] {
            let stored = postcard::to_stdvec(&flag).unwrap();
            let found: RefusedAdditions = postcard::from_bytes(&stored).unwrap();
            assert_eq!(found, read);
        }
    }
}
