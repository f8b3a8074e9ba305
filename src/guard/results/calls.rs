//! What a message that makes calls says, cut as the last resort: long string values in the arguments of its
//! calls, and its own text. A call and its results stay together, so the newest step cannot go, and nothing
//! else is left to cut.
//!
//! The limit is one number of characters for each value of the message, and remembered like that of a result.

use super::{Results, level};
use crate::{
    guard::{
        arguments::{Arguments, Keep, less},
        limits::Held,
        truncate::{self, Limit, Marker},
    },
    json::{
        scan::{Span, Text},
        text,
    },
    wire::edit::Edits,
};

/// No value is cut below this; characters. The marker takes 52 of them at most.
const LEAST_CHARS: usize = 80;
/// Rounds in which values are brought down in proportion to their characters.
const ROUNDS: usize = 6;

/// What goes of a message that makes calls.
#[derive(Clone, Debug, Default)]
pub(super) struct CallCut {
    pub(super) edits: Edits,
    /// Its arguments by call, and its text.
    pub(super) parts: Vec<CutPart>,
}

/// One of them that is cut; in characters.
#[derive(Clone, Debug)]
pub(super) struct CutPart {
    pub(super) tool: Option<Text>,
    pub(super) before: usize,
    pub(super) after: usize,
}

impl Results<'_> {
    /// Makes message `at` smaller by `excess` raw tokens, its longest values first. Returns what it took,
    /// which is less where nothing more can go.
    pub(super) fn tighten_calls(&mut self, at: usize, excess: u32) -> u32 {
        let before = self.tokens[at];
        let target = before.saturating_sub(excess);
        let lengths = self.value_lengths(at);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut most = match self.tight.get(&at) {
            Some(held) => longest.min(held.chars() as u32),
            None => longest,
        };
        for round in 0.. {
            let over = self.tokens[at].saturating_sub(target);
            if over == 0 || most as usize <= LEAST_CHARS {
                break;
            }
            let now: Vec<u32> = lengths.iter().map(|&chars| chars.min(most)).collect();
            let chars = now.iter().fold(0u32, |sum, it| sum.saturating_add(*it));
            // What is said beside the values weighs too, so this takes rather too little than too much.
            let per_token = f64::from(chars) / f64::from(self.tokens[at].max(1));
            let gone = (f64::from(over) * per_token).ceil() as u32;
            let next = level(now, chars.saturating_sub(gone)).min(most - 1);
            let least = LEAST_CHARS as u32;
            most = if round < ROUNDS {
                next.max(least)
            } else {
                least
            };
            self.hold_calls(at, most as usize);
        }
        before.saturating_sub(self.tokens[at])
    }

    /// Holds every value of message `at` to so many characters.
    pub(super) fn hold_calls(&mut self, at: usize, most: usize) {
        let most = most.max(LEAST_CHARS);
        let message = &self.conversation.messages[at];
        let mut cut = CallCut::default();
        let mut sizes = message.sizes;
        for call in self.conversation.calls(message) {
            let Some(arguments) = call.arguments else {
                continue;
            };
            let raw = self.conversation.raw(arguments);
            // A character is a byte at least.
            let read = (raw.len() > most).then(|| Arguments::read_any(raw));
            let cuts = read
                .flatten()
                .map_or_else(Vec::new, |it| it.cuts(Keep::Ends(most)));
            if cuts.is_empty() {
                continue;
            }
            let (mut gone, mut put) = (0, 0);
            for (span, marker) in cuts {
                let start = arguments.span.start as usize;
                let span = Span::new(start + span.start as usize, start + span.end as usize);
                let (was, now) = (
                    text::measure(self.conversation.bytes(span)),
                    text::measure(marker.as_bytes()),
                );
                gone += was.chars();
                put += now.chars();
                sizes = less(sizes, was);
                sizes += now;
                cut.edits.replace(span, marker);
            }
            let before = text::measure(raw).chars();
            cut.parts.push(CutPart {
                tool: call.name,
                before,
                after: (before + put).saturating_sub(gone),
            });
        }
        let limit = Limit {
            chars: most,
            head: most / 2,
            tail: most / 2,
        };
        if let Some(said) = truncate::cut(self.conversation, message, limit, Marker::Plain) {
            sizes = less(sizes, super::text_sizes_of(self.conversation, message));
            sizes += said.sizes;
            cut.edits.merge(said.edits);
            let calls = self.conversation.calls(message);
            cut.parts.push(CutPart {
                tool: calls.first().and_then(|call| call.name),
                before: said.before,
                after: said.after,
            });
        }
        if cut.parts.is_empty() {
            return;
        }
        self.tokens[at] = self.weigh(message, &sizes);
        self.calls.insert(at, cut);
        self.tight.insert(at, Held::new(most, Marker::Plain));
    }

    /// Characters of each value that can be cut.
    fn value_lengths(&self, at: usize) -> Vec<u32> {
        let message = &self.conversation.messages[at];
        let calls = self.conversation.calls(message).iter();
        let arguments = calls.filter_map(|call| call.arguments);
        let read = arguments.filter_map(|it| Arguments::read_any(self.conversation.raw(it)));
        let mut lengths: Vec<u32> = Vec::new();
        for arguments in read {
            lengths.extend(arguments.values().map(|chars| chars as u32));
        }
        lengths.push(super::text_sizes_of(self.conversation, message).chars() as u32);
        lengths
    }
}
