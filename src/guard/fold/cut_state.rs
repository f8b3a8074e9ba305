//! What is cut of a conversation so far: units that are left out, units whose results are cleared; and how a
//! session remembers it.

use serde::{Deserialize, Serialize};

use crate::{
    conversation::{
        Conversation, PlaceMap,
        units::{self, Unit, UnitKind},
    },
    guard::request::view::RequestView,
    json::scan::Span,
};
use xxhash_rust::xxh3::xxh3_64;

/// What is cut of the units of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::guard) struct CutState {
    /// Of each unit, whether it is left out.
    pub(in crate::guard) folded: Vec<bool>,
    /// For each unit, whether its results are placeholders; for a unit of the user, whether its media are placeholders and
    /// its attachments are shortened.
    pub(in crate::guard) cleared: Vec<bool>,
    /// Deep cuts have come as far as this unit; 0 before the first.
    pub(in crate::guard) cut_until: usize,
    /// The preface has no ledger until the next deep cut, since there was no room for one.
    pub(in crate::guard) lacks_ledger: bool,
    /// The words of the ledger, as spans of the body. They were chosen at the last cut.
    pub(in crate::guard) words: Vec<Span>,
}

impl CutState {
    pub(in crate::guard) fn new(units: usize) -> Self {
        Self {
            folded: vec![false; units],
            cleared: vec![false; units],
            ..Self::default()
        }
    }

    /// Leaves out every unit between the pinned start and unit `begun` that may be left out: the preface of a course or the
    /// summary covers these units. If nothing behind `begun` is cut, then no deep cut counts as made, and the ledger
    /// has no words.
    pub(in crate::guard) fn fold_before(&mut self, begun: usize, view: RequestView<'_>) {
        let removed = units::list_removed_before(view.units, begun);
        for (folded, removed) in self.folded.iter_mut().zip(removed) {
            *folded |= removed;
        }
        let mut behind = self.folded.iter().zip(&self.cleared).skip(begun);
        if !behind.any(|(folded, cleared)| *folded || *cleared) {
            self.words.clear();
            self.cut_until = 0;
        }
    }

    /// Whether no deep cut was made since the beginning of the conversation, of the course, or behind the summary.
    pub(in crate::guard) const fn is_before_deep_cuts(&self) -> bool {
        self.cut_until == 0
    }

    /// The form in which a session remembers this state; `None` if nothing is cut.
    pub(in crate::guard) fn to_mark(
        &self,
        conversation: &Conversation,
        units: &[Unit],
    ) -> Option<CutMark> {
        // A unit that is left out need not be remembered as cleared too.
        let marks = self.cleared.iter().zip(&self.folded);
        let cleared: Vec<bool> = marks.map(|(cleared, folded)| *cleared && !folded).collect();
        let words = self.words.iter();
        let words = words.filter_map(|&word| WordPlace::from_span(word, conversation, units));
        let mark = CutMark {
            folded: collect_ranges(units, &self.folded),
            cleared: collect_ranges(units, &cleared),
            cut_until: units::count_messages_before(units, self.cut_until),
            lacks_ledger: self.lacks_ledger,
            words: words.collect(),
        };
        (mark != CutMark::default()).then_some(mark)
    }
}

/// Messages from the first to the one before the second, counted without system messages: these come and
/// go between requests.
type MessageSpan = (u32, u32);

/// What was cut: remembered by the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::guard) struct CutMark {
    pub(super) folded: Vec<MessageSpan>,
    cleared: Vec<MessageSpan>,
    cut_until: u32,
    lacks_ledger: bool,
    words: Vec<WordPlace>,
}

/// The place of a ledger word. The state of a session holds no text of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WordPlace {
    /// Counted without system messages.
    message: u32,
    /// Bytes from the beginning of the message.
    offset: u32,
    len: u16,
    /// Digest of the word's bytes, since a client may edit its old messages.
    digest: u8,
}

impl WordPlace {
    fn from_span(word: Span, conversation: &Conversation, units: &[Unit]) -> Option<Self> {
        // Of a system text, which may be outside of the list, no place is remembered.
        let at = conversation.find_item_at(word.start);
        let item = conversation.items.get(at)?;
        let unit = units.get(units::find_unit_of_message(units, at))?;
        (unit.kind != UnitKind::System).then_some(Self {
            message: (unit.messages_before + at - unit.messages.start) as u32,
            offset: word.start.checked_sub(item.span.start)?,
            len: u16::try_from(word.len()).ok()?,
            digest: xxh3_64(conversation.span_bytes(word)) as u8,
        })
    }

    /// Finds the word in a conversation that continues the one for which it was chosen. `None` if the word is not at this
    /// place any more.
    fn find_span(self, conversation: &Conversation, units: &[Unit]) -> Option<Span> {
        let message = self.message as usize;
        let unit = units.partition_point(|unit| unit.messages_through() <= message);
        let unit = units.get(unit)?;
        let at = unit.messages.start + message.checked_sub(unit.messages_before)?;
        let item = conversation.items.get(at)?.span;
        let start = item.start.checked_add(self.offset)?;
        let word = Span {
            start,
            end: start.checked_add(self.len.into())?,
        };
        let is_word = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        let bytes = (word.end <= item.end).then(|| conversation.span_bytes(word))?;
        let is_same = xxh3_64(bytes) as u8 == self.digest && bytes.iter().all(is_word);
        is_same.then_some(word)
    }
}

impl CutMark {
    /// Moves the places to where their messages stand in a conversation that the client has edited.
    pub(super) fn follow_edits(&mut self, places: &PlaceMap) {
        for spans in [&mut self.folded, &mut self.cleared] {
            for span in spans.iter_mut() {
                *span = (places.find_boundary(span.0), places.find_boundary(span.1));
            }
            spans.retain(|span| span.0 < span.1);
        }
        self.cut_until = places.find_boundary(self.cut_until);
        self.words.retain_mut(|word| {
            let place = places.find_place(word.message);
            word.message = place.unwrap_or(0);
            place.is_some()
        });
    }

