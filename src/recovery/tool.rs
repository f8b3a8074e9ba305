//! The four tools that the proxy executes itself.
//!
//! Calls are a model's, so they may be anything: whatever is wrong with one becomes the tool's
//! answer, which says what to do. Nothing here fails, and every answer is short.

mod arguments;
mod offer;
mod schema;

use self::arguments::ReminderArguments;
pub use self::offer::{Offer, decide_offer};
use super::reminder::{self, ReminderError, Reminders, SavedReminder};
use crate::{conversation::Format, format::ProxyToolCall};

const ADD: &str = "add_reminder";
const UPDATE: &str = "update_reminder";
const DELETE: &str = "delete_reminder";
const CLEAR: &str = "clear_mind";

/// The names of our tools.
pub const TOOL_NAMES: &[&str] = &[ADD, UPDATE, DELETE, CLEAR];

/// What calls of our tools came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionOutcome {
    /// For each call the whole item that answers it, in the format of the conversation.
    pub results: Vec<Box<str>>,
    /// The model asks for a new course.
    pub clear: bool,
}

/// Executes the calls of our tools in one answer. Each gets an answer; the reminders change by those
/// that could be carried out. A new course comes after all others, and not where one of them failed:
/// what the model wanted to keep would be lost with it.
pub fn execute_calls(
    format: Format,
    calls: &[ProxyToolCall],
    reminders: &mut Reminders,
) -> ExecutionOutcome {
    let clears = |call: &ProxyToolCall| &*call.name == CLEAR;
    let mut answers: Vec<_> = calls
        .iter()
        .map(|call| match clears(call) {
            true => Err(NOT_CLEARED.to_owned()),
            false => execute_call(call, reminders),
        })
        .collect();
    let mut others = calls.iter().zip(&answers).filter(|(call, _)| !clears(call));
    let mut failed = others.any(|(_, answer)| answer.is_err());
    let mut executed = ExecutionOutcome::default();
    for (call, answer) in calls.iter().zip(&mut answers) {
        if clears(call) && !failed {
            *answer = execute_call(call, reminders);
            failed = answer.is_err();
            executed.clear |= !failed;
        }
    }
    let told = answers.into_iter().zip(calls).map(|(answer, call)| {
        let answer = answer.unwrap_or_else(|error| format!("Error: {error}"));
        format.result_item(call, &answer)
    });
    executed.results = told.collect();
    executed
}

fn execute_call(call: &ProxyToolCall, reminders: &mut Reminders) -> Result<String, String> {
    if call.overlong {
        return Err(format!(
            "the arguments were too long, and nothing was done. Write a reminder of at most {} \
             characters.",
            reminder::MAX_NOTE_CHARS
        ));
    }
    let arguments = ReminderArguments::from_json(&call.arguments)?;
    match &*call.name {
        ADD => {
            let kept = reminders.add_note(&arguments.reminder_text().unwrap_or_default());
            kept.map(|kept| format!("{} {GO_ON}", describe_saved(kept)))
                .map_err(|refused| explain_error(refused, reminders))
        }
        UPDATE => {
            let id = arguments.reminder_id(reminders)?;
            let kept = reminders.update_note(id, &arguments.reminder_text().unwrap_or_default());
            kept.map(|kept| format!("{} {GO_ON}", describe_saved(kept)))
                .map_err(|refused| explain_error(refused, reminders))
        }
        DELETE => {
            let id = arguments.reminder_id(reminders)?;
            let deleted = reminders.delete_note(id);
            deleted
                .map(|()| format!("Reminder r{id} was deleted. {GO_ON}"))
                .map_err(|refused| explain_error(refused, reminders))
        }
        CLEAR => execute_clear(&arguments, reminders),
        _ => Err(format!(
            "there is no such tool; there are {}.",
            TOOL_NAMES.join(", ")
        )),
    }
}

const NOT_CLEARED: &str = "clear_mind was not carried out and no reminder of it was saved, since \
another call of the same reply failed. Correct that call, then call clear_mind again.";

const GO_ON: &str = "Go on with the work.";

fn execute_clear(
    arguments: &ReminderArguments,
    reminders: &mut Reminders,
) -> Result<String, String> {
    let content = arguments
        .reminder_text()
        .filter(|text| !text.trim().is_empty());
    let mut answer = String::new();
    if let Some(content) = content {
        let kept = reminders.add_note(&content).map_err(|refused| {
            let why = explain_error(refused, reminders);
            format!("nothing was cleared, since the reminder could not be saved: {why}")
        })?;
        answer = describe_saved(kept) + " ";
    }
    Ok(answer + "A new course begins. " + GO_ON)
}

fn describe_saved(kept: SavedReminder) -> String {
    let id = kept.id;
    if kept.cut {
        let most = reminder::MAX_NOTE_CHARS;
        format!("Saved as r{id}, cut to its first {most} characters.")
    } else {
        format!("Saved as r{id}.")
    }
}

/// What is wrong, and what to do.
fn explain_error(refused: ReminderError, reminders: &Reminders) -> String {
    let remedy = match refused {
        ReminderError::Empty => "Write its text into content.".to_owned(),
        ReminderError::TooMany => format!(
            "Update or delete one of them first: {}.",
            list_ids(reminders)
        ),
        ReminderError::TooLong => format!(
            "Write it shorter, or update or delete another one first: {}.",
            list_ids(reminders)
        ),
        ReminderError::Unknown if reminders.is_empty() => {
            format!("There are none yet; save one with {ADD}.")
        }
        ReminderError::Unknown => format!("There are {}.", list_ids(reminders)),
    };
    format!("{refused}. {remedy}")
}

/// The ids of all reminders.
fn list_ids(reminders: &Reminders) -> String {
    let ids: Vec<_> = reminders
        .notes()
        .iter()
        .map(|note| format!("r{}", note.id))
        .collect();
    ids.join(", ")
}

#[cfg(test)]
mod tests;
