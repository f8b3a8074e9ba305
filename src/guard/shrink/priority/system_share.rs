//! The share of system text in the budget. The instructions at the start have one limit together, and each later system
//! message may have what the system messages before it leave.

use std::ops::Range;

use super::{NamedTexts, Shortening, removable_texts::RemovalPool};
use crate::guard::{request::estimate::sum_tokens, shrink::shortened_messages::find_common_level};

/// No text without an annotation is shortened below this; raw tokens.
const LEAST_TOKENS: u32 = 128;
/// Rounds of shortening: each text is rounded up, so the sum may be over the limit after a round.
const TRIM_ROUNDS: usize = 8;

impl NamedTexts<'_> {
    /// Holds each group of system messages to the share that the groups before it leave.
    pub(in crate::guard) fn enforce_system_share(&mut self, tokens: &mut [u32]) {
        if self.system <= self.limit {
            return;
        }
        let messages = &self.view.conversation.items;
        let is_system = |at: &usize| messages[*at].is_pinned_system();
        let start = (0..messages.len()).take_while(is_system).count();
        let later = (start..messages.len()).filter(is_system);
        let mut before = 0u32;
        for group in std::iter::once(0..start).chain(later.map(|at| at..at + 1)) {
            let most = self.limit.saturating_sub(before);
            self.leave_out_texts(group.clone(), most, tokens);
            if self.view.policy.settings.trim_system {
                self.trim_texts(group.clone(), most, tokens);
            }
            before = before.saturating_add(sum_tokens(&tokens[group]));
        }
    }

    /// Leaves out annotated texts until these messages are within `most` raw tokens.
    fn leave_out_texts(&mut self, messages: Range<usize>, most: u32, tokens: &mut [u32]) {
        if sum_tokens(&tokens[messages.clone()]) <= most {
            return;
        }
        let mut pools: [RemovalPool; 3] = Default::default();
        for at in self.texts_of(messages.clone()) {
            if let Some((priority, saves)) = self.find_saving(at) {
                pools[priority as usize].add_text(saves, at);
            }
        }
        for pool in &mut pools {
            loop {
                let over = sum_tokens(&tokens[messages.clone()]).saturating_sub(most);
                if over == 0 {
                    return;
                }
                let Some(at) = pool.take_best(over) else {
                    break;
                };
                self.replace_with_placeholder(at, tokens);
            }
        }
    }

    /// Shortens texts without an annotation until these messages are within `most` raw tokens.
    fn trim_texts(&mut self, messages: Range<usize>, most: u32, tokens: &mut [u32]) {
        let is_plain = |at: &usize| {
            let text = &self.texts[*at];
            text.priority.is_none() && text.decodable
        };
        let plain: Vec<usize> = self.texts_of(messages.clone()).filter(is_plain).collect();
        for _ in 0..TRIM_ROUNDS {
            let over = sum_tokens(&tokens[messages.clone()]).saturating_sub(most);
            if over == 0 {
                return;
            }
            let now: Vec<u32> = plain.iter().map(|&at| self.texts[at].tokens).collect();
            let target = sum_tokens(&now).saturating_sub(over);
            let level = find_common_level(now, target).max(LEAST_TOKENS);
            for &at in &plain {
                if self.texts[at].tokens > level {
                    self.cut_text(at, level, Shortening::Trimmed, tokens);
                }
            }
            if level == LEAST_TOKENS {
                return;
            }
        }
    }
}
