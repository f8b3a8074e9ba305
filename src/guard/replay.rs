//! The replay: decides on a fixed grid which units go.
//!
//! A conversation is replayed unit by unit from its start, in raw sizes, as its requests came
//! when it grew. Where it passes the budget, whole oldest units go until a multiple of the grid's
//! step is gone. What a cut removes depends only on what came before it, so the same conversation
//! gets the same cuts in any process, with no state at all; state spares the replay and keeps a
//! cut where calibration would move it.
//!
//! A request ended wherever anything but an answer stands last. Near the end of a turn a cut goes on to it, so that
//! the kept part begins with a user message. A remembered place is counted without system messages, which come and
//! go between requests; one from another grid does not bind.

use std::ops::Range;

use super::{
    clear::sweep::{Sweep, Swept},
    cuts::Cuts,
    fold::Fold,
    placed_injections::with_injected,
    priority::removable_texts::{RemovableText, RemovableTexts},
    view::RequestView,
};
use crate::conversation::units::UnitKind;

/// Part of a step that a cut may go further to end where a turn ends.
const TURN_SLACK: u32 = 4;

/// A conversation on its way through its requests.
pub(super) struct Replay<'a> {
    pub(super) view: RequestView<'a>,
    pub(super) cuts: Cuts<'a>,
    /// Raw tokens of each unit, as sent, and of what is injected beside it.
    pub(super) tokens: Vec<u32>,
    pub(super) injected: Vec<i64>,
    /// Raw tokens that stand beside the messages.
    pub(super) beside: u32,
    /// Of each unit, the budget of the request that ended with it; raw tokens.
    pub(super) high: Vec<u32>,
    /// Raw tokens of a preface without its ledger.
    pub(super) preface: u32,
    /// Raw tokens that the ledger of what is folded beyond `based` may take.
    pub(super) ledger: u32,
    /// The unit up to which the preface speaks for itself.
    pub(super) based: usize,
    /// Whether the preface stands whatever is folded, as that of a course does.
    pub(super) prefaced: bool,
    /// Raw tokens between two cuts.
    pub(super) step: u32,
    /// What can be cleared; none where nothing is to be.
    pub(super) sweep: Option<Sweep>,
    /// Annotated texts that go before anything is folded.
    pub(super) spares: RemovableTexts,
}

/// Where a replay begins, and with what.
pub(super) struct Start {
    /// The first unit that is looked at.
    pub(super) from: usize,
    /// What was done for the request before it.
    pub(super) fold: Option<Fold>,
    pub(super) swept: Swept,
}

