//! What is cut of single messages: named texts by their caps and shares, results and calls by their
//! limits.

use std::ops::Range;

use crate::{
    conversation::units::{self, Unit},
    guard::{
        inject::placed_injections::PlacedInjections,
        order::MessageCut,
        request::{estimate::sum_tokens, view::RequestView},
        shrink::{
            priority::NamedTexts, result_limits::KeyedLimit, shortened_messages::ShortenedMessages,
        },
    },
};

/// What a session says of the lengths of its messages.
#[derive(Default)]
pub(in crate::guard) struct SessionLimits<'a> {
    /// The limits that it remembers.
    pub(in crate::guard) remembered: &'a [KeyedLimit],
    /// Whether the remembered limits that leave annotated texts out apply.
    pub(in crate::guard) leaves_out_texts: bool,
    /// The most characters of a new result while the window is nearly full; `None` otherwise.
    pub(in crate::guard) new_results: Option<usize>,
    /// Messages of the last request, without system messages.
    pub(in crate::guard) sent: usize,
}

/// The messages of a request after the cuts of single messages.
pub(in crate::guard) struct MessageCuts<'a> {
    view: RequestView<'a>,
    pub(in crate::guard) texts: NamedTexts<'a>,
    pub(in crate::guard) messages: ShortenedMessages<'a>,
    /// Raw tokens of every message after the cuts that depend on bytes and settings alone.
    pub(in crate::guard) settled_tokens: Vec<u32>,
}

impl<'a> MessageCuts<'a> {
    /// Makes all cuts of messages, in the order of `rules::RULES`. `tokens`: raw ones of every message as it came.
    pub(in crate::guard) fn cut_messages(
        view: RequestView<'a>,
        tokens: Vec<u32>,
        injected: Option<&PlacedInjections<'_>>,
        limits: &SessionLimits<'_>,
    ) -> Self {
        let mut messages = ShortenedMessages::new(view, tokens);
        if let Some(injected) = injected {
            messages.make_room(injected);
        }
        let mut cuts = Self {
            view,
            texts: NamedTexts::new(view, &messages.tokens),
            messages,
            settled_tokens: Vec::new(),
        };
        let order = &view.policy.rules.order;
        for &cut in order.messages {
            cuts.make_cut(cut, limits);
        }
        cuts.settled_tokens.clone_from(&cuts.messages.tokens);
        for &cut in order.of_session {
            cuts.make_cut(cut, limits);
        }
        cuts
    }

    fn make_cut(&mut self, cut: MessageCut, limits: &SessionLimits<'_>) {
        let tokens = &mut self.messages.tokens;
        match cut {
            MessageCut::CapNamedTexts => self.texts.apply_caps(tokens),
            MessageCut::HoldSystemShare => self.texts.enforce_system_share(tokens),
            MessageCut::TruncateResults => self.messages.truncate_long_results(),
            MessageCut::RepeatLimits => self.repeat_limits(limits),
            MessageCut::TruncateNewResults => {
                if let Some(chars) = limits.new_results {
                    let from = units::first_new_message(self.view.units, limits.sent);
                    self.messages.cut_nearly_full(from, chars);
                }
            }
        }
    }

    /// Makes the cuts that the session remembers. Of two limits with one key, the first counts.
    fn repeat_limits(&mut self, limits: &SessionLimits<'_>) {
        if limits.remembered.is_empty() {
            return;
        }
        let known = limits.remembered.iter().rev().copied().collect();
        self.messages.apply_remembered(&known);
        if limits.leaves_out_texts {
            self.texts
                .leave_out_remembered(&known, &mut self.messages.tokens);
        }
    }

    /// Lists what the session is to remember of the cuts of messages: the texts left out of the `kept` messages, and the
    /// limits of the `limited` ones.
    pub(in crate::guard) fn list_limits(&self, kept: &[bool], limited: &[bool]) -> Vec<KeyedLimit> {
        let texts = self.texts.limits_to_remember(kept);
        self.messages
            .limits_to_remember(limited)
            .chain(texts)
            .collect()
    }

    /// Leaves an annotated text out because the prompt is over its budget; gives the raw tokens that this
    /// saved.
    pub(in crate::guard) fn leave_out_text(&mut self, text: usize) -> u32 {
        self.texts.leave_out_text(text, &mut self.messages.tokens)
    }

    /// Raw tokens of a unit without the messages that are bound to it: what removing the unit frees.
    pub(in crate::guard) fn weigh_unit(&self, unit: &Unit) -> u32 {
        sum_tokens(&self.messages.tokens[unit.unbound_messages()])
    }

    /// Raw tokens of the bound messages of a unit, which stay when the unit is removed.
    pub(in crate::guard) fn weigh_bound(&self, unit: &Unit) -> u32 {
        sum_tokens(&self.messages.tokens[unit.bound_messages()])
    }

    /// Raw tokens of messages once all annotated texts that may be left out are left out.
    pub(in crate::guard) fn weigh_least(&self, messages: Range<usize>) -> u32 {
        self.texts.weigh_least(messages, &self.messages.tokens)
    }
}
