//! Raw tokens of the units of a conversation. The weights of units change here and nowhere else.

use crate::{
    conversation::units::Unit,
    guard::{
        fold::{cut_state::CutState, note::Note},
        inject::placed_injections::{InjectedGap, InjectedWeight, with_injected},
        request::view::RequestView,
        shrink::{
            clearing::Clearing, message_cuts::MessageCuts, shortened_messages::ShortenedMessages,
        },
    },
};

/// Raw tokens of units, with what is injected beside them.
pub(super) struct UnitWeights {
    /// For each unit, the raw tokens of what is left out with it.
    whole: Vec<u32>,
    /// The same if the unit is cleared.
    cleared: Vec<u32>,
    /// For each unit, the raw tokens of the bound messages, which stay if it is left out.
    bound: Vec<u32>,
    injected: Vec<i64>,
    /// What is injected between two units, and is left out with either of them.
    gaps: Vec<InjectedGap>,
    /// Raw tokens of what is sent in addition to the messages.
    pub(super) beside: u32,
}

impl UnitWeights {
    /// The weights of a conversation in which nothing can be cleared. `tools`: raw tokens of what the client sends in
    /// addition to the messages.
    pub(super) fn new(
        view: RequestView<'_>,
        cuts: &MessageCuts<'_>,
        injected: InjectedWeight,
        tools: u32,
    ) -> Self {
        let units = view.units.iter();
        let bound = units.clone().map(|unit| cuts.weigh_bound(unit)).collect();
        let units = units.zip(&injected.units);
        let whole: Vec<u32> = units
            .map(|(unit, &more)| with_injected(cuts.weigh_unit(unit), more))
            .collect();
        Self {
            cleared: whole.clone(),
            whole,
            bound,
            beside: with_injected(tools, injected.beside),
            injected: injected.units,
            gaps: injected.gaps,
        }
    }

    /// Weighs what each unit is once it is cleared.
    pub(super) fn weigh_cleared(
        &mut self,
        units: &[Unit],
        clearing: &Clearing,
        messages: &ShortenedMessages<'_>,
    ) {
        let units = units.iter().zip(&self.injected);
        self.cleared = units
            .map(|(unit, &more)| with_injected(clearing.weigh(unit, messages), more))
            .collect();
    }

    /// Raw tokens that clearing a unit frees.
    pub(super) fn clearable(&self, at: usize) -> u32 {
        self.whole[at].saturating_sub(self.cleared[at])
    }

    /// Raw tokens of a unit as it is sent.
    pub(super) fn of_unit(&self, at: usize, state: &CutState) -> u32 {
        if state.cleared[at] {
            self.cleared[at]
        } else {
            self.whole[at]
        }
    }

    /// Raw tokens of a unit of which nothing is cleared.
    pub(super) fn of_whole_unit(&self, at: usize) -> u32 {
        self.whole[at]
    }

    /// Raw tokens of what stays if unit `at` is left out.
    pub(super) fn of_bound(&self, at: usize) -> u32 {
        self.bound[at]
    }

    /// Raw tokens of a request with the longest note, of which nothing was cut.
    pub(super) fn sum_uncut(&self, note: &Note<'_>) -> u32 {
        let all = self.whole.iter().chain(&self.bound).copied();
        all.chain([note.longest()])
            .fold(self.beside, u32::saturating_add)
    }

    /// Raw tokens of the conversation with these cuts, without a note.
    pub(super) fn sum_sent(&self, state: &CutState) -> u32 {
        let kept = (0..self.whole.len()).filter(|&at| !state.folded[at]);
        let sent = kept.map(|at| self.of_unit(at, state));
        sent.chain(self.bound.iter().copied())
            .fold(self.beside, u32::saturating_add)
    }

    /// Takes up to `freed` raw tokens of a text off a unit. Returns how many it took.
    pub(super) fn take_text(&mut self, at: usize, is_bound: bool, freed: u32) -> u32 {
        let tokens = if is_bound {
            &mut self.bound[at]
        } else {
            &mut self.whole[at]
        };
        let taken = freed.min(*tokens);
        *tokens -= taken;
        if !is_bound {
            self.cleared[at] = self.cleared[at].saturating_sub(taken);
        }
        taken
    }

    /// Takes reasoning of so many raw tokens off a unit.
    pub(super) fn take_reasoning(&mut self, at: usize, tokens: u32) {
        for weight in [&mut self.whole[at], &mut self.cleared[at]] {
            *weight = weight.saturating_sub(tokens);
        }
    }

    /// Takes `freed` raw tokens off a unit that got shorter. `cleared`: the raw tokens of its messages if they are cleared,
    /// of which `reasoning` raw tokens are left out. Returns how many of `freed` it took.
    pub(super) fn take_shortened(
        &mut self,
        at: usize,
        freed: u32,
        cleared: u32,
        reasoning: u32,
    ) -> u32 {
        let taken = freed.min(self.whole[at]);
        self.whole[at] -= taken;
        self.cleared[at] = with_injected(cleared, self.injected[at]).saturating_sub(reasoning);
        taken
    }

    /// Takes off what is injected between `unit`, which is left out, and the unit before it. Returns the raw tokens that
    /// this frees.
    pub(super) fn drop_injections_before(&mut self, unit: usize, state: &CutState) -> u32 {
        let mut freed = 0u32;
        for gap in self.gaps.iter().filter(|gap| gap.answer == Some(unit)) {
            if let Some(before) = gap.before.filter(|&before| !state.folded[before]) {
                for tokens in [&mut self.whole[before], &mut self.cleared[before]] {
                    *tokens = with_injected(*tokens, -gap.tokens);
                }
                freed = with_injected(freed, gap.tokens);
            }
        }
        freed
    }
}
