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

mod answer_cap;
mod arguments;
mod assemble;
pub mod budget;
mod clear;
mod course;
mod cuts;
mod echo;
pub mod estimate;
pub(crate) mod fence;
mod fold;
mod fold_search;
pub mod found;
mod gap;
mod ground;
mod injected_turns;
pub mod injections;
pub mod ledger;
pub mod lint;
mod measured_request;
mod placed_injections;
mod preface;
mod priority;
mod prompt_placement;
mod replay;
mod report;
mod result_limits;
mod results;
mod role_alternation;
mod tool_schemas;
pub mod truncate;
mod view;

use serde::{Deserialize, Serialize};

pub use self::{
    answer_cap::{AnswerCap, AnswerHistory, session_budget},
    clear::Cleared,
    course::{find_course_boundary, list_removed_messages, preface_fit_check, weigh_before},
    preface::NOTE,
    priority::{CapUse, PriorityReport, ShortenedText, Shortening, SystemUse},
    prompt_placement::may_prompt,
    report::{FoldReport, Report, StandBackReason},
    result_limits::max_result_chars,
    results::{TruncationReport, find_tool_name},
};
use self::{
    assemble::assemble_draft,
    clear::sweep::SweptMark,
    cuts::Cuts,
    estimate::{Calibration, Weights},
    fold::FoldMark,
    ground::Ground,
    injections::Injections,
    measured_request::MeasuredRequest,
    placed_injections::PlacedInjections,
    profile::Profile,
    result_limits::RememberedLimit,
    view::RequestView,
};
pub(crate) use self::{
    prompt_placement::can_follow,
    role_alternation::{alternates_without_steps, resolve_profile_for_request},
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
    fn token_weights(&self) -> Weights {
        Weights::new(self.settings.chars_per_token)
    }

    const fn with_profile(self, profile: &'a Profile) -> Self {
        Self { profile, ..self }
    }
}

/// What the guard remembers of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardMemory {
    /// What the grid of the requests so far stood on.
    ground: Ground,
    fold: Option<FoldMark>,
    /// How far what is kept is cleared. Never falls on the same ground.
    swept: SweptMark,
    /// Tighter limits of results and calls that were the newest and did not fit, or that came while the
    /// session was not healthy, by their messages' digests. Applied ever after. A limit of nothing is that
    /// of an annotated text that was left out, by a key of its own; applied on the same ground.
    tight: Vec<(u128, RememberedLimit)>,
    /// What the log was told of caps and shares; 0 for nothing.
    texts: u64,
    /// Whether user and assistant alternated before the first place at which something was cut or put
    /// in; `None` until then. A session's state stores it beside these fields.
    #[serde(skip)]
    pub alternates: Option<bool>,
}

impl GuardMemory {
    /// The first message kept after the pinned start, counted without system messages, where
    /// something is folded.
    pub fn boundary(&self) -> Option<u32> {
        self.fold.map(FoldMark::boundary)
    }

    /// Whether the cuts of two memories lie on different grids.
    pub fn grid_moved(&self, other: &Self) -> bool {
        self.ground != other.ground
    }

    /// Results and calls that are held to a limit of their own.
    pub fn count_tightened(&self) -> usize {
        let held = self.tight.iter().filter(|(_, held)| held.chars() > 0);
        held.count()
    }

    /// Drops the older half of what can be dropped, for a state that is too large to be stored.
    /// Returns whether there was anything.
    pub fn drop_older_half(&mut self) -> bool {
        let half = self.tight.len().div_ceil(2);
        self.tight.drain(..half);
        half > 0
    }
}

/// What is known of a conversation from before.
#[derive(Clone, Debug, Default)]
pub struct Recall {
    pub memory: GuardMemory,
    pub calibration: Calibration,
    /// The calibration's anchor is this very request, as the provider counted it when it refused it.
    pub counted: bool,
    /// Messages of the last request, whose cuts are in `memory`, system messages apart; 0 where
    /// there is none.
    pub messages: usize,
    /// What of ours stands in it.
    pub injections: Injections,
    /// What the answers so far say of how long the next one may be.
    pub answers: AnswerHistory,
}

/// What is to be done to a request.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub edits: Edits,
    pub report: Report,
    pub memory: GuardMemory,
}

/// Plans what is done to a request.
pub fn plan(conversation: &Conversation, policy: &Policy<'_>, recall: &Recall) -> Plan {
    let measured = MeasuredRequest::new(conversation, policy, recall);
    let units = match split_guarded_units(conversation, policy) {
        Ok(units) => units,
        Err(reason) => return measured.stand_back(reason, recall),
    };
    let known = role_alternation::find_settled_alternation(conversation, recall);
    let profile = role_alternation::resolve_profile(policy.profile, known);
    let view = RequestView {
        conversation,
        units: &units,
        policy: policy.with_profile(&profile),
    };
    let injected = PlacedInjections::find_places(view, &recall.injections);
    let cuts = Cuts::from_first_line(view, measured.tokens.clone(), Some(&injected));
    let cuts = cuts.apply_limits(view, recall);
    let weight = injected.weigh_injections(recall.messages);
    let mut fit = fold_search::find_fold(view, &measured, cuts, weight, recall);
    // The first cut settles whether the conversation alternates, if nothing has settled it before.
    let alternates = known.or_else(|| fit.alternates_before_cut());
    let profile = role_alternation::resolve_profile(policy.profile, alternates);
    let view = RequestView {
        policy: policy.with_profile(&profile),
        ..view
    };
    let folding = preface::apply_fold(view, recall, &mut fit);
    let mut draft = assemble_draft(view, &measured, &fit, folding, &injected, recall);
    draft.plan.memory.alternates = alternates;
    draft.into_linted_plan(view, &measured, recall)
}

/// The units, or why nothing is to be done.
fn split_guarded_units(
    conversation: &Conversation,
    policy: &Policy<'_>,
) -> Result<Vec<Unit>, StandBackReason> {
    if !policy.settings.enabled {
        return Err(StandBackReason::Disabled);
    }
    if let Some(name) = conversation.managed_by_provider() {
        return Err(StandBackReason::ProviderManages(name));
    }
    units::split_units(conversation).map_err(StandBackReason::Invalid)
}

#[cfg(test)]
mod tests;
