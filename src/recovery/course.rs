//! A new course: what stands in the place of all that came before it.
//!
//! The model's reminders; where it saved none, or none in the course that ends, facts that are
//! picked mechanically from what is left out. The same input gives the same preface, and it holds no number but the course's own,
//! so it is the same in every request of the course.

mod excerpt;
mod facts;

use super::{Language, Memory, Prompts};
use crate::{guard::record::Course, wire::chat::Conversation};

/// Characters of all facts, fences included.
pub const MAX_FACTS_CHARS: usize = 6_000;
/// The same beside reminders.
pub const MAX_FACTS_BESIDE: usize = 2_000;

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
    let facts = |most| facts::gather(conversation, removed, most);
    let (head, fenced) = if memory.reminders.is_empty() {
        (prompts.facts(language, number), facts(MAX_FACTS_CHARS))
    } else {
        let mut notes = memory.reminders.render();
        // Notes that this course began with already say nothing of what was done in it.
        let before = memory.course.as_ref();
        if before.is_some_and(|course| course.preface.contains(&notes)) {
            notes = format!("{notes}\n{}", facts(MAX_FACTS_BESIDE));
        }
        (prompts.reminders(language, number), notes)
    };
    let fenced = fenced.trim_end();
    let gap = if fenced.is_empty() { "" } else { "\n\n" };
    Course {
        number,
        boundary,
        preface: format!("{head}{gap}{fenced}").into(),
    }
}

#[cfg(test)]
mod tests;
