//! The fold: which units go, decided on a fixed grid.
//!
//! A conversation is replayed unit by unit from its start, in raw sizes, as its requests came
//! when it grew. Where it passes the budget, whole oldest units go until a multiple of the grid's
//! step is gone. What a cut removes depends only on what came before it, so the same conversation
//! gets the same cuts in any process, with no state at all; state spares the replay and keeps a
//! cut where calibration would move it.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Policy, budget,
    units::{Unit, UnitKind},
};

/// Windows up to this are cut to half, larger ones to 0.7 of their budget.
const SMALL_WINDOW: u32 = 65_536;
/// Part of a step that a cut may go further to end where a turn ends.
const TURN_SLACK: u32 = 4;

/// Where cuts may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Raw tokens between two cuts.
    pub step: u32,
    /// Names the grid; a cut made on another does not bind.
    pub id: u64,
}

impl Grid {
    /// `fixed` are the raw tokens of system messages, tools and the first user message.
    pub fn new(policy: &Policy<'_>, fixed: u32) -> Self {
        let window = policy.window;
        // Rounded up, so that a word more in the system prompt does not move every cut.
        let unit = (window / 16).max(1);
        let fixed = fixed.div_ceil(unit).saturating_mul(unit);
        let low_water = policy
            .settings
            .low_water
            .unwrap_or(if window <= SMALL_WINDOW { 0.5 } else { 0.7 });
        let usual = budget::usual(policy);
        let room = f64::from(usual.saturating_sub(fixed));
        let step = ((1.0 - low_water) * room) as u32;
        let step = step.max(window / 64).max(64);
        let place = [window, usual, step].map(u32::to_le_bytes);
        Self {
            step,
            id: xxh3_64(place.as_flattened()),
        }
    }
}

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
}

impl Mark {
    /// The first message that is kept, counted without system messages.
    pub const fn boundary(self) -> u32 {
        self.boundary
    }
}

/// What is folded: units from the pinned start up to `boundary`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    pub k: u32,
    /// Index of the first unit that is kept after the pinned start.
    pub boundary: usize,
    /// Raw tokens that went.
    pub removed: u32,
}

/// A conversation on its way through its requests.
pub struct Replay<'a> {
    pub units: &'a [Unit],
    /// Raw tokens of each unit, as sent.
    pub tokens: Vec<u32>,
    /// Raw tokens that stand beside the messages.
    pub beside: u32,
    /// Raw tokens a request may have.
    pub high: u32,
    /// Raw tokens of a preface.
    pub preface: u32,
    pub grid: Grid,
}

