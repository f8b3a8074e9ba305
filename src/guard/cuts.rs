//! What is cut of single messages: named texts by their caps and shares, results and calls by their
//! limits.

use super::{
    Memory, Recall, injected::Injected, priority::Priorities, results::Results, view::View,
};
use crate::conversation::units::{self, Unit};

/// What is cut of single messages.
pub(super) struct Cuts<'a> {
    pub(super) texts: Priorities<'a>,
    pub(super) results: Results<'a>,
    /// Raw tokens of every message as the first line leaves it.
    pub(super) first: Vec<u32>,
}

impl<'a> Cuts<'a> {
    /// The first line: caps and shares of named texts, then the limits of results, all by the bytes and
    /// the settings alone. `tokens`: raw ones of every message as it came.
    pub(super) fn first_line(
        view: View<'a>,
        tokens: Vec<u32>,
        injected: Option<&Injected<'_>>,
    ) -> Self {
        let mut results = Results::new(view, tokens);
        if let Some(injected) = injected {
            results.make_room(injected);
        }
        let texts = Priorities::decide(view, &mut results.tokens);
        results.first_line();
        Self {
            texts,
            first: results.tokens.clone(),
            results,
        }
    }

    /// Applies the limits that the session remembers, and that of new results while it is not healthy.
    pub(super) fn apply_limits(mut self, view: View<'_>, recall: &Recall) -> Self {
        self.results.apply_remembered(&recall.memory.tight);
        if let Some(chars) = recall.ours.tight_chars {
            let from = units::first_new_message(view.units, recall.messages);
            self.results.cut_nearly_full(from, chars);
        }
        self
    }

    /// Leaves out the annotated texts that the session remembers to have been left out.
    pub(super) fn recall_texts(&mut self, memory: &Memory) {
        self.texts.recall(&memory.tight, &mut self.results.tokens);
    }

    /// Leaves an annotated text out because the prompt is over its budget; gives the raw tokens that this
    /// saved.
    pub(super) fn leave_out_text(&mut self, text: usize) -> u32 {
        self.texts.leave_out_text(text, &mut self.results.tokens)
    }

    /// Raw tokens of a unit.
    pub(super) fn weigh(&self, unit: &Unit) -> u32 {
        sum(&self.results.tokens[unit.messages.clone()])
    }

    /// Raw tokens of a unit once all annotated texts that may go have gone.
    pub(super) fn weigh_least(&self, unit: &Unit) -> u32 {
        self.texts.least(unit, self.weigh(unit))
    }
}

/// The sum of raw tokens.
pub(super) fn sum(tokens: &[u32]) -> u32 {
    tokens.iter().fold(0, |sum, it| sum.saturating_add(*it))
}
