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

mod priority_report;
mod prompt_text;
pub(super) mod removable_texts;
mod system_share;
mod text_cuts;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
};

use xxhash_rust::xxh3::xxh3_128;

pub use self::priority_report::{CapUse, PriorityReport, ShortenedText, Shortening, SystemUse};
use self::{
    prompt_text::{PromptText, TextReplacement},
    removable_texts::RemovableText,
};
use super::{
    budget, estimate::Weights, result_limits::RememberedLimit, truncate::TruncationMarker,
    view::RequestView,
};
use crate::{
    conversation::{
        Author, Conversation, Priority,
        edit::Edits,
        units::{self, Unit},
    },
    json::text::{self, TextSizes},
};

/// The texts of a conversation that were looked at, and what becomes of them.
pub(super) struct Priorities<'a> {
    view: RequestView<'a>,
    weights: Weights,
    pieces: Vec<PromptText>,
    /// What the texts of each message have less, or more.
    sizes: BTreeMap<usize, TextSizes>,
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
    pub(super) fn decide_texts(view: RequestView<'a>, tokens: &mut [u32]) -> Self {
        let (conversation, settings) = (view.conversation, view.policy.settings);
        let share = settings.system_share * f64::from(budget::default_budget(&view.policy).tokens);
        let mut this = Self {
            view,
            weights: view.token_weights(),
            pieces: Vec::new(),
            sizes: BTreeMap::new(),
            gone: BTreeSet::new(),
            recalled: BTreeSet::new(),
            system: sum_system_tokens(conversation, tokens),
            limit: share as u32,
        };
        let trims = settings.trim_system && this.system > this.limit;
        if conversation.annotations.is_empty() && !trims {
            return this;
        }
        this.pieces = prompt_text::list_prompt_texts(conversation, &this.weights, trims);
        this.apply_caps(tokens);
        if this.system > this.limit {
            this.enforce_system_share(tokens);
        }
        this
    }

    fn apply_caps(&mut self, tokens: &mut [u32]) {
        for at in 0..self.pieces.len() {
            let piece = &self.pieces[at];
            let Some(&cap) = piece.find_cap(self.view.policy) else {
                continue;
            };
            if piece.tokens > cap {
                self.cut_text(at, cap, Shortening::Capped, tokens);
            }
        }
    }

    /// The texts of some messages.
    fn pieces_of(&self, messages: Range<usize>) -> Range<usize> {
        let first = |message| self.pieces.partition_point(|it| it.message < message);
        first(messages.start)..first(messages.end)
    }

    /// The priority of a text that may go, and the raw tokens that this saves.
    fn find_saving(&self, at: usize) -> Option<(Priority, u32)> {
        let piece = &self.pieces[at];
        let priority = piece.priority.filter(|it| *it < Priority::Critical)?;
        let with = TextReplacement::new_placeholder(self.view.conversation, piece, &self.weights)?;
        Some((
            priority,
            piece.tokens - self.weights.count_text_tokens(&with.sizes),
        ))
    }

    /// Puts the line that names a text in its place; gives the raw tokens that this saved.
    fn replace_with_placeholder(&mut self, at: usize, tokens: &mut [u32]) -> u32 {
        let piece = &self.pieces[at];
        let message = piece.message;
        let before = tokens[message];
        if let Some(with) =
            TextReplacement::new_placeholder(self.view.conversation, piece, &self.weights)
        {
            self.replace_text(at, with, Shortening::LeftOut, tokens);
        }
        before.saturating_sub(tokens[message])
    }

    /// The texts that may go where the prompt is too large, in their order.
    pub(super) fn list_removable_texts(&self) -> Vec<RemovableText> {
        let spares = (0..self.pieces.len()).filter_map(|text| {
            let (priority, saves) = self.find_saving(text)?;
            Some(RemovableText {
                text,
                unit: units::find_unit_of_message(self.view.units, self.pieces[text].message),
                priority,
                saves,
            })
        });
        spares.collect()
    }

    /// Leaves a text out because the prompt is over its budget; gives the raw tokens that this saved.
    pub(super) fn leave_out_text(&mut self, text: usize, tokens: &mut [u32]) -> u32 {
        self.gone.insert(text);
        self.replace_with_placeholder(text, tokens)
    }

    /// Leaves out again what a session remembers to have been left out.
    pub(super) fn leave_out_remembered(
        &mut self,
        tight: &[(u128, RememberedLimit)],
        tokens: &mut [u32],
    ) {
        let keys: HashSet<u128> = tight
            .iter()
            .filter(|(_, held)| held.chars() == 0)
            .map(|(key, _)| *key)
            .collect();
        if keys.is_empty() {
            return;
        }
        let known: Vec<usize> = (0..self.pieces.len())
            .filter(|&text| self.find_saving(text).is_some() && keys.contains(&self.text_key(text)))
            .collect();
        for text in known {
            self.leave_out_text(text, tokens);
            self.recalled.insert(text);
        }
    }

    /// What was left out of messages that are still part of the conversation, to be remembered: a limit
    /// of no characters.
    pub(super) fn limits_to_remember(
        &self,
        kept: &[bool],
    ) -> impl Iterator<Item = (u128, RememberedLimit)> {
        let gone = self.gone.iter();
        let gone = gone.filter(|&&text| kept[self.pieces[text].message]);
        gone.map(|&text| {
            (
                self.text_key(text),
                RememberedLimit::new(0, TruncationMarker::Plain),
            )
        })
    }

    /// Names a text of a session by what it says and where. System messages come and go, so of theirs the
    /// place among messages does not count.
    fn text_key(&self, text: usize) -> u128 {
        let piece = &self.pieces[text];
        let part = piece.part.map_or(0, |part| part as u64 + 1);
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(
            &text::digest_text(self.view.conversation.raw_bytes(piece.text)).to_le_bytes(),
        );
        bytes[16..20].copy_from_slice(&piece.said.to_le_bytes());
        bytes[24..].copy_from_slice(&part.to_le_bytes());
        xxh3_128(&bytes)
    }

    /// Raw tokens of a unit, which has `now` of them, once all that may go has gone.
    pub(super) fn weigh_unit_least(&self, unit: &Unit, now: u32) -> u32 {
        let texts = self.pieces_of(unit.messages.clone());
        let saved = texts.filter_map(|text| Some(self.find_saving(text)?.1));
        saved.fold(now, u32::saturating_sub)
    }

    /// Cuts a text of the conversation down to so many raw tokens, where it can be cut.
    fn cut_text(&mut self, at: usize, most: u32, how: Shortening, tokens: &mut [u32]) {
        let raw = self.view.conversation.raw_bytes(self.pieces[at].text);
        if let Some(with) = text_cuts::cut_to_tokens(raw, most, &self.weights) {
            self.replace_text(at, with, how, tokens);
        }
    }

    /// Puts something in the place of a text, or of a part of it.
    fn replace_text(
        &mut self,
        at: usize,
        with: TextReplacement,
        how: Shortening,
        tokens: &mut [u32],
    ) {
        let piece = &mut self.pieces[at];
        let message = piece.message;
        let theirs = self.view.item(message);
        let sizes = self.sizes.entry(message).or_insert(theirs.sizes);
        // What frames the message, its calls and its media stay as they are.
        let beside = tokens[message] - self.weights.count_text_tokens(sizes);
        *sizes -= piece.sizes;
        *sizes += with.sizes;
        let now = beside.saturating_add(self.weights.count_text_tokens(sizes));
        if theirs.author.is_system() {
            self.system = self.system - tokens[message] + now;
        }
        tokens[message] = now;
        piece.sizes = with.sizes;
        piece.tokens = self.weights.count_text_tokens(&with.sizes);
        piece.with = Some((how, with));
    }

    /// What was done to messages that are still part of the conversation, with its edits. The messages
    /// before `sent_before` were part of the last request.
    pub(super) fn collect_edits(
        &self,
        kept: &[bool],
        sent_before: usize,
        edits: &mut Edits,
    ) -> PriorityReport {
        let pieces = self.pieces.iter().filter(|piece| kept[piece.message]);
        let mut texts = PriorityReport::from_texts(self.view, pieces.clone());
        texts.system.tokens = self.system;
        texts.system.limit = self.limit;
        texts.cut = self.gone.difference(&self.recalled).any(|&text| {
            let message = self.pieces[text].message;
            message < sent_before && kept[message]
        });
        for piece in pieces {
            if let Some((_, with)) = &piece.with {
                edits.replace(with.replaced_span(piece.text), with.text.clone());
            }
        }
        texts
    }
}

/// Raw tokens of all system messages.
fn sum_system_tokens(conversation: &Conversation, tokens: &[u32]) -> u32 {
    let messages = conversation.items.iter().zip(tokens);
    messages
        .filter(|(message, _)| message.author.is_system())
        .fold(0, |sum, (_, &tokens)| sum.saturating_add(tokens))
}

/// Whose texts can have a cap.
const fn may_be_capped(role: Author) -> bool {
    matches!(role, Author::System | Author::User)
}

#[cfg(test)]
mod tests;
