//! Caps of named texts, the share of system text in the budget, and the removal of annotated texts from a prompt
//! that is too large.
//!
//! Caps and the share are counted in the provider's tokens; the share is a part of the default budget. The scale that
//! converts them to raw tokens is held, so the front of a prompt does not change with each reported usage:
//!
//! 1. A named text over its cap keeps its beginning and end. Texts of answers and results have no caps.
//! 2. If system text is over its share, annotated system texts are left out: low priority first, critical ones
//!    never; an annotation without a priority is medium. Within a priority the smallest text that frees enough is left
//!    out, else the largest. A placeholder with its name takes its place, since a pinned message is never removed and
//!    no text becomes empty.
//! 3. If that is not enough and `trim_system` is set, texts without an annotation are shortened, the longest first.
//!
//! If the whole prompt is over its budget, the replay of [`crate::guard::fold::replay`] leaves out texts in the order of
//! [`removable_texts`], and the session remembers them.
//!
//! The instructions at the start share one limit. Each later system message gets what the earlier ones leave of the share,
//! so that it changes nothing that was sent before.
//!
//! A text with half a surrogate pair is not edited. A second pass changes nothing.

mod priority_report;
mod prompt_text;
pub(in crate::guard) mod removable_texts;
mod system_share;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use xxhash_rust::xxh3::xxh3_128;

pub use self::priority_report::{CapUse, PriorityReport, ShortenedText, Shortening, SystemUse};
use self::{prompt_text::PromptText, removable_texts::RemovableText};
use crate::{
    conversation::{Conversation, Priority, edit::Edits, units},
    guard::{
        request::{
            budget,
            estimate::{Weights, sum_tokens},
            view::RequestView,
        },
        shrink::result_limits::{KeyedLimit, RememberedLimit},
        text::truncate::text_cut::{self, TextReplacement},
    },
    json::text::TextSizes,
};

/// The texts with caps, priorities or a share, and their replacements. Methods take the raw tokens of each message and
/// keep them up to date.
pub(in crate::guard) struct NamedTexts<'a> {
    view: RequestView<'a>,
    weights: Weights,
    texts: Vec<PromptText>,
    /// Sizes of the edited messages.
    sizes: BTreeMap<usize, TextSizes>,
    /// Texts left out because the prompt was over its budget; `recalled` are those that earlier requests left out.
    left_out: BTreeSet<usize>,
    recalled: BTreeSet<usize>,
    /// Raw tokens of all pinned system messages as they are sent, and the most that their share allows.
    system: u32,
    limit: u32,
}

impl<'a> NamedTexts<'a> {
    /// The texts of a request in which nothing is cut.
    pub(in crate::guard) fn new(view: RequestView<'a>, tokens: &[u32]) -> Self {
        let (conversation, settings) = (view.conversation, view.policy.settings);
        let share = settings.system_share * f64::from(budget::default_budget(&view.policy).tokens);
        let mut this = Self {
            view,
            weights: view.token_weights(),
            texts: Vec::new(),
            sizes: BTreeMap::new(),
            left_out: BTreeSet::new(),
            recalled: BTreeSet::new(),
            system: sum_system_tokens(conversation, tokens),
            limit: view.scale.to_raw(share as u32),
        };
        let trims = settings.trim_system && this.system > this.limit;
        if trims || !conversation.annotations.is_empty() {
            this.texts = prompt_text::list_prompt_texts(conversation, &this.weights, trims);
        }
        this
    }

    /// Cuts named texts down to their caps.
    pub(in crate::guard) fn apply_caps(&mut self, tokens: &mut [u32]) {
        for at in 0..self.texts.len() {
            let cap = self.texts[at].find_cap(self.view.policy);
            let cap = cap.map(|cap| self.view.scale.to_raw(cap - cap / budget::MARGIN));
            if let Some(cap) = cap.filter(|cap| self.texts[at].tokens > *cap) {
                self.cut_text(at, cap, Shortening::Capped, tokens);
            }
        }
    }

    fn texts_of(&self, messages: Range<usize>) -> Range<usize> {
        let first = |message| self.texts.partition_point(|it| it.message < message);
        first(messages.start)..first(messages.end)
    }

    fn make_placeholder(&self, at: usize) -> Option<TextReplacement> {
        TextReplacement::new_placeholder(self.view.conversation, &self.texts[at], &self.weights)
    }

    /// The priority of a text that may be left out, and the raw tokens that this saves.
    fn find_saving(&self, at: usize) -> Option<(Priority, u32)> {
        let text = &self.texts[at];
        let priority = text.priority.filter(|it| *it < Priority::Critical)?;
        let left = self
            .weights
            .count_text_tokens(&self.make_placeholder(at)?.sizes);
        Some((priority, text.tokens - left))
    }

    /// Puts a placeholder in the place of a text. Returns the raw tokens saved.
    fn replace_with_placeholder(&mut self, at: usize, tokens: &mut [u32]) -> u32 {
        let message = self.texts[at].message;
        let before = tokens[message];
        if let Some(placeholder) = self.make_placeholder(at) {
            self.replace_text(at, placeholder, Shortening::LeftOut, tokens);
        }
        before.saturating_sub(tokens[message])
    }

    /// The texts that may be left out where the prompt is too large, in their order.
    pub(in crate::guard) fn list_removable_texts(&self) -> Vec<RemovableText> {
        let texts = (0..self.texts.len()).filter_map(|text| {
            let (priority, saves) = self.find_saving(text)?;
            let message = self.texts[text].message;
            Some(RemovableText {
                text,
                unit: units::find_unit_of_message(self.view.units, message),
                is_bound: self.view.item(message).is_bound,
                priority,
                saves,
            })
        });
        texts.collect()
    }

