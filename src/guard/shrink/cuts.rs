//! What is cut of single messages: named texts by their caps and shares, results and calls by their
//! limits.

use std::ops::Range;

use crate::{
    conversation::units::{self, Unit},
    guard::{
        inject::placed_injections::PlacedInjections,
        request::view::RequestView,
        shrink::{priority::Priorities, result_limits::KeyedLimit, results::ToolResults},
    },
};

/// The limits of a session's messages.
pub(in crate::guard) struct SessionLimits<'a> {
    /// Those that the session remembers.
    pub(in crate::guard) remembered: &'a [KeyedLimit],
    /// Characters of a new result, where the window is nearly full.
    pub(in crate::guard) new_results: Option<usize>,
    /// Messages of the last request, without system messages.
    pub(in crate::guard) sent: usize,
}

/// What is cut of single messages.
pub(in crate::guard) struct Cuts<'a> {
    pub(in crate::guard) texts: Priorities<'a>,
    pub(in crate::guard) results: ToolResults<'a>,
    /// Raw tokens of every message as the first line leaves it.
    pub(in crate::guard) first_line_tokens: Vec<u32>,
}

impl<'a> Cuts<'a> {
    /// The first line: caps and shares of named texts, then the limits of results, all by the bytes and
    /// the settings alone. `tokens`: raw ones of every message as it came.
    pub(in crate::guard) fn from_first_line(
        view: RequestView<'a>,
        tokens: Vec<u32>,
        injected: Option<&PlacedInjections<'_>>,
    ) -> Self {
        let mut results = ToolResults::new(view, tokens);
        if let Some(injected) = injected {
            results.make_room(injected);
        }
        let texts = Priorities::decide_texts(view, &mut results.tokens);
        results.apply_first_line();
        Self {
            texts,
            first_line_tokens: results.tokens.clone(),
            results,
        }
    }

    /// Applies the limits that the session remembers, and that of new results while it is not healthy.
    pub(in crate::guard) fn apply_limits(
        mut self,
        view: RequestView<'_>,
        limits: &SessionLimits<'_>,
    ) -> Self {
        self.results.apply_remembered(limits.remembered);
        if let Some(chars) = limits.new_results {
            let from = units::first_new_message(view.units, limits.sent);
            self.results.cut_nearly_full(from, chars);
        }
        self
    }

    /// Leaves out the annotated texts that the session remembers to have been left out.
    pub(in crate::guard) fn recall_texts(&mut self, remembered: &[KeyedLimit]) {
        self.texts
            .leave_out_remembered(remembered, &mut self.results.tokens);
    }

    /// Leaves an annotated text out because the prompt is over its budget; gives the raw tokens that this
    /// saved.
    pub(in crate::guard) fn leave_out_text(&mut self, text: usize) -> u32 {
        self.texts.leave_out_text(text, &mut self.results.tokens)
    }

    /// Raw tokens of what goes with a unit.
    pub(in crate::guard) fn weigh_unit(&self, unit: &Unit) -> u32 {
        sum_tokens(&self.results.tokens[unit.unbound_messages()])
    }

    /// Raw tokens of what stays where a unit goes.
    pub(in crate::guard) fn weigh_bound(&self, unit: &Unit) -> u32 {
        sum_tokens(&self.results.tokens[unit.bound_messages()])
    }

    /// Raw tokens of messages once all annotated texts that may go have gone.
    pub(in crate::guard) fn weigh_least(&self, messages: Range<usize>) -> u32 {
        self.texts.weigh_least(messages, &self.results.tokens)
    }
}

/// The sum of raw tokens.
pub(in crate::guard) fn sum_tokens(tokens: &[u32]) -> u32 {
    tokens.iter().fold(0, |sum, it| sum.saturating_add(*it))
}