impl Replay<'_> {
    /// Raw tokens of a request with a preface, ledger included, of which nothing was cut.
    pub(super) fn full(&self) -> u32 {
        let all = self.tokens.iter();
        let all = all.fold(self.beside, |all, it| all.saturating_add(*it));
        all.saturating_add(self.preface).saturating_add(self.ledger)
    }

    /// Replays the requests that ended at unit `start.from` and later.
    pub(super) fn run(&mut self, start: Start) -> Fold {
        let pinned = self.view.count_pinned();
        let mut fold = Fold {
            swept: start.swept,
            first: start.fold.map(|fold| fold.boundary),
            ..start.fold.unwrap_or(Fold {
                boundary: pinned,
                ..Fold::default()
            })
        };
        let lowest = self.high.iter().min().copied().unwrap_or(0);
        if self.sweep.is_none() && self.spares.is_empty() && self.full() <= lowest {
            // No request of it was ever too large, so that nothing was due.
            return fold;
        }
        // Nothing was decided yet of a conversation whose start is looked at.
        let from = start.from;
        let decided = if from < pinned { 0 } else { from };
        let units = self.view.units;
        let kept = |at: usize| at < pinned || at >= fold.boundary || units[at].stays;
        self.spares.mark_sent_until(decided, kept);
        let mut live = self.beside;
        // As `newest` gives it for the request that ended here: looked for anew each time, a long
        // row of what stays would be walked once for every unit of it.
        let mut newest = None;
        for (at, unit) in units.iter().enumerate() {
            if at >= pinned && self.can_remove(at) {
                newest = match unit.kind {
                    UnitKind::Assistant => newest.or(Some(at)),
                    _ => Some(at),
                };
            }
            if at < pinned || at >= fold.boundary || !self.can_remove(at) {
                live = live.saturating_add(self.unit_tokens(at, &fold.swept));
            }
            let last = at + 1 == units.len();
            // A request ends with anything but an answer; the last one as it is.
            let asks = unit.kind != UnitKind::Assistant;
            if at < from || !(asks || last) {
                continue;
            }
            live = self.clear_rounds(at, live, &mut fold);
            // No request ended inside the pinned start.
            if at + 1 >= pinned || last {
                live = self.leave_out(at, live, &fold);
            }
            live = self.clear_media(at, live, &mut fold);
            if self.tokens_over_budget(at, live, &fold) > 0 {
                let newest = newest.unwrap_or(at).max(pinned);
                let full = live
                    .saturating_add(self.preface)
                    .saturating_add(self.ledger);
                let needed = full.saturating_sub(self.high[at]);
                live = live.saturating_sub(self.advance(newest, needed, &mut fold));
            }
            // A ledger gives way before the newest step does, until the next cut.
            fold.bare |= self.tokens_over_budget(at, live, &fold) > 0;
            let excess = self.tokens_over_budget(at, live, &fold);
            if excess > 0 && unit.kind == UnitKind::Step {
                live = live.saturating_sub(self.tighten(at, excess));
            }
        }
        fold
    }

    /// Makes a step smaller by `excess` raw tokens. Gives what that took.
    fn tighten(&mut self, at: usize, excess: u32) -> u32 {
        let unit = &self.view.units[at];
        let results = &mut self.cuts.results;
        let taken = results.tighten_step(unit.messages.clone(), excess);
        let taken = taken.min(self.tokens[at]);
        self.tokens[at] -= taken;
        if let Some(sweep) = &mut self.sweep {
            sweep.small[at] = with_injected(sweep.clearing.weigh(unit, results), self.injected[at]);
        }
        taken
    }

    /// Leaves annotated texts out where the request at `at` is over its budget. Gives the raw tokens of
    /// what is left.
    fn leave_out(&mut self, at: usize, mut live: u32, fold: &Fold) -> u32 {
        if self.spares.is_empty() {
            return live;
        }
        let mut search = self.spares.begin_search(at + 1);
        loop {
            let over = self.tokens_over_budget(at, live, fold);
            let Some(RemovableText { text, unit, .. }) = self.spares.take_next(&mut search, over)
            else {
                break;
            };
            let taken = self.cuts.leave_out_text(text).min(self.tokens[unit]);
            self.tokens[unit] -= taken;
            live = live.saturating_sub(taken);
            if let Some(sweep) = &mut self.sweep {
                sweep.small[unit] = sweep.small[unit].saturating_sub(taken);
            }
        }
        self.spares.end_search(search);
        live
    }

    /// Clears old rounds where the request at `at` is past the mark. Gives the raw tokens of what is left.
    fn clear_rounds(&self, at: usize, live: u32, fold: &mut Fold) -> u32 {
        let Some(sweep) = &self.sweep else {
            return live;
        };
        let before = fold.swept;
        let note = self.note(fold);
        if live.saturating_add(note) > sweep.marks[at] {
            let reach = sweep.rounds.last_boundary(sweep.recent[at].rounds);
            fold.swept.rounds = before.rounds.max(reach);
        }
        self.subtract_cleared(live, UnitKind::Step, before.rounds..fold.swept.rounds, fold)
    }

    /// Clears old media where the request at `at` is over its budget. Gives the raw tokens of what is left.
    fn clear_media(&self, at: usize, live: u32, fold: &mut Fold) -> u32 {
        let Some(sweep) = &self.sweep else {
            return live;
        };
        let before = fold.swept;
        if self.tokens_over_budget(at, live, fold) > 0 {
            let reach = sweep.media.last_boundary(sweep.recent[at].media);
            fold.swept.media = before.media.max(reach);
        }
        self.subtract_cleared(live, UnitKind::User, before.media..fold.swept.media, fold)
    }

    /// Raw tokens of what is left where units of a kind come to be cleared.
    fn subtract_cleared(&self, live: u32, kind: UnitKind, units: Range<usize>, fold: &Fold) -> u32 {
        let kept = units.filter(|&at| at >= fold.boundary && self.can_remove(at));
        kept.filter(|&at| self.view.units[at].kind == kind)
            .fold(live, |live, at| {
                let live = live.saturating_sub(self.tokens[at]);
                live.saturating_add(self.unit_tokens(at, &fold.swept))
            })
    }

    /// Raw tokens of a unit as it is sent.
    fn unit_tokens(&self, at: usize, swept: &Swept) -> u32 {
        match &self.sweep {
            Some(sweep) if swept.covers(at, self.view.units[at].kind) => sweep.small[at],
            _ => self.tokens[at],
        }
    }

    /// Raw tokens of the conversation with this fold.
    pub(super) fn sent(&self, fold: &Fold) -> u32 {
        let pinned = self.view.count_pinned();
        let kept = (0..self.view.units.len())
            .filter(|&at| at < pinned || at >= fold.boundary || !self.can_remove(at))
            .fold(self.beside, |sum, at| {
                sum.saturating_add(self.unit_tokens(at, &fold.swept))
            });
        kept.saturating_add(self.note(fold))
    }

    /// Raw tokens by which the request that ended at a unit is over its budget.
    fn tokens_over_budget(&self, at: usize, live: u32, fold: &Fold) -> u32 {
        live.saturating_add(self.note(fold))
            .saturating_sub(self.high[at])
    }

    const fn note(&self, fold: &Fold) -> u32 {
        if fold.removed > 0 || self.prefaced {
            self.preface.saturating_add(self.ledger(fold))
        } else {
            0
        }
    }

    const fn ledger(&self, fold: &Fold) -> u32 {
        if fold.boundary > self.based && !fold.bare {
            self.ledger
        } else {
            0
        }
    }

    fn can_remove(&self, unit: usize) -> bool {
        !self.view.units[unit].stays
    }

    /// Moves the boundary on to the next step of the grid by which a request fits that is `needed` raw
    /// tokens too long and whose newest unit must stay. Returns the raw tokens that went.
    fn advance(&self, newest: usize, needed: u32, fold: &mut Fold) -> u32 {
        let before = *fold;
        let k = needed
            .saturating_add(fold.removed)
            .div_ceil(self.step)
            .max(fold.k.saturating_add(1));
        let target = k.saturating_mul(self.step);
        while fold.removed < target && fold.boundary < newest {
            fold.removed = fold.removed.saturating_add(self.weight(fold.boundary));
            fold.boundary += 1;
        }
        if fold.removed >= target {
            fold.k = k;
        } else {
            // Nothing more can go yet: the step counts as far as it was made.
            fold.k = fold.k.max(fold.removed / self.step);
        }
        if fold.boundary > before.boundary {
            fold.bare = false;
            self.to_turn(newest, fold);
        }
        if fold.removed > 0 {
            fold.first = fold.first.or(Some(fold.boundary));
        }
        let gone = (before.boundary..fold.boundary).filter(|&unit| self.can_remove(unit));
        gone.map(|unit| self.unit_tokens(unit, &fold.swept))
            .fold(0, u32::saturating_add)
    }

    /// Raw tokens by which a unit counts as left out: those of what clearing leaves, so that it is
    /// the same whether the unit was cleared before.
    fn weight(&self, unit: usize) -> u32 {
        match &self.sweep {
            _ if !self.can_remove(unit) => 0,
            Some(sweep) => sweep.small[unit],
            None => self.tokens[unit],
        }
    }

    /// Goes on to the next user message where it is near: the kept part then begins with a turn.
    fn to_turn(&self, newest: usize, fold: &mut Fold) {
        let mut extra = 0u32;
        for unit in fold.boundary..=newest {
            if self.view.units[unit].kind == UnitKind::User {
                fold.boundary = unit;
                fold.removed = fold.removed.saturating_add(extra);
                return;
            }
            extra = extra.saturating_add(self.weight(unit));
            if extra > self.step / TURN_SLACK {
                return;
            }
        }
    }
}