    /// Leaves a text out because the prompt is over its budget. Returns the raw tokens saved.
    pub(in crate::guard) fn leave_out_text(&mut self, text: usize, tokens: &mut [u32]) -> u32 {
        self.left_out.insert(text);
        self.replace_with_placeholder(text, tokens)
    }

    /// Leaves out the texts that earlier requests of the session left out.
    pub(in crate::guard) fn leave_out_remembered(
        &mut self,
        limits: &HashMap<u128, RememberedLimit>,
        tokens: &mut [u32],
    ) {
        // Most sessions have left none out, and keys are digests of texts.
        if !limits.values().any(|it| *it == RememberedLimit::LeftOut) {
            return;
        }
        let is_known = |text: &usize| {
            let limit = limits.get(&self.text_key(*text));
            self.find_saving(*text).is_some() && limit == Some(&RememberedLimit::LeftOut)
        };
        let known: Vec<usize> = (0..self.texts.len()).filter(is_known).collect();
        for text in known {
            self.leave_out_text(text, tokens);
            self.recalled.insert(text);
        }
    }

    /// The left-out texts of kept messages.
    pub(in crate::guard) fn limits_to_remember(
        &self,
        kept: &[bool],
    ) -> impl Iterator<Item = KeyedLimit> {
        let texts = self.left_out.iter();
        let texts = texts.filter(|&&text| kept[self.texts[text].message]);
        texts.map(|&text| (self.text_key(text), RememberedLimit::LeftOut))
    }

    /// The key of a text in its session, from its content and its place. System messages come and go, so their place
    /// among the messages does not count.
    fn text_key(&self, text: usize) -> u128 {
        let text = &self.texts[text];
        let part = text.part.map_or(0, |part| part as u64 + 1);
        let digest = self.view.conversation.digest_text(text.text);
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&digest.to_le_bytes());
        bytes[16..20].copy_from_slice(&text.place.to_le_bytes());
        bytes[24..].copy_from_slice(&part.to_le_bytes());
        xxh3_128(&bytes)
    }

    /// Raw tokens of these messages, of `tokens` each, once all texts that may be left out are left out. The result is the
    /// same whichever of them are left out already.
    pub(in crate::guard) fn weigh_least(&self, messages: Range<usize>, tokens: &[u32]) -> u32 {
        let least = messages.map(|at| self.weigh_message_least(at, tokens[at]));
        sum_tokens(least)
    }

    fn weigh_message_least(&self, at: usize, now: u32) -> u32 {
        let sizes = self.sizes.get(&at).unwrap_or(&self.view.item(at).sizes);
        let mut least = *sizes;
        for text in self.texts_of(at..at + 1) {
            let placeholder = self.find_saving(text).and(self.make_placeholder(text));
            if let Some(placeholder) = placeholder {
                least -= self.texts[text].sizes;
                least += placeholder.sizes;
            }
        }
        let count = |sizes| self.weights.count_text_tokens(sizes);
        now.saturating_sub(count(sizes).saturating_sub(count(&least)))
    }

    /// Cuts a text down to `most` raw tokens, where it can be cut.
    fn cut_text(&mut self, at: usize, most: u32, how: Shortening, tokens: &mut [u32]) {
        let raw = self.view.conversation.raw_bytes(self.texts[at].text);
        if let Some(cut) = text_cut::cut_to_tokens(raw, most, &self.weights, None) {
            self.replace_text(at, cut, how, tokens);
        }
    }

    fn replace_text(
        &mut self,
        at: usize,
        replacement: TextReplacement,
        how: Shortening,
        tokens: &mut [u32],
    ) {
        let text = &mut self.texts[at];
        let message = self.view.item(text.message);
        let tokens = &mut tokens[text.message];
        let sizes = self.sizes.entry(text.message).or_insert(message.sizes);
        // The frame of the message, its calls and its media weigh what they did before.
        let beside = *tokens - self.weights.count_text_tokens(sizes);
        *sizes -= text.sizes;
        *sizes += replacement.sizes;
        let now = beside.saturating_add(self.weights.count_text_tokens(sizes));
        if message.is_pinned_system() {
            self.system = self.system - *tokens + now;
        }
        *tokens = now;
        text.sizes = replacement.sizes;
        text.tokens = self.weights.count_text_tokens(&text.sizes);
        text.replacement = Some((how, replacement));
    }

    /// Adds the edits of kept messages. The messages before `sent_before` were part of the last request.
    pub(in crate::guard) fn collect_edits(
        &self,
        kept: &[bool],
        sent_before: usize,
        edits: &mut Edits,
    ) -> PriorityReport {
        let texts = self.texts.iter().filter(|text| kept[text.message]);
        let mut report = PriorityReport::from_texts(self.view, texts.clone());
        report.system.tokens = self.view.scale.to_tokens(self.system);
        report.system.limit = self.view.scale.to_tokens(self.limit);
        report.messages = [kept.iter().filter(|kept| **kept).count(), kept.len()];
        report.cut = self.left_out.difference(&self.recalled).any(|&text| {
            let message = self.texts[text].message;
            message < sent_before && kept[message]
        });
        for text in texts {
            if let Some((_, replacement)) = &text.replacement {
                let span = text.text.span.part(replacement.removed.clone());
                edits.replace(span, replacement.text.clone());
            }
        }
        report
    }
}

fn sum_system_tokens(conversation: &Conversation, tokens: &[u32]) -> u32 {
    let messages = conversation.items.iter().zip(tokens);
    let system = messages.filter(|(message, _)| message.is_pinned_system());
    sum_tokens(system.map(|(_, tokens)| tokens))
}

#[cfg(test)]
mod tests;
