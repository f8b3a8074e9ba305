//! What is cut of single messages: named texts by their caps and shares, results and calls by their
//! limits.

use std::ops::Range;

use super::{
    GuardMemory, Recall, placed_injections::PlacedInjections, priority::Priorities,
    results::ToolResults, view::RequestView,
};
use crate::conversation::units::{self, Unit};

/// What is cut of single messages.
pub(super) struct Cuts<'a> {
    pub(super) texts: Priorities<'a>,
    pub(super) results: ToolResults<'a>,
    /// Raw tokens of every message as the first line leaves it.
    pub(super) first_line_tokens: Vec<u32>,
}

impl<'a> Cuts<'a> {
    /// The first line: caps and shares of named texts, then the limits of results, all by the bytes and
    /// the settings alone. `tokens`: raw ones of every message as it came.
    pub(super) fn from_first_line(
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
    pub(super) fn apply_limits(mut self, view: RequestView<'_>, recall: &Recall) -> Self {
        self.results.apply_remembered(&recall.kept_memory().tight);
        if let Some(chars) = recall.injections.tight_chars {
            let from = units::first_new_message(view.units, recall.messages);
            self.results.cut_nearly_full(from, chars);
        }
        self
    }

    /// Leaves out the annotated texts that the session remembers to have been left out.
    pub(super) fn recall_texts(&mut self, memory: &GuardMemory) {
        self.texts
            .leave_out_remembered(&memory.tight, &mut self.results.tokens);
    }

    /// Leaves an annotated text out because the prompt is over its budget; gives the raw tokens that this
    /// saved.
    pub(super) fn leave_out_text(&mut self, text: usize) -> u32 {
        self.texts.leave_out_text(text, &mut self.results.tokens)
    }

    /// Raw tokens of what goes with a unit.
    pub(super) fn weigh_unit(&self, unit: &Unit) -> u32 {
        sum_tokens(&self.results.tokens[unit.unbound_messages()])
    }

    /// Raw tokens of what stays where a unit goes.
    pub(super) fn weigh_bound(&self, unit: &Unit) -> u32 {
        sum_tokens(&self.results.tokens[unit.bound_messages()])
    }

    /// Raw tokens of messages once all annotated texts that may go have gone.
    pub(super) fn weigh_least(&self, messages: Range<usize>) -> u32 {
        self.texts.weigh_least(messages, &self.results.tokens)
    }
}

/// The sum of raw tokens.
pub(super) fn sum_tokens(tokens: &[u32]) -> u32 {
    tokens.iter().fold(0, |sum, it| sum.saturating_add(*it))
}
