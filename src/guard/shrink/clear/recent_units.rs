//! The newest rounds and steps, whose results stay where the settings say so.

use std::collections::VecDeque;

use crate::{
    config::ClearConfig,
    conversation::units::{Unit, UnitKind},
};

/// Answered turns with tools, and steps, whose results stay before the budget is reached, where the settings do not
/// say how many.
const ROUNDS: u32 = 2;
const STEPS: u32 = 10;

/// The first units that are too new to be cleared.
#[derive(Clone, Copy)]
pub(in crate::guard) struct RecentUnits {
    rounds: usize,
    media: usize,
}

impl RecentUnits {
    /// Whether a unit is old enough to be cleared.
    pub(in crate::guard) const fn is_old(self, at: usize, kind: UnitKind) -> bool {
        match kind {
            UnitKind::User => at < self.media,
            _ => at < self.rounds,
        }
    }
}

/// For the request that ended at each unit, the first unit that is both in one of the newest rounds or
/// after them, and not before the newest steps. For media, in one of the newest turns.
///
/// A turn begins where a user speaks after an answer: what stands right after a result or after
/// another user message is a remark within it. A turn is a round once it has a step that counts and the
/// model answered after it: a turn at work and a question without an answer are none, so they take no
/// round's place. The newest step stays in any case.
pub(in crate::guard) fn find_recent_units(
    units: &[Unit],
    settings: &ClearConfig,
    counts: impl Fn(&Unit) -> bool,
) -> Vec<RecentUnits> {
    let keep_rounds = settings.keep_rounds.unwrap_or(ROUNDS);
    let mut rounds = NewestPlaces::new(keep_rounds);
    let mut turns = NewestPlaces::new(keep_rounds);
    let mut steps = NewestPlaces::new(settings.keep_steps.unwrap_or(STEPS));
    let mut turn = Turn::begin(0);
    let (mut before, mut newest) = (None, usize::MAX);
    use UnitKind::{Assistant, Results, Step, User};
    let recent = units.iter().enumerate().map(|(at, unit)| {
        match unit.kind {
            User if !matches!(before, Some(User | Step | Results)) => {
                turn = Turn::begin(at);
                turns.push(at);
            }
            Step | Results if counts(unit) => {
                steps.push(at);
                newest = at;
                turn.worked = true;
            }
            Assistant => turn.answer(&mut rounds),
            _ => {}
        }
        if unit.kind != UnitKind::System {
            before = Some(unit.kind);
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
