//! A new course: what stands in the place of all that came before it.
//!
//! The model's reminders, or, where it saved none, facts that are picked mechanically from what is
//! left out. The same input gives the same preface, and it holds no number but the course's own,
//! so it is the same in every request of the course.

mod excerpt;
mod facts;

use super::{Language, Memory, Prompts};
use crate::{guard::record::Course, wire::chat::Conversation};

/// Characters of all facts, fences included.
pub const MAX_FACTS_CHARS: usize = 6_000;

/// Begins the next course. `removed` are the indices of the messages that are left out from now
/// on, in their order; `boundary` is where what is kept begins (see [`Course`]).
pub fn begin(
    conversation: &Conversation,
    removed: &[usize],
    boundary: u32,
    memory: &Memory,
    prompts: &Prompts,
    language: Language,
) -> Course {
    let number = memory.course_number().saturating_add(1);
    let (head, fenced) = if memory.reminders.is_empty() {
        let facts = facts::gather(conversation, removed);
        (prompts.facts(language, number), facts)
    } else {
        let notes = memory.reminders.render();
        (prompts.reminders(language, number), notes)
    };
    let gap = if fenced.is_empty() { "" } else { "\n\n" };
    Course {
        number,
        boundary,
        preface: format!("{head}{gap}{fenced}").into(),
    }
}

#[cfg(test)]
mod tests;
