//! The fold: which units go, decided on a fixed grid.
//!
//! A conversation is replayed unit by unit from its start, in raw sizes, as its requests came
//! when it grew. Where it passes the budget, whole oldest units go until a multiple of the grid's
//! step is gone. What a cut removes depends only on what came before it, so the same conversation
//! gets the same cuts in any process, with no state at all; state spares the replay and keeps a
//! cut where calibration would move it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{
    clear::sweep::{Grids, Swept, SweptMark},
    priority::spare::{Spare, Spares},
    units::{self, Unit, UnitKind},
};

/// Part of a step that a cut may go further to end where a turn ends.
const TURN_SLACK: u32 = 4;

/// A cut that was made: remembered by the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Steps of the grid that were to go. Never falls.
    k: u32,
    /// The first message that is kept, counted without system messages: these come and go, and
    /// what is folded stays.
    boundary: u32,
    /// Raw tokens that went, as they were then.
    removed: u32,
    /// There was no room for a ledger.
    bare: bool,
}

impl Mark {
    /// The first message that is kept, counted without system messages.
    pub const fn boundary(self) -> u32 {
        self.boundary
    }

    /// What of it stands in the request: where it is, and whether facts were picked from it.
    pub const fn shows(self) -> (u32, bool) {
        (self.boundary, self.bare)
    }
}

/// What is folded: units from the pinned start up to `boundary`; and how far the rest is cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    pub k: u32,
    /// Index of the first unit that is kept after the pinned start.
    pub boundary: usize,
    /// Raw tokens that went.
    pub removed: u32,
    /// There is no room for a ledger of what was left out with the last cut.
    pub bare: bool,
    pub swept: Swept,
    /// Index of the first unit that was kept after the first cut that is known.
    pub first: Option<usize>,
}

/// A conversation on its way through its requests.
pub struct Replay<'a> {
    pub units: &'a [Unit],
    /// Raw tokens of each unit, as sent.
    pub tokens: Vec<u32>,
    /// Raw tokens that stand beside the messages.
    pub beside: u32,
    /// Raw tokens that the request may have that ended at each unit.
    pub high: Vec<u32>,
    /// Raw tokens of a preface without its ledger.
    pub preface: u32,
    /// Raw tokens that the ledger of what is folded beyond `based` may take.
    pub ledger: u32,
    /// The unit up to which the preface speaks for itself.
    pub based: usize,
    /// Whether the preface stands whatever is folded, as that of a course does.
    pub prefaced: bool,
    /// Raw tokens between two cuts.
    pub step: u32,
    /// What can be cleared; none where nothing is to be.
    pub grids: Option<Grids>,
    /// Annotated texts that go before anything is folded.
    pub spares: Spares,
}

/// Makes units smaller where the replay asks for it.
pub trait Shrink {
    /// Makes a step smaller by so many raw tokens. Gives what it took, and what the step is when it is
    /// cleared.
    fn tighten(&mut self, unit: usize, excess: u32) -> (u32, u32);

    /// Leaves an annotated text out. Gives the raw tokens that it took.
    fn leave_out(&mut self, text: usize) -> u32;
}

