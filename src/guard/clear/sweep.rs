//! How far a conversation is cleared: the places of the grid, and the newest rounds, which stay.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Clearing;
use crate::{
    config::ClearConfig,
    conversation::units::{self, Unit, UnitKind},
    guard::view::RequestView,
};

/// What the replay has to know to clear units.
pub(in crate::guard) struct Sweep {
    pub(in crate::guard) clearing: Clearing,
    /// Raw tokens past which old rounds are cleared, of the request that ended at each unit.
    pub(in crate::guard) marks: Vec<u32>,
    /// Raw tokens of each unit, cleared.
    pub(in crate::guard) small: Vec<u32>,
    /// For the request that ended at each unit, what is too new to be cleared.
    pub(in crate::guard) recent: Vec<RecentUnits>,
    pub(in crate::guard) rounds: Grid,
    pub(in crate::guard) media: Grid,
}

impl Sweep {
    /// `step`: raw tokens between two places at which a boundary may lie. `small`: raw tokens of a unit,
    /// cleared. `turns`: the units after which an injected turn begins.
    pub(in crate::guard) fn new(
        view: RequestView<'_>,
        first: &[u32],
        step: u32,
        turns: &[usize],
        marks: Vec<u32>,
    ) -> Self {
        let clearing = Clearing::new(view, first);
        let grid = |kind| {
            let saves = |unit: &Unit| match unit.kind == kind {
                true => clearing.saves(unit),
                false => 0,
            };
            Grid::new(view.units.iter().map(saves), step)
        };
        let (rounds, media) = (grid(UnitKind::Step), grid(UnitKind::User));
        let settings = &view.policy.settings.clear;
        let counts = |unit: &Unit| super::counts(view, unit, first);
        Self {
            marks,
            small: Vec::new(),
            recent: find_recent_units(view.units, settings, counts, turns),
            rounds,
            media,
            clearing,
        }
    }
}

/// The places at which a boundary may lie.
pub(in crate::guard) struct Grid {
    /// Raw tokens that all units before each save, in sum; one more than there are units.
    saved: Vec<u32>,
    step: u32,
}

impl Grid {
    fn new(saves: impl Iterator<Item = u32>, step: u32) -> Self {
        let sums = saves.scan(0u32, |sum, saves| {
            *sum = sum.saturating_add(saves);
            Some(*sum)
        });
        Self {
            saved: std::iter::once(0).chain(sums).collect(),
            step: step.max(1),
        }
    }

    /// The last place that is not beyond unit `until`; 0 where there is none.
    pub(in crate::guard) fn last_boundary(&self, until: usize) -> usize {
        let sum = self.saved.get(until).or(self.saved.last()).copied();
        match sum.unwrap_or(0) / self.step {
            0 => 0,
            steps => {
                let target = steps.saturating_mul(self.step);
                self.saved.partition_point(|&saved| saved < target)
            }
        }
    }
}

/// How far a conversation is cleared: the first unit that is not, for rounds and for media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::guard) struct Swept {
    pub(in crate::guard) rounds: usize,
    pub(in crate::guard) media: usize,
}

/// The same as a session remembers it: messages before these units, system ones apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::guard) struct SweptMark {
    pub(in crate::guard) rounds: u32,
    pub(in crate::guard) media: u32,
}

impl SweptMark {
    /// Whether more is cleared than `before`, of what is kept after the first `folded` messages.
    pub(in crate::guard) fn clears_more_than(self, before: Self, folded: u32) -> bool {
        self.rounds > before.rounds.max(folded) || self.media > before.media.max(folded)
    }

    /// How many of these messages it does not reach.
    pub(in crate::guard) fn uncovered(self, units: &[Unit], messages: &[usize]) -> usize {
        let reached = |unit: &Unit| match unit.kind {
            UnitKind::System => true,
            UnitKind::Step => unit.messages_through() <= self.rounds as usize,
            _ => unit.messages_through() <= self.media as usize,
        };
        let within = |unit: &Unit| {
            let place = |end| messages.partition_point(|&at| at < end);
            place(unit.messages.end) - place(unit.messages.start)
        };
        units.iter().filter(|it| !reached(it)).map(within).sum()
    }

