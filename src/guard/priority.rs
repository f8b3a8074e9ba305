//! Caps of named texts, the share of the budget that system text may have, and annotated texts that go
//! where the whole prompt is too large.
//!
//! Caps and the share are decided by the bytes and the settings alone, in raw tokens against the usual
//! budget, so that the front of a prompt does not jump with what usage teaches:
//!
//! 1. A named text over its cap keeps its beginning and end; never one of an answer or a result.
//! 2. Where system text passes its share, annotated texts of it go, the low ones first, critical ones
//!    never; one without a priority is medium. Of the same priority the smallest goes that frees enough,
//!    else the largest. A short text that names it takes the place of each, since a pinned message is
//!    never dropped and no text becomes empty.
//! 3. Where that is not enough and the settings allow it, what has no annotation is shortened, the
//!    longest first.
//!
//! What goes of the prompt as a whole is decided by the replay of [`super::replay`], in the order of
//! [`spare`], and remembered by a session.
//!
//! The instructions at the start have the share together; each that comes later has what those
//! before it leave, so that none changes what was sent already.
//!
//! A text with half a surrogate pair is left alone. A second pass finds nothing to do.

mod cut;
mod piece;
mod share;
pub(super) mod spare;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
};

use xxhash_rust::xxh3::xxh3_128;

pub use self::told::{CapUse, How, Shortened, SystemUse, Texts};
use self::{
    piece::{Piece, With},
    spare::Spare,
};
use super::{budget, estimate::Weights, limits::Held, truncate::Marker, view::View};
use crate::{
    conversation::{
        Author, Conversation, Priority,
        edit::Edits,
        units::{self, Unit},
    },
    json::text::{self, Sizes},
};

/// The texts of a conversation that were looked at, and what becomes of them.
pub(super) struct Priorities<'a> {
    view: View<'a>,
    weights: Weights,
    pieces: Vec<Piece>,
    /// What the texts of each message have less, or more.
    sizes: BTreeMap<usize, Sizes>,
    /// Texts that went because the prompt was over its budget, and which of them already had before.
    gone: BTreeSet<usize>,
    recalled: BTreeSet<usize>,
    /// Raw tokens of all system messages as they go, and what they may have.
    system: u32,
    limit: u32,
}

impl<'a> Priorities<'a> {
    /// Decides what becomes of the texts. `tokens` are the raw tokens of each message as it came;
    /// afterwards as it goes.
    pub(super) fn decide(view: View<'a>, tokens: &mut [u32]) -> Self {
        let (conversation, settings) = (view.conversation, view.policy.settings);
        let share = settings.system_share * f64::from(budget::usual(&view.policy).tokens);
        let mut this = Self {
            view,
            weights: view.weights(),
            pieces: Vec::new(),
            sizes: BTreeMap::new(),
            gone: BTreeSet::new(),
            recalled: BTreeSet::new(),
            system: system(conversation, tokens),
            limit: share as u32,
        };
        let trims = settings.trim_system && this.system > this.limit;
        if conversation.annotations.is_empty() && !trims {
            return this;
        }
        this.pieces = piece::all(conversation, &this.weights, trims);
        this.cap(tokens);
        if this.system > this.limit {
            this.share(tokens);
        }
        this
    }

    fn cap(&mut self, tokens: &mut [u32]) {
        for at in 0..self.pieces.len() {
            let piece = &self.pieces[at];
            let Some(&cap) = piece.cap(self.view.policy) else {
                continue;
            };
            if piece.tokens > cap {
                self.cut(at, cap, How::Capped, tokens);
            }
        }
    }

    /// The texts of some messages.
    fn pieces_of(&self, messages: Range<usize>) -> Range<usize> {
        let first = |message| self.pieces.partition_point(|it| it.message < message);
        first(messages.start)..first(messages.end)
    }

    /// The priority of a text that may go, and the raw tokens that this saves.
    fn saves(&self, at: usize) -> Option<(Priority, u32)> {
        let piece = &self.pieces[at];
        let priority = piece.priority.filter(|it| *it < Priority::Critical)?;
        let with = With::placeholder(self.view.conversation, piece, &self.weights)?;
        Some((priority, piece.tokens - self.weights.whole(&with.sizes)))
    }

    /// Puts the line that names a text in its place; gives the raw tokens that this saved.
    fn replace(&mut self, at: usize, tokens: &mut [u32]) -> u32 {
        let piece = &self.pieces[at];
        let message = piece.message;
        let before = tokens[message];
        if let Some(with) = With::placeholder(self.view.conversation, piece, &self.weights) {
            self.put(at, with, How::LeftOut, tokens);
        }
        before.saturating_sub(tokens[message])
    }

    /// The texts that may go where the prompt is too large, in their order.
    pub(super) fn spares(&self) -> Vec<Spare> {
        let spares = (0..self.pieces.len()).filter_map(|text| {
            let (priority, saves) = self.saves(text)?;
            Some(Spare {
                text,
                unit: units::holding(self.view.units, self.pieces[text].message),
                priority,
                saves,
            })
        });
        spares.collect()
    }

