//! Reminders: notes that the model keeps for itself. They survive a clear, and with them a session continues.
//!
//! Notes are bounded in number and length, so that a state can hold them twice: once here, and once in the preface of a
//! course. A note is stored as the model wrote it; when the note is shown, fence tags in it are neutralised.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::guard::fence;

/// Most characters of one note.
pub const MAX_NOTE_CHARS: usize = 4_000;
/// Most characters of a continuation block.
pub const MAX_PACKAGE_CHARS: usize = 8_000;
/// Most notes of a session.
pub const MAX_NOTES: usize = 32;
/// Most characters of all notes.
pub const MAX_CHARS: usize = 16_000;
/// Most bytes of all notes, so that a state can hold them twice in any script.
pub const MAX_BYTES: usize = 20_000;
/// A shortened note is shown with at least this many characters.
const LEAST_CHARS: usize = 100;

/// One note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    /// Shown to the model as `r1`, `r2`, …; never reused in a session.
    pub id: u32,
    pub text: Box<str>,
    pub kind: ReminderKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReminderKind {
    /// The model saved it with a tool.
    Note,
    /// It was taken from the newest continuation block; there is at most one.
    Package,
}

/// All notes of a session, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminders {
    notes: Vec<Reminder>,
    /// Ids given so far.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedReminder {
    pub id: u32,
    /// The note was cut at [`MAX_NOTE_CHARS`].
    pub cut: bool,
}

/// Why a note was not saved, changed or deleted. The texts are for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReminderError {
    #[error("the reminder is empty")]
    Empty,
    #[error("there are {MAX_NOTES} reminders already, which is the most")]
    TooMany,
    #[error("all reminders together would be too long")]
    TooLong,
    #[error("there is no reminder of that id")]
    Unknown,
}

impl Reminders {
    pub fn notes(&self) -> &[Reminder] {
        &self.notes
    }

    pub const fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Saves a new note, trimmed and cut at [`MAX_NOTE_CHARS`].
    ///
    /// # Errors
    /// If the note is empty or has no room. Then nothing changes.
    pub fn add_note(&mut self, text: &str) -> Result<SavedReminder, ReminderError> {
        let (text, cut) = cut_note(text, MAX_NOTE_CHARS)?;
        if self.notes.len() >= MAX_NOTES {
            return Err(ReminderError::TooMany);
        }
        if !self.remaining_room(None).can_hold(text) {
            return Err(ReminderError::TooLong);
        }
        let id = self
            .push_note(text, ReminderKind::Note)
            .ok_or(ReminderError::TooMany)?;
        Ok(SavedReminder { id, cut })
    }

    /// Replaces the text of a note by the rules of [`Self::add_note`].
    ///
    /// # Errors
    /// If there is no such note, or the text is empty or has no room. Then nothing changes.
    pub fn update_note(&mut self, id: u32, text: &str) -> Result<SavedReminder, ReminderError> {
        let at = self.find_note(id).ok_or(ReminderError::Unknown)?;
        let (text, cut) = cut_note(text, MAX_NOTE_CHARS)?;
        if !self.remaining_room(Some(at)).can_hold(text) {
            return Err(ReminderError::TooLong);
        }
        self.notes[at].text = text.into();
        Ok(SavedReminder { id, cut })
    }

    pub fn delete_note(&mut self, id: u32) -> Result<(), ReminderError> {
        let at = self.find_note(id).ok_or(ReminderError::Unknown)?;
        self.notes.remove(at);
        Ok(())
    }

