//! A new course: what stands in the place of all that came before it.
//!
//! The model's reminders; where it saved none, or none in the course that ends, facts that are
//! picked mechanically from what is left out. The same input gives the same preface, and it holds
//! no number but the course's own, so it is the same in every request of the course.

use super::{Language, Prompts, RecoveryMemory};
use crate::{
    conversation::Conversation,
    guard::{injections::Course, ledger},
};

/// Characters of all facts, fences included.
pub const MAX_FACTS_CHARS: usize = 6_000;
/// The same beside reminders.
pub const MAX_FACTS_BESIDE: usize = 2_000;
/// Less is hardly one fact.
const LEAST_FACTS_CHARS: usize = 100;

/// The texts of a session, in its language.
#[derive(Clone, Copy)]
pub struct Wording<'a> {
    pub prompts: &'a Prompts,
    pub language: Language,
}

/// Begins the next course. `removed` are the indices of the messages that are left out from now
/// on, in their order; `boundary` is where what is kept begins (see [`Course`]). `fits`: whether
/// there is room for a preface; older notes give way, and then facts, but never its head.
pub fn begin_course(
    conversation: &Conversation,
    removed: &[usize],
    boundary: u32,
    memory: &RecoveryMemory,
    wording: Wording<'_>,
    fits: impl Fn(&str) -> bool,
) -> Course {
    let Wording { prompts, language } = wording;
    let number = memory.course_number().saturating_add(1);
    let notes = |head: &str| {
        let within = |fenced: &str| fits(&join_preface(head, fenced));
        memory.reminders.render_within(within)
    };
    // Picked shorter until there is room for them.
    let facts = |most: usize, beside: &str| {
        let lengths = std::iter::successors(Some(most), |most| Some(most / 2));
        lengths
            .take_while(|&most| most >= LEAST_FACTS_CHARS)
            .map(|most| ledger::gather(conversation, removed, most))
            .find(|facts| fits(&join_preface(beside, facts)))
            .unwrap_or_default()
    };
    let preface = if memory.reminders.is_empty() {
        let head = prompts.facts_head(language, number);
        let facts = facts(MAX_FACTS_CHARS, &head);
        join_preface(&head, &facts)
    } else {
        let head = prompts.reminders_head(language, number);
        let notes = notes(&head);
        let mut text = join_preface(&head, &notes);
        // Notes that this course began with already say nothing of what was done in it.
        let before = memory.course.as_ref();
        if before.is_some_and(|course| course.preface.contains(&notes)) {
            let facts = facts(MAX_FACTS_BESIDE, &text);
            if !facts.is_empty() {
                text = format!("{text}\n{facts}");
            }
        }
        text
    };
    Course {
        number,
        boundary,
        preface: preface.into(),
    }
}

fn join_preface(head: &str, fenced: &str) -> String {
    let gap = if fenced.is_empty() { "" } else { "\n\n" };
    format!("{head}{gap}{fenced}")
}

#[cfg(test)]
mod tests;