    /// The first units that are not cleared; `None` where one of them cannot be found.
    pub(in crate::guard) fn find_units(self, units: &[Unit]) -> Option<Swept> {
        let place = |said| match said {
            0 => Some(0),
            said => units::find_unit_after(units, said),
        };
        Some(Swept {
            rounds: place(self.rounds)?,
            media: place(self.media)?,
        })
    }
}

impl Swept {
    pub(in crate::guard) fn covers(&self, at: usize, kind: UnitKind) -> bool {
        match kind {
            UnitKind::Step => at < self.rounds,
            UnitKind::User => at < self.media,
            UnitKind::System | UnitKind::Assistant | UnitKind::Other => false,
        }
    }

    /// What a session remembers of it where units before `folded` are gone: these need no memory.
    pub(in crate::guard) fn to_mark(self, units: &[Unit], folded: usize) -> SweptMark {
        let mark = |unit: usize| match unit > folded {
            true => units::count_messages_before(units, unit),
            false => 0,
        };
        SweptMark {
            rounds: mark(self.rounds),
            media: mark(self.media),
        }
    }
}

/// The first units that are too new to be cleared.
pub(in crate::guard) struct RecentUnits {
    pub(in crate::guard) rounds: usize,
    pub(in crate::guard) media: usize,
}

/// For the request that ended at each unit, the first unit that is both in one of the newest rounds or
/// after them, and not before the newest steps. For media, in one of the newest turns.
///
/// A turn begins where a user speaks after an answer: what stands right after a result or after
/// another user message is a remark within it, as prompts of ours are. `ours`: the units after
/// which an answer and a turn of ours stand all the same. A turn is a round once it has a step that
/// counts and the model answered after it: a turn at work and a question without an answer are none,
/// so they take no round's place. The newest step stays in any case.
fn find_recent_units(
    units: &[Unit],
    settings: &ClearConfig,
    counts: impl Fn(&Unit) -> bool,
    ours: &[usize],
) -> Vec<RecentUnits> {
    let mut rounds = NewestPlaces::new(settings.keep_rounds);
    let mut turns = NewestPlaces::new(settings.keep_rounds);
    let mut steps = NewestPlaces::new(settings.keep_steps);
    let mut turn = Turn::begin(0);
    let (mut before, mut newest, mut ours) = (None, usize::MAX, ours.iter().peekable());
    let recent = units.iter().enumerate().map(|(at, unit)| {
        match unit.kind {
            UnitKind::User if !matches!(before, Some(UnitKind::User | UnitKind::Step)) => {
                turn = Turn::begin(at);
                turns.push(at);
            }
            UnitKind::Step if counts(unit) => {
                steps.push(at);
                newest = at;
                turn.worked = true;
            }
            UnitKind::Assistant => turn.answer(&mut rounds),
            _ => {}
        }
        if unit.kind != UnitKind::System {
            before = Some(unit.kind);
        }
        while ours.next_if_eq(&&at).is_some() {
            turn.answer(&mut rounds);
            turn = Turn::begin(at + 1);
            turns.push(at + 1);
        }
        let within = |kept: &NewestPlaces| kept.first().max(steps.first()).min(newest).min(at);
        RecentUnits {
            rounds: within(&rounds),
            media: within(&turns),
        }
    });
    recent.collect()
}

/// The turn that is being read.
struct Turn {
    /// Its first unit; `None` once it was answered.
    start: Option<usize>,
    /// It has a step that counts.
    worked: bool,
}

impl Turn {
    const fn begin(at: usize) -> Self {
        Self {
            start: Some(at),
            worked: false,
        }
    }

    /// The model answers: what was worked becomes a round, once.
    fn answer(&mut self, rounds: &mut NewestPlaces) {
        if self.worked
            && let Some(start) = self.start.take()
        {
            rounds.push(start);
        }
    }
}

/// The places of the newest of something.
struct NewestPlaces {
    places: VecDeque<usize>,
    most: usize,
}

impl NewestPlaces {
    fn new(most: u32) -> Self {
        Self {
            places: VecDeque::new(),
            most: most as usize,
        }
    }

    fn push(&mut self, at: usize) {
        self.places.push_back(at);
        if self.places.len() > self.most {
            self.places.pop_front();
        }
    }

    /// The place of the oldest of them; the start where there are fewer.
    fn first(&self) -> usize {
        match self.places.front() {
            Some(&first) if self.places.len() == self.most => first,
            _ => 0,
        }
    }
}
