//! The proxy-executed tools: four for reminders, and `recall`.
//!
//! A model may write anything into a call. If a call cannot be executed, its tool result says what the model has to do.
//! Nothing here fails, and every tool result is short.

mod arguments;
mod offer;
mod recall;
mod schema;

use self::recall::RecallUse;
pub use self::{
    offer::{Offer, OfferRules, ToolOffer, decide_offer},
    recall::{RecallSource, restore_result},
};
use super::reminder::{self, ReminderError, Reminders, SavedReminder};
use crate::{conversation::Format, format::ProxyToolCall, guard::injections::ToolSet};

const ADD: &str = "add_reminder";
const UPDATE: &str = "update_reminder";
const DELETE: &str = "delete_reminder";
const CLEAR: &str = "clear_mind";

const RECALL: &str = "recall";

/// The names of the proxy-executed tools.
pub const TOOL_NAMES: &[&str] = &[ADD, UPDATE, DELETE, CLEAR, RECALL];

/// The names of the tools of a set.
pub fn list_names(set: ToolSet) -> &'static [&'static str] {
    let (reminders, recall) = TOOL_NAMES.split_at(TOOL_NAMES.len() - 1);
    match set {
        ToolSet::Nothing => &[],
        ToolSet::Reminders => reminders,
        ToolSet::Recall => recall,
        ToolSet::All => TOOL_NAMES,
    }
}

/// Results of proxy-executed calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionOutcome {
    /// For each call the tool result as a whole item, in the format of the conversation. The result of a recall is in
    /// the form from which [`restore_result`] makes an item.
    pub results: Vec<Box<str>>,
    /// The model asks for a new course.
    pub clear: bool,
    pub recalls: RecallCount,
}

/// The answer to one call.
#[derive(Clone)]
enum CallAnswer {
    Text(String),
    /// Parts of the conversation, in the form from which [`restore_result`] makes an item.
    Stored(Box<str>),
}

/// Calls of `recall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecallCount {
    pub found: u32,
    /// Nothing was found, or the arguments could not be used.
    pub missed: u32,
}

impl std::ops::AddAssign for RecallCount {
    fn add_assign(&mut self, more: Self) {
        self.found = self.found.saturating_add(more.found);
        self.missed = self.missed.saturating_add(more.missed);
    }
}

/// Executes the proxy-executed calls of one answer. Each call gets a tool result; successful calls change the
/// reminders. A call for a new course is executed last, and is refused if another call failed, since the model would
/// lose what it wanted to save. `may_be_lost` says that the store cannot keep the reminders.
pub fn execute_calls(
    format: Format,
    calls: &[ProxyToolCall],
    reminders: &mut Reminders,
    may_be_lost: bool,
    source: Option<&RecallSource<'_>>,
) -> ExecutionOutcome {
    let (mut failed, mut clear) = (false, false);
    let mut recalls = RecallCount::default();
    let mut used = RecallUse::default();
    let mut results = vec![Err(NOT_CLEARED.to_owned()); calls.len()];
    let mut pending: Vec<_> = calls.iter().zip(&mut results).collect();
    pending.sort_by_key(|(call, _)| &*call.name == CLEAR);
    for (call, result) in pending {
        match &*call.name {
            RECALL => {
                // A recall that finds nothing loses nothing, so a new course may begin all the same.
                *result = recall::execute_recall(call, source, &mut used);
                let is_found = matches!(result, Ok(CallAnswer::Stored(_)));
                recalls.found += u32::from(is_found);
                recalls.missed += u32::from(!is_found);
            }
            CLEAR if failed => {}
            name => {
                *result = execute_call(call, reminders).map(CallAnswer::Text);
                failed |= result.is_err();
                clear |= name == CLEAR && !failed;
            }
        }
    }
    let items = results.into_iter().zip(calls).map(|(result, call)| {
        let mut text = match result {
            Ok(CallAnswer::Stored(stored)) => return stored,
            Ok(CallAnswer::Text(text)) => text,
            Err(error) => format!("Error: {error}"),
        };
        if may_be_lost {
            text = format!("{text} {MAY_BE_LOST}");
        }
        format.result_item(call, &text)
    });
    ExecutionOutcome {
        results: items.collect(),
        clear,
        recalls,
    }
}

fn execute_call(call: &ProxyToolCall, reminders: &mut Reminders) -> Result<String, String> {
    if call.overlong {
        return Err(format!(
            "the arguments were too long, and nothing was done. Write a reminder of at most {} \
             characters.",
            reminder::MAX_NOTE_CHARS
        ));
    }
    let members = arguments::parse_members(&call.arguments)?;
    let text = arguments::find_text(&members).unwrap_or_default();
    let done = match &*call.name {
        ADD => reminders.add_note(&text).map(describe_saved),
        UPDATE => {
            let id = arguments::find_id(&members, reminders)?;
            reminders.update_note(id, &text).map(describe_saved)
        }
        DELETE => {
            let id = arguments::find_id(&members, reminders)?;
            let deleted = reminders.delete_note(id);
            deleted.map(|()| format!("Reminder r{id} was deleted."))
        }
        CLEAR => return execute_clear(&text, reminders),
        _ => {
            let names = TOOL_NAMES.join(", ");
            return Err(format!("there is no such tool; there are {names}."));
        }
    };
    done.map(|done| format!("{done} {GO_ON}"))
        .map_err(|error| explain_error(error, reminders))
}

const NOT_CLEARED: &str = "clear_mind was not carried out and no reminder of it was saved, since \
another call of the same reply failed. Correct that call, then call clear_mind again.";

const GO_ON: &str = "Go on with the work.";

const MAY_BE_LOST: &str = "But reminders cannot be stored at the moment, so this may be lost: write what you must not lose \
into the conversation, too.";

fn execute_clear(text: &str, reminders: &mut Reminders) -> Result<String, String> {
    let mut result = String::new();
    if !text.trim().is_empty() {
        let saved = reminders.add_note(text).map_err(|error| {
            let why = explain_error(error, reminders);
            format!("nothing was cleared, since the reminder could not be saved: {why}")
        })?;
        result = describe_saved(saved) + " ";
    }
    Ok(result + "A new course begins. " + GO_ON)
}

fn describe_saved(saved: SavedReminder) -> String {
    let id = saved.id;
    if saved.cut {
        let most = reminder::MAX_NOTE_CHARS;
        format!("Saved as r{id}, cut to its first {most} characters.")
    } else {
        format!("Saved as r{id}.")
    }
}

/// The error with a remedy.
fn explain_error(error: ReminderError, reminders: &Reminders) -> String {
    let notes = reminders.notes().iter();
    let ids: Vec<_> = notes.map(|note| format!("r{}", note.id)).collect();
    let ids = ids.join(", ");
    let remedy = match error {
        ReminderError::Empty => "Write its text into content.".to_owned(),
        ReminderError::TooMany => format!("Update or delete one of them first: {ids}."),
        ReminderError::TooLong => {
            format!("Write it shorter, or update or delete another one first: {ids}.")
        }
        ReminderError::Unknown if reminders.is_empty() => {
            format!("There are none yet; save one with {ADD}.")
        }
        ReminderError::Unknown => format!("There are {ids}."),
    };
    format!("{error}. {remedy}")
}

#[cfg(test)]
mod tests;
