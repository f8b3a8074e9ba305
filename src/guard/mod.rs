//! Keeps a conversation inside its window: `(conversation, policy, recall) -> plan`.
//!
//! Order: caps and shares of named texts → truncate tool results → cuts (the course's or the
//! remembered one first, then by replay: old tool rounds are cleared, then annotated texts left out, then
//! old images, then old turns folded) → where the newest step alone is too large, its results cut harder,
//! then the arguments of its calls → what is ours is put back at its places → the answer cap is lowered to
//! what is left. Every plan is linted; one that does
//! not pass is thrown away and the original goes out, counted as a fault of ours.
//!
//! No I/O and no clock here. Nothing is ever done to a conversation that came in invalid.

mod alternate;
mod arguments;
mod assemble;
pub mod budget;
mod cap;
mod clear;
mod course;
mod cuts;
mod echo;
pub mod estimate;
pub(crate) mod fence;
mod fit;
mod fold;
pub mod found;
mod gap;
mod ground;
mod injected;
mod injected_turns;
pub mod ledger;
mod limits;
pub mod lint;
mod measured;
mod place;
mod preface;
mod priority;
pub mod record;
mod replay;
mod report;
mod results;
mod schemas;
pub mod truncate;
mod view;

use serde::{Deserialize, Serialize};

pub(crate) use self::{
    alternate::{alternates_without_steps, held_for_request},
    place::follows,
};
use self::{
    assemble::assemble,
    clear::sweep::SweptMark,
    cuts::Cuts,
    estimate::{Calibration, Weights},
    fold::Mark,
    ground::Ground,
    injected::Injected,
    limits::Held,
    measured::Measured,
    profile::Profile,
    record::Ours,
    view::View,
};
pub use self::{
    cap::{AnswerCap, Answers, session_budget},
    clear::Cleared,
    course::{removed_by, room, tail, weigh_before},
    limits::most_chars,
    place::may_prompt,
    preface::NOTE,
    priority::{CapUse, How, Shortened, SystemUse, Texts},
    report::{Folded, Report, StoodBack},
    results::{Truncated, tool},
};
pub use crate::config::profile;
use crate::{
    config::GuardConfig,
    conversation::{
        Conversation,
        edit::Edits,
        units::{self, Unit},
    },
};

/// What a request is measured against.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    pub profile: &'a Profile,
    /// Tokens the model can hold.
    pub window: u32,
    /// The largest prompt, where lower than the window.
    pub input_limit: Option<u32>,
    pub settings: &'a GuardConfig,
}

impl<'a> Policy<'a> {
    fn weights(&self) -> Weights {
        Weights::new(self.settings.chars_per_token)
    }

    const fn with(self, profile: &'a Profile) -> Self {
        Self { profile, ..self }
    }
}

/// What the guard remembers of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What the grid of the requests so far stood on.
    ground: Ground,
    fold: Option<Mark>,
    /// How far what is kept is cleared. Never falls on the same ground.
    swept: SweptMark,
    /// Tighter limits of results and calls that were the newest and did not fit, or that came while the
    /// session was not healthy, by their messages' digests. Applied ever after. A limit of nothing is that
    /// of an annotated text that was left out, by a key of its own; applied on the same ground.
    tight: Vec<(u128, Held)>,
    /// What the log was told of caps and shares; 0 for nothing.
    texts: u64,
    /// Whether user and assistant alternated before the first place at which something was cut or put
    /// in; `None` until then. A session's state stores it beside these fields.
    #[serde(skip)]
    pub alternates: Option<bool>,
}

impl Memory {
    /// The first message kept after the pinned start, counted without system messages, where
    /// something is folded.
    pub fn boundary(&self) -> Option<u32> {
        self.fold.map(Mark::boundary)
    }

    /// Whether the cuts of two memories lie on different grids.
    pub fn grid_moved(&self, other: &Self) -> bool {
        self.ground != other.ground
    }

    /// Results and calls that are held to a limit of their own.
    pub fn tightened(&self) -> usize {
        let held = self.tight.iter().filter(|(_, held)| held.chars() > 0);
        held.count()
    }

    /// Drops the older half of what can be dropped, for a state that is too large to be stored.
    /// Returns whether there was anything.
    pub fn shed(&mut self) -> bool {
        let half = self.tight.len().div_ceil(2);
        self.tight.drain(..half);
        half > 0
    }
}

/// What is known of a conversation from before.
#[derive(Clone, Debug, Default)]
pub struct Recall {
    pub memory: Memory,
    pub calibration: Calibration,
    /// The calibration's anchor is this very request, as the provider counted it when it refused it.
    pub counted: bool,
    /// Messages of the last request, whose cuts are in `memory`, system messages apart; 0 where
    /// there is none.
    pub messages: usize,
    /// What of ours stands in it.
    pub ours: Ours,
    /// What the answers so far say of how long the next one may be.
    pub answers: Answers,
}

/// What is to be done to a request.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub edits: Edits,
    pub report: Report,
    pub memory: Memory,
}

/// Plans what is done to a request.
pub fn plan(conversation: &Conversation, policy: &Policy<'_>, recall: &Recall) -> Plan {
    let measured = Measured::new(conversation, policy, recall);
    let units = match stands_back(conversation, policy) {
        Ok(units) => units,
        Err(reason) => return measured.stand_back(reason, recall),
    };
    let known = alternate::known(conversation, recall);
    let profile = alternate::held(policy.profile, known);
    let view = View {
        conversation,
        units: &units,
        policy: policy.with(&profile),
    };
    let injected = Injected::place(view, &recall.ours);
    let cuts = Cuts::first_line(view, measured.tokens.clone(), Some(&injected));
    let cuts = cuts.apply_limits(view, recall);
    let weight = injected.weigh(recall.messages);
    let mut fit = fit::fit(view, &measured, cuts, weight, recall);
    // The first cut settles whether the conversation alternates, if nothing has settled it before.
    let alternates = known.or_else(|| fit.alternates_before_cut());
    let profile = alternate::held(policy.profile, alternates);
    let view = View {
        policy: policy.with(&profile),
        ..view
    };
    let folding = preface::fold(view, recall, &mut fit);
    let mut draft = assemble(view, &measured, &fit, folding, &injected, recall);
    draft.plan.memory.alternates = alternates;
    draft.check(view, &measured, recall)
}

/// The units, or why nothing is to be done.
fn stands_back(conversation: &Conversation, policy: &Policy<'_>) -> Result<Vec<Unit>, StoodBack> {
    if !policy.settings.enabled {
        return Err(StoodBack::Disabled);
    }
    if let Some(name) = conversation.managed_by_provider() {
        return Err(StoodBack::ProviderManages(name));
    }
    units::split(conversation).map_err(StoodBack::Invalid)
}

#[cfg(test)]
mod tests;