impl Replay<'_> {
    /// Raw tokens of a request with a preface, ledger included, of which nothing was cut.
    pub fn full(&self) -> u32 {
        let all = self.tokens.iter();
        let all = all.fold(self.beside, |all, it| all.saturating_add(*it));
        all.saturating_add(self.preface).saturating_add(self.ledger)
    }

    /// The cut that a session remembers, where it lies between two units.
    pub fn recall(&self, mark: Option<Mark>) -> Option<Fold> {
        let mark = mark?;
        let boundary = self.unit_after(mark.boundary)?;
        (boundary > units::pinned(self.units)).then_some(Fold {
            k: mark.k,
            boundary,
            removed: mark.removed,
            bare: mark.bare,
            ..Fold::default()
        })
    }

    /// How far a session remembers to have been cleared.
    pub fn recall_swept(&self, mark: SweptMark) -> Option<Swept> {
        let place = |said| match said {
            0 => Some(0),
            said => self.unit_after(said),
        };
        Some(Swept {
            rounds: place(mark.rounds)?,
            media: place(mark.media)?,
        })
    }

    /// How far what is kept is cleared: what lies before the fold's boundary needs no memory.
    pub fn swept_mark(&self, fold: &Fold) -> SweptMark {
        let mark = |unit: usize| match unit > fold.boundary {
            true => self.said_before(unit),
            false => 0,
        };
        SweptMark {
            rounds: mark(fold.swept.rounds),
            media: mark(fold.swept.media),
        }
    }

    /// The unit that begins after so many messages, system ones apart.
    fn unit_after(&self, messages: u32) -> Option<usize> {
        let mut said = 0;
        self.units.iter().position(|unit| {
            if unit.kind == UnitKind::System {
                return false;
            }
            let here = said == messages as usize;
            said += unit.messages.len();
            here
        })
    }

    /// Messages before a unit, system ones apart.
    pub fn said_before(&self, unit: usize) -> u32 {
        let before = self.units[..unit].iter();
        let said = before.filter(|unit| unit.kind != UnitKind::System);
        said.map(|unit| unit.messages.len()).sum::<usize>() as u32
    }

    /// The fold that a course begins with: all up to message `said` is gone, system messages
    /// apart, whatever the grid says.
    pub fn begin(&self, said: u32) -> Fold {
        let boundary = at_said(self.units, said);
        let removed = (units::pinned(self.units)..boundary)
            .filter(|&unit| self.goes(unit))
            .fold(0u32, |sum, unit| sum.saturating_add(self.tokens[unit]));
        Fold {
            k: removed / self.step,
            boundary,
            removed,
            ..Fold::default()
        }
    }

    pub fn mark(&self, fold: Fold) -> Option<Mark> {
        // A boundary that only passed what stays has left nothing out.
        let any = (units::pinned(self.units)..fold.boundary).any(|at| self.goes(at));
        any.then_some(Mark {
            k: fold.k,
            boundary: self.said_before(fold.boundary),
            removed: fold.removed,
            bare: fold.bare,
        })
    }

    /// Replays the requests that ended at unit `from` and later, beginning with what was done for
    /// the one before. `shrink` is asked to make units smaller.
    pub fn run(
        &mut self,
        from: usize,
        (fold, swept): (Option<Fold>, Swept),
        shrink: &mut impl Shrink,
    ) -> Fold {
        let pinned = units::pinned(self.units);
        let begin = fold.map_or((0, pinned), |fold| (fold.k, fold.boundary));
        let mut fold = Fold {
            k: begin.0,
            boundary: begin.1,
            swept,
            first: fold.map(|fold| fold.boundary),
            ..fold.unwrap_or_default()
        };
        // Nothing was decided yet of a conversation whose start is looked at.
        let decided = if from < pinned { 0 } else { from };
        let kept = |at: usize| at < pinned || at >= fold.boundary || self.units[at].stays;
        self.spares.pass(decided, kept);
        let mut live = self.beside;
        // As `newest` gives it for the request that ended here: looked for anew each time, a long
        // row of what stays would be walked once for every unit of it.
        let mut newest = None;
        for at in 0..self.units.len() {
            if at >= pinned && self.goes(at) {
                newest = match self.units[at].kind {
                    UnitKind::Assistant => newest.or(Some(at)),
                    _ => Some(at),
                };
            }
            if at < pinned || at >= fold.boundary || !self.goes(at) {
                live = live.saturating_add(self.now(at, &fold.swept));
            }
            let last = at + 1 == self.units.len();
            // A request ends with anything but an answer; the last one as it is.
            let asks = self.units[at].kind != UnitKind::Assistant;
            if at < from || !(asks || last) {
                continue;
            }
            live = self.clear_rounds(at, live, &mut fold);
            // The pinned start is asked with as a whole.
            if at + 1 >= pinned || last {
                live = self.leave_out(at, live, &fold, shrink);
            }
            live = self.clear_media(at, live, &mut fold);
            if self.over(at, live, &fold) > 0 {
                let newest = newest.unwrap_or(at).max(pinned);
                let full = live
                    .saturating_add(self.preface)
                    .saturating_add(self.ledger);
                let needed = full.saturating_sub(self.high[at]);
                live = live.saturating_sub(self.advance(newest, needed, &mut fold));
            }
            // A ledger gives way before the newest step does, until the next cut.
            fold.bare |= self.over(at, live, &fold) > 0;
            let excess = self.over(at, live, &fold);
            if excess > 0 && self.units[at].kind == UnitKind::Step {
                let (taken, small) = shrink.tighten(at, excess);
                let taken = taken.min(self.tokens[at]);
                self.tokens[at] -= taken;
                live = live.saturating_sub(taken);
                if let Some(grids) = &mut self.grids {
                    grids.small[at] = small;
                }
            }
        }
        fold
    }

    /// Leaves annotated texts out where the request at `at` is over its budget. Gives the raw tokens of
    /// what is left.
    fn leave_out(
        &mut self,
        at: usize,
        mut live: u32,
        fold: &Fold,
        shrink: &mut impl Shrink,
    ) -> u32 {
        let mut search = self.spares.search(at + 1);
        loop {
            let over = self.over(at, live, fold);
            let Some(Spare { text, unit, .. }) = self.spares.take(&mut search, over) else {
                break;
            };
            let taken = shrink.leave_out(text).min(self.tokens[unit]);
            self.tokens[unit] -= taken;
            live = live.saturating_sub(taken);
            if let Some(grids) = &mut self.grids {
                grids.small[unit] = grids.small[unit].saturating_sub(taken);
            }
        }
        self.spares.end(search);
        live
    }

    /// Clears old rounds where the request at `at` is past the mark. Gives the raw tokens of what is left.
    fn clear_rounds(&self, at: usize, live: u32, fold: &mut Fold) -> u32 {
        let Some(grids) = &self.grids else {
            return live;
        };
        let before = fold.swept;
        let note = self.note(fold);
        if live.saturating_add(note) > grids.marks[at] {
            let reach = grids.rounds.reach(grids.recent[at].rounds);
            fold.swept.rounds = before.rounds.max(reach);
        }
        self.less(live, UnitKind::Step, before.rounds..fold.swept.rounds, fold)
    }

    /// Clears old media where the request at `at` is over its budget. Gives the raw tokens of what is left.
    fn clear_media(&self, at: usize, live: u32, fold: &mut Fold) -> u32 {
        let Some(grids) = &self.grids else {
            return live;
        };
        let before = fold.swept;
        if self.over(at, live, fold) > 0 {
            let reach = grids.media.reach(grids.recent[at].media);
            fold.swept.media = before.media.max(reach);
        }
        self.less(live, UnitKind::User, before.media..fold.swept.media, fold)
    }

    /// Raw tokens of what is left where units of a kind come to be cleared.
    fn less(&self, live: u32, kind: UnitKind, units: Range<usize>, fold: &Fold) -> u32 {
        let kept = units.filter(|&at| at >= fold.boundary && self.goes(at));
        kept.filter(|&at| self.units[at].kind == kind)
            .fold(live, |live, at| {
                let live = live.saturating_sub(self.tokens[at]);
                live.saturating_add(self.now(at, &fold.swept))
            })
    }

    /// Raw tokens of a unit as it is sent.
    fn now(&self, at: usize, swept: &Swept) -> u32 {
        match &self.grids {
            Some(grids) if swept.covers(at, self.units[at].kind) => grids.small[at],
            _ => self.tokens[at],
        }
    }

    /// Raw tokens of the conversation with this fold.
    pub fn sent(&self, fold: Fold) -> u32 {
        let pinned = units::pinned(self.units);
        let kept = (0..self.units.len())
            .filter(|&at| at < pinned || at >= fold.boundary || !self.goes(at))
            .fold(self.beside, |sum, at| {
                sum.saturating_add(self.now(at, &fold.swept))
            });
        kept.saturating_add(self.note(&fold))
    }

    /// Raw tokens by which the request that ended at a unit is over its budget.
    fn over(&self, at: usize, live: u32, fold: &Fold) -> u32 {
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

    fn goes(&self, unit: usize) -> bool {
        !self.units[unit].stays
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
        let gone = (before.boundary..fold.boundary).filter(|&unit| self.goes(unit));
        gone.map(|unit| self.now(unit, &fold.swept))
            .fold(0, u32::saturating_add)
    }

    /// Raw tokens by which a unit counts as left out: those of what clearing leaves, so that it is
    /// the same whether the unit was cleared before.
    fn weight(&self, unit: usize) -> u32 {
        match &self.grids {
            _ if !self.goes(unit) => 0,
            Some(grids) => grids.small[unit],
            None => self.tokens[unit],
        }
    }

    /// Goes on to the next user message where it is near: the kept part then begins with a turn.
    fn to_turn(&self, newest: usize, fold: &mut Fold) {
        let mut extra = 0u32;
        for unit in fold.boundary..=newest {
            if self.units[unit].kind == UnitKind::User {
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

/// The first unit that must stay in the request that ended at unit `at`: the last one that is
/// said and not an instruction, and with the beginning of an answer what it answers.
pub fn newest(units: &[Unit], at: usize, pinned: usize) -> usize {
    let said = |before: usize| (pinned..before).rev().find(|&unit| !units[unit].stays);
    let mut first = said(at + 1).unwrap_or(at);
    // An answer may have been begun in several messages.
    while units[first].kind == UnitKind::Assistant
        && let Some(before) = said(first)
    {
        first = before;
    }
    first.max(pinned)
}

/// The unit with which a course begins that keeps message `said` and what follows, counted without
/// system messages: the one that holds it, but neither pinned nor after the newest.
pub fn at_said(units: &[Unit], said: u32) -> usize {
    let Some(last) = units.len().checked_sub(1) else {
        return 0;
    };
    let mut passed = 0;
    let place = units.iter().position(|unit| {
        if unit.kind == UnitKind::System {
            return false;
        }
        passed += unit.messages.len();
        passed > said as usize
    });
    let place = place.unwrap_or(units.len());
    let pinned = units::pinned(units);
    place.min(newest(units, last, pinned)).max(pinned)
}