    /// Leaves a text out because the prompt is over its budget; gives the raw tokens that this saved.
    pub(super) fn leave_out_text(&mut self, text: usize, tokens: &mut [u32]) -> u32 {
        self.gone.insert(text);
        self.replace(text, tokens)
    }

    /// Leaves out again what a session remembers to have been left out.
    pub(super) fn recall(&mut self, tight: &[(u128, Held)], tokens: &mut [u32]) {
        let keys: HashSet<u128> = tight
            .iter()
            .filter(|(_, held)| held.chars() == 0)
            .map(|(key, _)| *key)
            .collect();
        if keys.is_empty() {
            return;
        }
        let known: Vec<usize> = (0..self.pieces.len())
            .filter(|&text| self.saves(text).is_some() && keys.contains(&self.key(text)))
            .collect();
        for text in known {
            self.leave_out_text(text, tokens);
            self.recalled.insert(text);
        }
    }

    /// What was left out of messages that are still part of the conversation, to be remembered: a limit
    /// of no characters.
    pub(super) fn memory(&self, kept: &[bool]) -> impl Iterator<Item = (u128, Held)> {
        let gone = self.gone.iter();
        let gone = gone.filter(|&&text| kept[self.pieces[text].message]);
        gone.map(|&text| (self.key(text), Held::new(0, Marker::Plain)))
    }

    /// Names a text of a session by what it says and where. System messages come and go, so of theirs the
    /// place among messages does not count.
    fn key(&self, text: usize) -> u128 {
        let piece = &self.pieces[text];
        let part = piece.part.map_or(0, |part| part as u64 + 1);
        let mut bytes = [0; 32];
        bytes[..16]
            .copy_from_slice(&text::digest(self.view.conversation.raw(piece.text)).to_le_bytes());
        bytes[16..20].copy_from_slice(&piece.said.to_le_bytes());
        bytes[24..].copy_from_slice(&part.to_le_bytes());
        xxh3_128(&bytes)
    }

    /// Raw tokens of a unit, which has `now` of them, once all that may go has gone.
    pub(super) fn least(&self, unit: &Unit, now: u32) -> u32 {
        let texts = self.pieces_of(unit.messages.clone());
        let saved = texts.filter_map(|text| Some(self.saves(text)?.1));
        saved.fold(now, u32::saturating_sub)
    }

    /// Cuts a text of the conversation down to so many raw tokens, where it can be cut.
    fn cut(&mut self, at: usize, most: u32, how: How, tokens: &mut [u32]) {
        let raw = self.view.conversation.raw(self.pieces[at].text);
        if let Some(with) = cut::within(raw, most, &self.weights) {
            self.put(at, with, how, tokens);
        }
    }

    /// Puts something in the place of a text, or of a part of it.
    fn put(&mut self, at: usize, with: With, how: How, tokens: &mut [u32]) {
        let piece = &mut self.pieces[at];
        let message = piece.message;
        let theirs = self.view.item(message);
        let sizes = self.sizes.entry(message).or_insert(theirs.sizes);
        // What frames the message, its calls and its media stay as they are.
        let beside = tokens[message] - self.weights.whole(sizes);
        *sizes -= piece.sizes;
        *sizes += with.sizes;
        let now = beside.saturating_add(self.weights.whole(sizes));
        if theirs.author.instructs() {
            self.system = self.system - tokens[message] + now;
        }
        tokens[message] = now;
        piece.sizes = with.sizes;
        piece.tokens = self.weights.whole(&with.sizes);
        piece.with = Some((how, with));
    }

    /// What was done to messages that are still part of the conversation, with its edits. The messages
    /// before `sent_before` were part of the last request.
    pub(super) fn made(&self, kept: &[bool], sent_before: usize, edits: &mut Edits) -> Texts {
        let pieces = self.pieces.iter().filter(|piece| kept[piece.message]);
        let mut texts = Texts::of(self.view, pieces.clone());
        texts.system.tokens = self.system;
        texts.system.limit = self.limit;
        texts.cut = self.gone.difference(&self.recalled).any(|&text| {
            let message = self.pieces[text].message;
            message < sent_before && kept[message]
        });
        for piece in pieces {
            if let Some((_, with)) = &piece.with {
                edits.replace(with.span(piece.text), with.text.clone());
            }
        }
        texts
    }
}

/// Raw tokens of all system messages.
fn system(conversation: &Conversation, tokens: &[u32]) -> u32 {
    let messages = conversation.items.iter().zip(tokens);
    messages
        .filter(|(message, _)| message.author.instructs())
        .fold(0, |sum, (_, &tokens)| sum.saturating_add(tokens))
}

/// Whose texts can have a cap.
const fn may_be_capped(role: Author) -> bool {
    matches!(role, Author::System | Author::User)
}

#[cfg(test)]
mod tests;