    /// Saves the text between the tags of a continuation block, cut to the remaining room, in place of the text of the
    /// previous block. Returns whether any text was saved.
    pub fn keep_package(&mut self, block: &str) -> bool {
        let is_package = |note: &Reminder| note.kind == ReminderKind::Package;
        let previous = self.notes.iter().position(is_package);
        let room = self.remaining_room(previous);
        let most = MAX_PACKAGE_CHARS.min(room.chars);
        let Ok((text, _)) = cut_note(strip_package_tags(block), most) else {
            return false;
        };
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|&end| end <= room.bytes).last();
        let text = text[..end.unwrap_or(0)].trim_end();
        // Small models copy the dots of the prompt's example.
        let is_filler = |it: char| it.is_whitespace() || matches!(it, '.' | '…');
        if text.chars().all(is_filler) {
            return false;
        }
        if let Some(at) = previous {
            self.notes[at].text = text.into();
            return true;
        }
        self.notes.len() < MAX_NOTES && self.push_note(text, ReminderKind::Package).is_some()
    }

    /// Renders the newest notes that fit, oldest first, each between fences; the oldest of the shown notes may be shortened.
    /// Fence tags in a note are neutralised. The stored notes do not change.
    pub fn render_within(&self, fits: impl Fn(&str) -> bool) -> String {
        let mut shown = String::new();
        for note in self.notes.iter().rev() {
            let text = fence::neutralize_tags(&note.text);
            let with = |text: &str| {
                let gap = if shown.is_empty() { "" } else { "\n" };
                Some(fence_note(note.id, text) + gap + &shown).filter(|with| fits(with))
            };
            if let Some(whole) = with(&text) {
                shown = whole;
                continue;
            }
            let half = text.chars().count() / 2;
            let halves = std::iter::successors(Some(half), |chars| Some(chars / 2));
            let mut cuts = halves
                .take_while(|&chars| chars >= LEAST_CHARS)
                .filter_map(|chars| cut_note(&text, chars).ok());
            return cuts
                .find_map(|(cut, _)| with(&format!("{cut}…")))
                .unwrap_or(shown);
        }
        shown
    }

    fn push_note(&mut self, text: &str, kind: ReminderKind) -> Option<u32> {
        let id = self.next.checked_add(1)?;
        self.next = id;
        let text = text.into();
        self.notes.push(Reminder { id, text, kind });
        Some(id)
    }

    fn find_note(&self, id: u32) -> Option<usize> {
        self.notes.iter().position(|note| note.id == id)
    }

    /// Room for one more note, or for a replacement of the note at index `replaced`.
    fn remaining_room(&self, replaced: Option<usize>) -> NoteRoom {
        let mut room = NoteRoom {
            chars: MAX_CHARS,
            bytes: MAX_BYTES,
        };
        for (at, note) in self.notes.iter().enumerate() {
            if Some(at) != replaced {
                room.chars = room.chars.saturating_sub(note.text.chars().count());
                room.bytes = room.bytes.saturating_sub(note.text.len());
            }
        }
        room
    }
}

fn fence_note(id: u32, text: &str) -> String {
    let tag = fence::REMINDER;
    format!("<{tag} id=\"r{id}\">\n{text}\n</{tag}>")
}

#[derive(Clone, Copy)]
struct NoteRoom {
    chars: usize,
    bytes: usize,
}

impl NoteRoom {
    fn can_hold(self, text: &str) -> bool {
        text.len() <= self.bytes && text.chars().count() <= self.chars
    }
}

/// The first `chars` of the trimmed text, and whether it was longer.
fn cut_note(text: &str, chars: usize) -> Result<(&str, bool), ReminderError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ReminderError::Empty);
    }
    Ok(match text.char_indices().nth(chars) {
        Some((end, _)) => (text[..end].trim_end(), true),
        None => (text, false),
    })
}

/// The text between the tags of a block; a missing tag is no error.
fn strip_package_tags(block: &str) -> &str {
    let mut text = block.trim();
    if let Some(rest) = text.strip_prefix('<')
        && let Some(rest) = rest.strip_prefix(fence::PACKAGE)
        && let Some(end) = rest.find('>')
    {
        text = &rest[end + 1..];
    }
    match text.rfind("</").map(|at| (at, &text[at + 2..])) {
        Some((at, end)) if end.starts_with(fence::PACKAGE) => &text[..at],
        _ => text,
    }
}

#[cfg(test)]
mod tests;
