//! Reminders: notes that the model keeps for itself. Together they are the continuation package
//! of a session, and survive a clear.
//!
//! Bounded in number and length, also as they are stored: they stand in the state of a session
//! twice, the second time in a course's preface. A note is kept as the model wrote it; what it
//! could do to the fences around it is taken out when it is shown.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::guard::fence;

/// Characters of one note.
pub const MAX_NOTE_CHARS: usize = 4_000;
/// Characters of a continuation block, which is a package by itself.
pub const MAX_PACKAGE_CHARS: usize = 8_000;
/// Notes of a session.
pub const MAX_NOTES: usize = 32;
/// Characters of all notes.
pub const MAX_CHARS: usize = 16_000;
/// Bytes of all notes: what a state can hold twice, whatever the script.
pub const MAX_BYTES: usize = 20_000;
/// A note that is cut is not shown shorter than this; characters.
const LEAST_CHARS: usize = 100;

/// One note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    /// Shown to the model as `r1`, `r2`, …; never used again in a session.
    pub id: u32,
    pub text: Box<str>,
    pub kind: ReminderKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReminderKind {
    /// Added with a tool.
    Note,
    /// The newest continuation block of a reply; at most one.
    Package,
}

/// All notes of a session, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminders {
    notes: Vec<Reminder>,
    /// Ids given so far.
    next: u32,
}

/// A note as it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedReminder {
    pub id: u32,
    /// It was longer than a note may be, and lost its end.
    pub cut: bool,
}

/// Why a note was not kept, changed or deleted.
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

    /// Keeps a new note, without the white space around it, cut at [`MAX_NOTE_CHARS`].
    ///
    /// # Errors
    /// It is empty, or there is no room; nothing has changed then.
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

    /// Puts another text in the place of a note's, by the same rules.
    ///
    /// # Errors
    /// There is no such note, the text is empty, or there is no room; nothing has changed then.
    pub fn update_note(&mut self, id: u32, text: &str) -> Result<SavedReminder, ReminderError> {
        let at = self.find_note(id).ok_or(ReminderError::Unknown)?;
        let (text, cut) = cut_note(text, MAX_NOTE_CHARS)?;
        if !self.remaining_room(Some(at)).can_hold(text) {
            return Err(ReminderError::TooLong);
        }
        self.notes[at].text = text.into();
        Ok(SavedReminder { id, cut })
    }

    /// # Errors
    /// There is no such note.
    pub fn delete_note(&mut self, id: u32) -> Result<(), ReminderError> {
        let at = self.find_note(id).ok_or(ReminderError::Unknown)?;
        self.notes.remove(at);
        Ok(())
    }

    /// Keeps the text of a continuation block, tags and all else around it left out, in the place
    /// of the one before, cut to what there is room for. Returns whether it holds anything.
    pub fn keep_package(&mut self, block: &str) -> bool {
        let before = self
            .notes
            .iter()
            .position(|n| n.kind == ReminderKind::Package);
        let room = self.remaining_room(before);
        let Ok((text, _)) = cut_note(strip_package_tags(block), MAX_PACKAGE_CHARS.min(room.chars))
        else {
            return false;
        };
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|&end| end <= room.bytes).last();
        let text = text[..end.unwrap_or(0)].trim_end();
        if text.is_empty() {
            return false;
        }
        match before {
            Some(at) => self.notes[at].text = text.into(),
            None if self.notes.len() < MAX_NOTES => {
                return self.push_note(text, ReminderKind::Package).is_some();
            }
            None => return false,
        }
        true
    }

    /// All notes between fences, oldest first. Nothing in them looks like a fence.
    pub fn render_all(&self) -> String {
        self.render_within(|_| true)
    }

    /// The newest notes that there is room for, oldest first; the oldest of them may lose its end.
    /// All of them are kept, to be changed or deleted.
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
            let halves = std::iter::successors(Some(text.chars().count() / 2), |n| Some(n / 2));
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

    /// What is free for one more note, or for the one in the place of `instead`.
    fn remaining_room(&self, instead: Option<usize>) -> NoteRoom {
        let mut room = NoteRoom {
            chars: MAX_CHARS,
            bytes: MAX_BYTES,
        };
        for (at, note) in self.notes.iter().enumerate() {
            if Some(at) != instead {
                room.chars = room.chars.saturating_sub(note.text.chars().count());
                room.bytes = room.bytes.saturating_sub(note.text.len());
            }
        }
        room
    }
}

/// A note as it is shown.
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

/// The beginning of a text, and whether there was more.
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

/// What stands between the tags of a block, or in all of it where they are missing.
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