impl Replay<'_> {
    /// Units that are always there: all up to the first user message, or the leading system
    /// messages where nobody is a user.
    pub fn pinned(&self) -> usize {
        let users = self
            .units
            .iter()
            .position(|unit| unit.kind == UnitKind::User);
        users.map_or_else(
            || {
                let other = |unit: &Unit| unit.kind != UnitKind::System;
                self.units
                    .iter()
                    .position(other)
                    .unwrap_or(self.units.len())
            },
            |first| first + 1,
        )
    }

    /// The cut that a session remembers, where it lies between two units.
    pub fn recall(&self, mark: Option<Mark>) -> Option<Fold> {
        let mark = mark?;
        let mut said = 0;
        let boundary = self.units.iter().position(|unit| {
            if unit.kind == UnitKind::System {
                return false;
            }
            let here = said == mark.boundary as usize;
            said += unit.messages.len();
            here
        })?;
        (boundary > self.pinned()).then_some(Fold {
            k: mark.k,
            boundary,
            removed: mark.removed,
        })
    }

    pub fn mark(&self, fold: Fold) -> Option<Mark> {
        let before = self.units.get(..fold.boundary)?;
        let said = before.iter().filter(|unit| unit.kind != UnitKind::System);
        let said: usize = said.map(|unit| unit.messages.len()).sum();
        (fold.boundary > self.pinned()).then_some(Mark {
            k: fold.k,
            boundary: said as u32,
            removed: fold.removed,
        })
    }

    /// Replays the requests that ended at unit `from` and later, beginning with a fold. `tighten`
    /// is asked to make a unit's results smaller by so many raw tokens, and gives what it took.
    pub fn run(
        &mut self,
        from: usize,
        fold: Option<Fold>,
        mut tighten: impl FnMut(usize, u32) -> u32,
    ) -> Fold {
        let pinned = self.pinned();
        let mut fold = fold.unwrap_or(Fold {
            boundary: pinned,
            ..Fold::default()
        });
        let mut live = self.beside;
        for at in 0..self.units.len() {
            if at < pinned || at >= fold.boundary || !self.goes(at) {
                live = live.saturating_add(self.tokens[at]);
            }
            let last = at + 1 == self.units.len();
            // A request ends with a result or a user message; the last one as it is.
            let asks = matches!(self.units[at].kind, UnitKind::Step | UnitKind::User);
            if at < from || !(asks || last) {
                continue;
            }
            if self.over(live, &fold) > 0 {
                live = live.saturating_sub(self.advance(at, live, pinned, &mut fold));
            }
            let excess = self.over(live, &fold);
            if excess > 0 && self.units[at].kind == UnitKind::Step {
                let taken = tighten(at, excess).min(self.tokens[at]);
                self.tokens[at] -= taken;
                live = live.saturating_sub(taken);
            }
        }
        fold
    }

    /// Raw tokens of the conversation with this fold.
    pub fn sent(&self, fold: Fold) -> u32 {
        let pinned = self.pinned();
        let kept = (0..self.units.len())
            .filter(|&at| at < pinned || at >= fold.boundary || !self.goes(at))
            .fold(self.beside, |sum, at| sum.saturating_add(self.tokens[at]));
        kept.saturating_add(self.note(&fold))
    }

    /// Raw tokens by which a request is over its budget.
    const fn over(&self, live: u32, fold: &Fold) -> u32 {
        live.saturating_add(self.note(fold))
            .saturating_sub(self.high)
    }

    const fn note(&self, fold: &Fold) -> u32 {
        if fold.removed > 0 { self.preface } else { 0 }
    }

    fn goes(&self, unit: usize) -> bool {
        !matches!(self.units[unit].kind, UnitKind::System | UnitKind::Other)
    }

    /// Moves the boundary on to the next step of the grid that makes the request at `at` fit.
    /// Returns the raw tokens that went.
    fn advance(&self, at: usize, live: u32, pinned: usize, fold: &mut Fold) -> u32 {
        let newest = self.newest(at, pinned);
        let before = *fold;
        let needed = live.saturating_add(self.preface).saturating_sub(self.high);
        let k = needed
            .saturating_add(fold.removed)
            .div_ceil(self.grid.step)
            .max(fold.k.saturating_add(1));
        let target = k.saturating_mul(self.grid.step);
        while fold.removed < target && fold.boundary < newest {
            fold.removed = fold.removed.saturating_add(self.weight(fold.boundary));
            fold.boundary += 1;
        }
        if fold.removed >= target {
            fold.k = k;
        } else {
            // Nothing more can go yet: the step counts as far as it was made.
            fold.k = fold.k.max(fold.removed / self.grid.step);
        }
        if fold.boundary > before.boundary {
            self.to_turn(newest, fold);
        }
        fold.removed - before.removed
    }

    /// Raw tokens that go with a unit.
    fn weight(&self, unit: usize) -> u32 {
        if self.goes(unit) {
            self.tokens[unit]
        } else {
            0
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
            if extra > self.grid.step / TURN_SLACK {
                return;
            }
        }
    }

    /// The first unit that must stay in the request that ended at `at`: the last one that is
    /// said and not an instruction, and with the beginning of an answer what it answers.
    fn newest(&self, at: usize, pinned: usize) -> usize {
        let said = |before: usize| (pinned..before).rev().find(|&unit| self.goes(unit));
        let mut first = said(at + 1).unwrap_or(at);
        // An answer may have been begun in several messages.
        while self.units[first].kind == UnitKind::Assistant
            && let Some(before) = said(first)
        {
            first = before;
        }
        first.max(pinned)
    }
}
