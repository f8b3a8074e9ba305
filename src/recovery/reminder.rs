//! Reminders: notes that the model keeps for itself. Together they are the continuation package
//! of a session, and survive a clear. Bounded in number and length.

use serde::{Deserialize, Serialize};

/// One note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    /// Shown to the model as `r1`, `r2`, …; never used again in a session.
    pub id: u32,
    pub text: Box<str>,
}

/// All notes of a session, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminders {
    notes: Vec<Reminder>,
    next: u32,
}

impl Reminders {
    pub fn notes(&self) -> &[Reminder] {
        &self.notes
    }
}
