//! The preface of a new course, in place of the messages before it.
//!
//! The preface holds the model's reminders. If there are none, or if the ending course began with the same ones, it also
//! holds facts that are picked mechanically from the removed messages. It depends on its input alone, and the only number in
//! it is that of the course. So the preface is the same in every request of the course.

use super::{Language, Prompts, RecoveryMemory};
use crate::{
    conversation::Conversation,
    guard::{
        injections::Course,
        ledger::{self, MAX_FACTS_CHARS},
    },
};

/// Most characters of facts next to reminders, fences included.
pub const MAX_FACTS_BESIDE: usize = 2_000;

/// The texts of a session, in its language.
#[derive(Clone, Copy)]
pub struct Wording<'a> {
    pub prompts: &'a Prompts,
    pub language: Language,
}

/// Begins the next course. `removed` are the ascending indices of the messages that the course leaves out; `boundary`
/// is the first kept message (see [`Course`]). `fits` checks whether a preface has room: if not, older reminders are
/// dropped first, then facts, never the head.
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
    let facts = |most: usize, beside: &str| {
        let fits_beside = |facts: &str| fits(&join_preface(beside, facts));
        ledger::gather_fitting(conversation, removed, most, fits_beside)
    };
    let preface = if memory.reminders.is_empty() {
        let head = prompts.facts_head(language, number);
        join_preface(&head, &facts(MAX_FACTS_CHARS, &head))
    } else {
        let head = prompts.reminders_head(language, number);
        let fit_below_head = |notes: &str| fits(&join_preface(&head, notes));
        let notes = memory.reminders.render_within(fit_below_head);
        let mut text = join_preface(&head, &notes);
        // If the ending course began with the same reminders, they hold nothing about that course.
        let ending = memory.course.as_ref();
        if ending.is_some_and(|course| course.preface.contains(&notes)) {
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
