//! Makes the newest step smaller if it is still too large after the first cut: its results, then its calls. If the newest
//! message is the user's, makes its attachments smaller.

use std::{collections::BTreeMap, ops::Range};

use super::ShortenedMessages;
use crate::{
    conversation::Author,
    guard::{
        request::estimate::sum_tokens,
        shrink::{
            clearing::attachments,
            result_limits::{LEAST_CHARS, RememberedLimit},
        },
        text::truncate::TruncationMarker,
    },
};

/// Rounds in which the results of a step are cut down to a target.
const TIGHTEN_ROUNDS: usize = 6;
/// The same for attachments, whose cuts lie at the ends of lines.
const ATTACHMENT_ROUNDS: usize = 12;
/// Raw tokens that are removed beyond the excess, since each text is rounded by itself when it is measured anew.
const ROUNDING: u32 = 8;
/// Raw tokens of a line, about.
const LINE_TOKENS: u32 = 16;

impl ShortenedMessages<'_> {
    /// Makes one step smaller by `excess` raw tokens: its results, the largest first, and then its calls. Of a user message
    /// it makes the attachments smaller. Returns the tokens removed, which are fewer if nothing more can be removed.
    pub(in crate::guard) fn tighten_step(&mut self, messages: Range<usize>, excess: u32) -> u32 {
        let first = messages.start;
        if self.view.item(first).author == Author::User {
            return self.tighten_attachments(first, excess);
        }
        let mut taken = self.tighten_results(messages.clone(), excess);
        // Then the results that the client writes as texts.
        for at in messages {
            let left = excess.saturating_sub(taken);
            let item = self.view.item(at);
            if left > 0 && self.view.conversation.holds_written_result(item) {
                taken = taken.saturating_add(self.tighten_attachments(at, left));
            }
        }
        match excess.saturating_sub(taken) {
            left if left > 0 && self.view.item(first).author == Author::Model => {
                taken.saturating_add(self.tighten_calls(first, left))
            }
            _ => taken,
        }
    }

    /// Raw tokens that [`Self::tighten_step`] would remove.
    pub(in crate::guard) fn measure_tightening(&self, messages: Range<usize>, excess: u32) -> u32 {
        let shortened = self.shortened.range(messages.clone());
        let mut trial = Self {
            tokens: self.tokens.clone(),
            shortened: shortened.map(|(at, cut)| (*at, cut.clone())).collect(),
            blocks: BTreeMap::new(),
            echoes: self.echoes.clone(),
            ..*self
        };
        trial.tighten_step(messages, excess)
    }

    /// Makes the attachments of message `at` smaller by `excess` raw tokens. Does nothing if the attachments would keep less
    /// than their least. Returns the raw tokens removed, which are fewer if a text cannot be decoded.
    fn tighten_attachments(&mut self, at: usize, excess: u32) -> u32 {
        let before = self.tokens[at];
        let excess = excess.saturating_add(ROUNDING);
        let target = before.saturating_sub(excess);
        let (all, least) = attachments::weigh_newest(self.view, at);
        let limit = self.limit_of(at).map(|limit| limit.amount() as u32);
        let now = limit.unwrap_or(all);
        if now.saturating_sub(excess) < least || now < excess {
            return 0;
        }
        let mut aim = now - excess;
        for _ in 0..ATTACHMENT_ROUNDS {
            self.limit_attachments(at, aim as usize);
            let over = self.tokens[at].saturating_sub(target);
            if over == 0 {
                break;
            }
            // Cuts lie at the ends of lines, so that a few tokens less may change nothing.
            aim = aim.saturating_sub(over.saturating_add(LINE_TOKENS));
        }
        before.saturating_sub(self.tokens[at])
    }

    /// Makes the results of these messages smaller by `excess` raw tokens together, the largest first. Returns the tokens
    /// removed, which are fewer where nothing more can go.
    pub(in crate::guard) fn tighten_results(&mut self, messages: Range<usize>, excess: u32) -> u32 {
        let results = self.list_results(messages);
        let tokens =
            |this: &Self| -> Vec<u32> { results.iter().map(|&at| this.tokens[at]).collect() };
        let before = sum_tokens(tokens(self));
        let target = before.saturating_sub(excess);
        // Tokens are not spread evenly over a text: the rest may be denser than the whole.
        let mut aim = target;
        for _ in 0..TIGHTEN_ROUNDS {
            let level = find_common_level(tokens(self), aim);
            for &at in &results {
                self.lower_result(at, level);
            }
            let over = sum_tokens(tokens(self)).saturating_sub(target);
            if over == 0 {
                break;
            }
            aim = aim.saturating_sub(over.saturating_add(1));
        }
        before.saturating_sub(sum_tokens(tokens(self)))
    }

    /// Cuts one result down to `level` raw tokens, in proportion to its characters.
    fn lower_result(&mut self, at: usize, level: u32) {
        let now = self.tokens[at];
        let limit = self.limit_of(at);
        if now <= level || limit.is_some_and(|limit| limit.amount() <= LEAST_CHARS) {
            return;
        }
        let whole = self.view.item(at).sizes.total_chars();
        let chars = self
            .shortened
            .get(&at)
            .map_or(whole, |cut| cut.sizes.total_chars());
        let chars = chars as u64 * u64::from(level) / u64::from(now.max(1));
        let chars = (chars as usize).max(LEAST_CHARS);
        let marker = limit.map_or(TruncationMarker::Plain, |limit| limit.marker());
        self.apply_limit(at, RememberedLimit::new(chars, marker));
    }
}

/// The level to which the largest weights must come down so that the sum is `target`.
pub(in crate::guard) fn find_common_level(mut weights: Vec<u32>, target: u32) -> u32 {
    weights.sort_unstable();
    let mut left = target;
    for (place, &weight) in weights.iter().enumerate() {
        let share = left / (weights.len() - place) as u32;
        if weight > share {
            return share;
        }
        left -= weight;
    }
    weights.last().copied().unwrap_or(0)
}
