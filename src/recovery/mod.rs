//! Recovery: the model writes down what matters before the window is full, and a session that
//! reached its limit goes on in a new course.
//!
//! No I/O and no clock here.

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
use crate::guard::record::{Course, Record};
pub use clock::{Clock, Due};
pub use reminder::{Reminder, Reminders};

/// What recovery remembers of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub clock: Clock,
    pub reminders: Reminders,
    /// Of the current course.
    pub records: Vec<Record>,
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
    /// A provider took a request only without what is ours: the session goes on without.
    pub refused: bool,
}

impl Memory {
    /// The number of the current course; the first is 1.
    pub fn course_number(&self) -> u32 {
        self.course.as_ref().map_or(1, |course| course.number)
    }
}
