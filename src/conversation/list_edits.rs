//! Removes items from the list of a conversation and inserts new ones between them, whichever part of the list an item is.
//!
//! An entry is removed if all its items are removed. If some of its items stay, only the blocks of the others are removed.
//! An item outside the list is never removed.

use std::ops::Range;

use super::{Conversation, ItemPlace, SharedEntry, edit::Edits};
use crate::json::scan::Span;

/// What is put between two items.
pub struct NewItems<'a> {
    /// Entries of the list, with commas between them.
    pub entries: &'a str,
    /// The same as blocks of an entry, if they are valid in the middle of one.
    pub blocks: Option<&'a str>,
}

/// Items that are one entry of the list: an entry with all its parts.
struct ListEntry {
    items: Range<usize>,
    span: Span,
}

impl Conversation {
    /// Removes items with their commas. Nothing is removed if no entry would be left.
    pub fn remove_items(&self, is_removed: impl Fn(usize) -> bool, edits: &mut Edits) {
        let entries = self.list_entries();
        let is_gone = |entry: &ListEntry| entry.items.clone().all(&is_removed);
        if entries.iter().all(is_gone) {
            return;
        }
        let spans: Vec<Span> = entries.iter().map(|entry| entry.span).collect();
        remove_runs(&spans, |at| is_gone(&entries[at]), edits);
        for entry in entries.iter().filter(|entry| !is_gone(entry)) {
            let parts = &self.items[entry.items.clone()];
            let parts: Vec<Span> = parts.iter().map(|item| item.span).collect();
            let first = entry.items.start;
            remove_runs(&parts, |at| is_removed(first + at), edits);
        }
    }

    /// Inserts new items after item `at`. Returns false if they are not valid there.
    pub fn insert_after(&self, at: usize, new: &NewItems<'_>, edits: &mut Edits) -> bool {
        let item = &self.items[at];
        let (end, new) = match item.place {
            ItemPlace::Part(entry) if self.is_within(at + 1, entry) => (item.span.end, new.blocks),
            ItemPlace::Part(entry) => (entry.span.end, Some(new.entries)),
            ItemPlace::Whole => (item.span.end, Some(new.entries)),
            ItemPlace::Outside => return false,
        };
        if let Some(new) = new {
            edits.insert(end, format!(",{new}"));
        }
        new.is_some()
    }

    /// Inserts new entries before the entry of item `at`. Returns false if the item is in no entry.
    pub fn insert_before(&self, at: usize, entries: &str, edits: &mut Edits) -> bool {
        let entry = self.items[at].entry_span();
        if let Some(entry) = entry {
            edits.insert(entry.start, format!("{entries},"));
        }
        entry.is_some()
    }

    /// Inserts a copy of item `from`, a whole entry, after the entry of item `at`, with the other edits of that item
    /// applied. The caller removes the item from its old place.
    pub(crate) fn repeat_behind(&self, at: usize, from: usize, edits: &mut Edits) {
        edits.insert_element(self.entry_end(at), self.items[from].span);
    }

    /// Removes item `at`, a whole entry, with the comma before it. Returns false if the item is not a whole entry, or is the
    /// first one.
    pub(crate) fn remove_entry(&self, at: usize, edits: &mut Edits) -> bool {
        let before = at.checked_sub(1);
        let before = before.filter(|&it| !matches!(self.items[it].place, ItemPlace::Outside));
        let is_whole = matches!(self.items[at].place, ItemPlace::Whole);
        let Some(before) = before.filter(|_| is_whole) else {
            return false;
        };
        let (start, end) = (self.entry_end(before), self.items[at].span.end);
        edits.remove(Span { start, end });
        true
    }

    fn entry_end(&self, at: usize) -> u32 {
        let item = &self.items[at];
        item.entry_span().unwrap_or(item.span).end
    }

    /// Inserts results of calls that were added to answer `at` next to its other results: as blocks after the last of these
    /// if they are parts of an entry, else as entries after the answer.
    pub fn insert_results(&self, at: usize, results: &[Box<str>], edits: &mut Edits) {
        let answered = self.items[at + 1..].iter();
        let others = answered.take_while(|item| item.author.is_tool());
        let place = match others.last().map(|item| (item.place, item.span)) {
            Some((ItemPlace::Part(_), span)) => span.end,
            _ => self.items[at].span.end,
        };
        for result in results {
            edits.insert(place, format!(",{result}"));
        }
    }

    /// Removes item `first` and everything after it in the list, including what other edits insert there. Returns false if
    /// nothing of the list would be left.
    pub fn truncate_list(&self, first: usize, edits: &mut Edits) -> bool {
        let Some(before) = first.checked_sub(1).map(|before| &self.items[before]) else {
            return false;
        };
        let (start, closing) = match before.place {
            ItemPlace::Part(entry) if self.is_within(first, entry) => {
                let closing = entry.blocks.end as usize - 1..entry.span.end as usize;
                (before.span.end, &self.body[closing])
            }
            ItemPlace::Part(entry) => (entry.span.end, &b""[..]),
            ItemPlace::Whole => (before.span.end, &b""[..]),
            ItemPlace::Outside => return false,
        };
        // The bracket at the end is replaced too, so that nothing can be inserted before it.
        let end = self.list.end;
        edits.replace(Span { start, end }, [closing, b"]"].concat());
        true
    }

    /// The span of all entries before item `first`, without the comma after them; `None` if there are none, or if the item
    /// is a part of the last one.
    pub fn span_of_head(&self, first: usize) -> Option<Span> {
        let entry = self.items[first.checked_sub(1)?].entry_span()?;
        let start = self.list.start + 1;
        let begins = self.items.get(first)?.entry_span()?.start;
        (entry.end <= begins).then_some(Span {
            start,
            end: entry.end,
        })
    }

    /// Whether item `at` is a part of this entry.
    fn is_within(&self, at: usize, entry: SharedEntry) -> bool {
        let item = self.items.get(at);
        item.is_some_and(|item| item.place == ItemPlace::Part(entry))
    }

    fn list_entries(&self) -> Vec<ListEntry> {
        let mut entries: Vec<ListEntry> = Vec::with_capacity(self.items.len());
        for (at, item) in self.items.iter().enumerate() {
            let Some(span) = item.entry_span() else {
                continue;
            };
            match entries.last_mut() {
                Some(last) if last.span == span => last.items.end = at + 1,
                _ => entries.push(ListEntry {
                    items: at..at + 1,
                    span,
                }),
            }
        }
        entries
    }
}

/// Removes elements of a list: each run with the comma before it, a run at the start of the list with the comma after it.
/// Text that is inserted inside a run is removed too.
fn remove_runs(elements: &[Span], is_removed: impl Fn(usize) -> bool, edits: &mut Edits) {
    let mut at = 0;
    while at < elements.len() {
        let run = at;
        while at < elements.len() && is_removed(at) {
            at += 1;
        }
        if at > run {
            let (start, end) = match (run.checked_sub(1), elements.get(at)) {
                (Some(before), _) => (elements[before].end, elements[at - 1].end),
                (None, Some(after)) => (elements[run].start, after.start),
                (None, None) => return,
            };
            edits.remove(Span { start, end });
        }
        at += 1;
    }
}