    /// Forgets what is cut before `boundary`.
    pub(super) fn forget_cuts_before(&mut self, boundary: u32) {
        for spans in [&mut self.folded, &mut self.cleared] {
            for span in spans.iter_mut() {
                span.0 = span.0.max(boundary);
            }
            spans.retain(|span| span.0 < span.1);
        }
        self.cut_until = self.cut_until.max(boundary);
    }

    /// Whether the two cuts leave out or clear different messages, or whether only one of them has a ledger although there
    /// are facts for it (`has_ledger`).
    pub(in crate::guard) fn differs_from(
        &self,
        other: &Self,
        has_ledger: impl Fn() -> bool,
    ) -> bool {
        (&self.folded, &self.cleared) != (&other.folded, &other.cleared)
            || self.lacks_ledger != other.lacks_ledger && has_ledger()
    }

    /// Whether a message, counted without system messages, is cleared.
    pub(in crate::guard) fn is_cleared(&self, message: u32) -> bool {
        let next = self.cleared.partition_point(|span| span.0 <= message);
        let span = next.checked_sub(1).map(|last| self.cleared[last]);
        span.is_some_and(|span| message < span.1)
    }

    /// Finds the cut in a conversation that continues the one for which it was made. `None` if a remembered range does not
    /// begin and end between two units there.
    pub(in crate::guard) fn find_cut(
        &self,
        conversation: &Conversation,
        units: &[Unit],
    ) -> Option<CutState> {
        let mut state = CutState::new(units.len());
        for (spans, marks, is_clearing) in [
            (&self.folded, &mut state.folded, false),
            (&self.cleared, &mut state.cleared, true),
        ] {
            for &(from, until) in spans {
                let first = find_unit(units, from)?;
                let end = find_unit(units, until)?.max(first);
                for (unit, mark) in units[first..end].iter().zip(&mut marks[first..end]) {
                    // Attachments of the task may be shortened.
                    *mark = !unit.is_pinned || is_clearing && unit.is_user();
                }
            }
        }
        // A unit that is kept may need another one now that it did not need before.
        units::keep_needed(units, &mut state.folded);
        state.cut_until = find_unit(units, self.cut_until).unwrap_or(units.len());
        state.lacks_ledger = self.lacks_ledger;
        let words = self.words.iter();
        let words = words.filter_map(|word| word.find_span(conversation, units));
        state.words = words.collect();
        Some(state)
    }
}

/// The unit that begins after this many messages, without system messages; the number of units if these are all messages.
fn find_unit(units: &[Unit], messages: u32) -> Option<usize> {
    units::find_unit_after(units, messages).or_else(|| {
        let end = units.last().map_or(0, Unit::messages_through);
        (end == messages as usize).then_some(units.len())
    })
}

/// The ranges of messages of marked units. A system message does not end a range, since system messages are not counted.
fn collect_ranges(units: &[Unit], marks: &[bool]) -> Vec<MessageSpan> {
    let mut spans: Vec<MessageSpan> = Vec::new();
    let mut is_open = false;
    for (unit, &mark) in units.iter().zip(marks) {
        let (from, until) = (unit.messages_before as u32, unit.messages_through() as u32);
        match spans.last_mut() {
            Some(last) if mark && is_open => last.1 = until,
            _ if mark => spans.push((from, until)),
            _ => {}
        }
        is_open = mark || is_open && unit.kind == UnitKind::System;
    }
    spans
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::conversation::Format;

    impl CutMark {
        pub(in crate::guard) fn without_words(self) -> Self {
            Self {
                words: Vec::new(),
                ..self
            }
        }
    }

    #[test]
    fn what_stays_is_in_no_range_of_what_is_left_out() {
        let user = r#"{"role":"user","content":"u"}"#;
        let unknown = r#"{"type":"newer","id":"n"}"#;
        let body = format!(r#"{{"input":[{user},{user},{user},{unknown},{user},{user}]}}"#);
        let conversation = Format::Responses.index_body(Bytes::from(body)).unwrap();
        let units = units::split_units(&conversation);
        let stays: Vec<bool> = units.iter().map(|unit| unit.is_pinned).collect();
        assert_eq!(stays, [true, false, true, true, false, false]);
        let marks = [false, true, false, false, true, true];
        assert_eq!(collect_ranges(&units, &marks), [(1, 2), (4, 6)]);
    }

    /// The test takes a minute where all units are searched for each range.
    #[test]
    fn a_cut_of_many_ranges_is_found_again() {
        let user = r#"{"role":"user","content":"u"},"#.repeat(120_000);
        let body = format!(r#"{{"input":[{user}{{"role":"user","content":"u"}}]}}"#);
        let conversation = Format::Responses.index_body(Bytes::from(body)).unwrap();
        let units = units::split_units(&conversation);
        let mut state = CutState::new(units.len());
        for at in (1..units.len()).step_by(3) {
            (state.folded[at], state.cleared[at + 1]) = (true, true);
        }
        let mark = state.to_mark(&conversation, &units).unwrap();
        assert_eq!((mark.folded.len(), mark.cleared.len()), (40_000, 40_000));
        let found = mark.find_cut(&conversation, &units).unwrap();
        assert_eq!(
            (&found.folded, &found.cleared),
            (&state.folded, &state.cleared)
        );
        let cleared = (0..units.len() as u32).map(|message| mark.is_cleared(message));
        assert!(cleared.eq(state.cleared));
    }
}
