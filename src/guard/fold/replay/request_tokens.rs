//! Raw tokens of a request as a replay has it, and whether these are within a budget.

use super::{Moment, Replay};
use crate::guard::fold::cut_state::CutState;

impl Replay<'_> {
    /// Raw tokens of a request with a preface, ledger included, of which nothing was cut.
    pub(super) fn uncut_tokens(&self) -> u32 {
        let all = self.tokens.iter().chain(&self.bound_tokens);
        let all = all.fold(self.beside, |all, it| all.saturating_add(*it));
        let ledger = self.said_room.saturating_add(self.words_room);
        all.saturating_add(self.preface)
            .saturating_add(ledger)
            .saturating_add(self.ledger_frame)
    }

    /// Raw tokens of a unit as it is sent.
    pub(super) fn unit_tokens(&self, at: usize, state: &CutState) -> u32 {
        match state.masked[at] {
            true => self.masked_tokens[at],
            false => self.tokens[at],
        }
    }

    /// Raw tokens of the conversation with these cuts and a ledger of so many.
    pub(in crate::guard) fn sent_tokens(&self, state: &CutState, ledger: u32) -> u32 {
        let bound = self.bound_tokens.iter().copied();
        let kept = (0..self.view.units.len()).filter(|&at| !state.folded[at]);
        let sent = kept.map(|at| self.unit_tokens(at, state)).chain(bound);
        let sent = sent.fold(self.beside, u32::saturating_add);
        match self.prefaced || state.has_folds {
            true => sent.saturating_add(self.preface).saturating_add(ledger),
            false => sent,
        }
    }

    /// Raw tokens by which the request that ended at a unit is over its budget.
    pub(super) fn over(&self, at: usize, now: &Moment) -> u32 {
        let most = self.add_tolerance(self.high[at]);
        self.sent_now(now).saturating_sub(most)
    }

    /// The most raw tokens that go out with a budget of so many.
    pub(in crate::guard) fn add_tolerance(&self, high: u32) -> u32 {
        high.saturating_add((f64::from(high) * self.tolerance) as u32)
    }

    /// Whether the request has no more than so many raw tokens.
    pub(super) fn meets(&self, tokens: u32, now: &Moment) -> bool {
        self.sent_now(now) <= tokens
    }

    fn sent_now(&self, now: &Moment) -> u32 {
        now.live.saturating_add(self.note_tokens(&now.state))
    }

    fn note_tokens(&self, state: &CutState) -> u32 {
        if !self.prefaced && !state.has_folds {
            return 0;
        }
        self.preface.saturating_add(self.ledger_tokens(state))
    }

    /// The most raw tokens that the ledger takes.
    pub(in crate::guard) fn ledger_tokens(&self, state: &CutState) -> u32 {
        match state.bare || !state.has_facts {
            true => 0,
            false => state
                .said
                .min(self.said_room)
                .saturating_add(self.words_room)
                .saturating_add(self.ledger_frame),
        }
    }
}
