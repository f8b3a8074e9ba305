//! The newest rounds and steps, whose results stay if the settings say so. A round here is an answered turn with results
//! that count, not a tool round of the proxy.

use crate::{
    config::ClearConfig,
    conversation::units::{Unit, UnitKind},
};

/// How many rounds and steps keep their results from early clearing, if the settings do not set it.
const ROUNDS: u32 = 2;
const STEPS: u32 = 10;

/// The first units that are too new to be cleared.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// Finds, for the request that ended at each unit, the first unit that stays: this and all behind it are too new to be
/// cleared. It is the later of the first unit of the newest rounds and that of the newest steps. For media, turns count
/// instead of rounds.
///
/// A turn begins with a user message after an answer. A user message right after a result or after another user message is
/// a remark within the turn. A turn is a round if it has a step that counts and the model answered after that step. A turn
/// without an answer is no round, and takes no round's place. The newest step stays in any case.
pub(in crate::guard) fn find_recent_units(
    units: &[Unit],
    settings: &ClearConfig,
    counts: impl Fn(&Unit) -> bool,
) -> Vec<RecentUnits> {
    let keep_rounds = settings.keep_rounds.unwrap_or(ROUNDS) as usize;
    let keep_steps = settings.keep_steps.unwrap_or(STEPS) as usize;
    // The places of all rounds, turns and steps so far.
    let (mut rounds, mut turns, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    // Of the newest `most` places the first; the start if there are fewer.
    let first_of = |places: &[usize], most: usize| {
        let first = places.len().checked_sub(most);
        first.and_then(|at| places.get(at)).copied().unwrap_or(0)
    };
    // The first unit of a turn without an answer, and whether that turn has a step that counts.
    let (mut asked, mut worked) = (Some(0), false);
    let (mut before, mut newest) = (None, usize::MAX);
    use UnitKind::{Assistant, Results, Step, User};
    let recent = units.iter().enumerate().map(|(at, unit)| {
        match unit.kind {
            User if !matches!(before, Some(User | Step | Results)) => {
                (asked, worked) = (Some(at), false);
                turns.push(at);
            }
            Step | Results if counts(unit) => {
                steps.push(at);
                newest = at;
                worked = true;
            }
            Assistant if worked => rounds.extend(asked.take()),
            _ => {}
        }
        if unit.kind != UnitKind::System {
            before = Some(unit.kind);
        }
        let within = |kept: &[usize]| {
            let first = first_of(kept, keep_rounds).max(first_of(&steps, keep_steps));
            first.min(newest).min(at)
        };
        RecentUnits {
            rounds: within(&rounds),
            media: within(&turns),
        }
    });
    recent.collect()
}
