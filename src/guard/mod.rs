//! Keeps a conversation inside its window: `(conversation, policy, recall) -> plan`.
//!
//! [`plan`] works in this order:
//!
//! 1. It holds named texts to their caps and system text to its share, and truncates long tool results.
//! 2. It applies the cut of the course or of the session's memory. Then the replay goes on: a request over its budget
//!    leaves out annotated texts, masks old results and media, and leaves out units by what they are worth.
//! 3. Where the newest step alone is too large, it cuts the step's results harder, then the arguments of its calls.
//! 4. It puts injected messages back at their places.
//! 5. It lowers the answer cap to what is left.
//!
//! A request by which the client compacts its conversation is cut by `compaction_request` instead: results only.
//!
//! Every plan is linted. A plan that fails is dropped: the original goes out, and a guard fault is counted.
//!
//! The guard does no I/O and reads no clock. Of a conversation that came in invalid, it keeps what makes it so.

mod answer_cap;
mod arguments;
mod assemble;
pub mod budget;
mod clear;
mod compaction_note;
mod compaction_request;
mod course;
mod cut_state;
mod cuts;
pub mod dropped_rounds;
mod echo;
pub mod estimate;
pub(crate) mod fence;
mod fold_search;
pub mod found;
mod gap;
mod ground;
mod injected_turns;
pub mod injections;
pub mod ledger;
pub mod lint;
mod managed_history;
mod measured_request;
mod message_order;
mod placed_injections;
mod preface;
mod priority;
mod prompt_placement;
pub mod recall_id;
mod replay;
mod report;
mod result_limits;
mod results;
mod role_alternation;
pub mod running_turn;
mod sent_history;
mod tool_schemas;
pub mod truncate;
mod view;
mod vocabulary;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use self::{
    answer_cap::{AnswerCap, AnswerHistory, session_budget},
    clear::{Cleared, mask_old_media},
    compaction_note::{is_compaction_note, write_compaction_note},
    course::{find_course_boundary, list_removed_messages, preface_fit_check, weigh_before},
    preface::NOTE,
    priority::{CapUse, PriorityReport, ShortenedText, Shortening, SystemUse},
    prompt_placement::may_prompt,
    report::{FoldReport, Report, StandBackReason},
    result_limits::{max_recall_chars, max_result_chars},
    results::{ToolNames, TruncationReport},
    sent_history::{Epoch, SentHistory},
};
use self::{
    cut_state::CutMark,
    estimate::{Calibration, TokenScale, Weights},
    injections::Injections,
    measured_request::MeasuredRequest,
    profile::Profile,
    result_limits::KeyedLimit,
    view::RequestView,
};
pub(crate) use self::{
    prompt_placement::can_follow,
    role_alternation::{alternates_without_steps, resolve_profile_for_request},
};
pub use crate::config::profile;
use crate::{
    config::{GuardConfig, WhenUnsure, tokens::TokenRule},
    conversation::{
        Conversation,
        edit::Edits,
        units::{self, Unit},
    },
};

/// The limits and settings that a request is planned for.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    pub profile: &'a Profile,
    /// Tokens that the model can hold.
    pub window: u32,
    /// No source names this very model's window.
    pub window_is_guessed: bool,
    /// The largest prompt in tokens, where the provider sets a limit below the window.
    pub input_limit: Option<u32>,
    /// How the model counts tokens.
    pub tokens: &'static TokenRule,
    pub settings: &'a GuardConfig,
}

impl<'a> Policy<'a> {
    pub fn token_weights(&self) -> Weights {
        Weights::new(self.tokens, self.settings.chars_per_token)
    }

    /// Whether a request is sent that may be too long by the error of an estimate: where the provider surely refuses
    /// one that is, for free.
    fn sends_when_unsure(&self) -> bool {
        let profile = self.profile;
        let wish = self.settings.when_unsure.map(|it| it == WhenUnsure::Send);
        profile.refuses_overflow && wish.unwrap_or(profile.overflow_is_free)
    }

    /// Whether a request is cut before it passes the window. A provider that refuses what is too long says how much
    /// fits, so a guessed window cuts nothing there.
    pub const fn cuts_by_window(&self) -> bool {
        !self.window_is_guessed || !self.profile.refuses_overflow
    }

    /// Whether nothing limits the prompt but the provider's refusal.
    pub fn is_open(&self) -> bool {
        let limit = self.input_limit.or(self.settings.max_prompt_tokens);
        !self.cuts_by_window() && limit.is_none()
    }

    /// Tokens of a share of the window; without end where the window cuts nothing.
    fn window_share(&self, share: f64) -> f64 {
        match self.cuts_by_window() {
            true => share * f64::from(self.window),
            false => f64::INFINITY,
        }
    }

    const fn with_profile(self, profile: &'a Profile) -> Self {
        Self { profile, ..self }
    }
}

/// What the guard remembers of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardMemory {
    /// What the cuts so far stand on.
    ground: ground::Ground,
    /// What is left out and masked; `None` before the first cut.
    cut: Option<CutMark>,
    /// Messages of the last request that was planned, without system messages. Requests since then went out while the
    /// guard was off.
    planned: u32,
    /// Tighter limits by message digest: of results and calls that did not fit while they were the newest, or
    /// that came while the session was not healthy. They apply for the rest of the session. A limit of 0
    /// characters marks an annotated text that was left out, by the text's key; it applies while `ground` binds.
    tight: Vec<KeyedLimit>,
    /// Digest of what was last logged about caps and shares; 0 for nothing.
    texts: u64,
    /// What caps and shares took a raw token for.
    pub scale: TokenScale,
    /// Whether what stands for a cut names ids; `None` where nothing is cut.
    pub names_ids: Option<bool>,
    /// Whether user and assistant alternated before the first cut or injection; `None` until there is one.
    pub alternates: Option<bool>,
}

impl GuardMemory {
    /// The message after the last one that is left out, counted without system messages; `None` without a fold. Before
    /// it, some are kept.
    pub fn boundary(&self) -> Option<u32> {
        self.cut.as_ref().and_then(CutMark::end_of_folds)
    }

    /// Of each unit of the conversation that this is the memory of, whether it is left out.
    pub(crate) fn find_folded(&self, units: &[Unit]) -> Vec<bool> {
        let cut = self.cut.as_ref().and_then(|cut| cut.find_units(units));
        cut.map_or_else(|| vec![false; units.len()], |cut| cut.folded)
    }

    /// The messages that are left out, counted without system messages.
    pub fn list_left_out(&self) -> Vec<Range<u32>> {
        let spans = self.cut.as_ref().map_or(&[][..], CutMark::folded_spans);
        spans.iter().map(|&(from, until)| from..until).collect()
    }

    /// Whether the cuts of two memories stand on different windows or settings.
    pub fn grid_moved(&self, other: &Self) -> bool {
        self.ground != other.ground
    }

    /// Results and calls with a remembered limit.
    pub fn count_tightened(&self) -> usize {
        let limits = self.tight.iter().filter(|(_, limit)| limit.chars() > 0);
        limits.count()
    }

    /// Has the cuts bind for this policy, which were made for a smaller window so that the request got small.
    pub fn stand_on(&mut self, policy: &Policy<'_>) {
        self.ground = ground::Ground::from_policy(policy);
    }

    /// Drops the older half of the remembered limits, for a state that is too large to be stored.
    /// Returns whether there were any.
    pub fn drop_older_half(&mut self) -> bool {
        let half = self.tight.len().div_ceil(2);
        self.tight.drain(..half);
        half > 0
    }
}

/// What earlier requests of the session taught about a conversation.
#[derive(Clone, Debug, Default)]
pub struct Recall {
    pub memory: GuardMemory,
    /// How the last request went out, or the last round of this one.
    pub history: SentHistory,
    /// How an earlier round of this request went out, whose cuts stay.
    pub sent: Option<GuardMemory>,
    pub calibration: Calibration,
    /// The provider refused this very request and counted it: the count is the calibration's anchor.
    pub counted: bool,
    /// The provider refused this very request as too long.
    pub was_refused: bool,
    /// Nothing but what must stay is sent, and that as it is: nobody knows how much fits.
    pub keeps_least: bool,
    /// Messages of the last request, whose cuts are in `memory`, without system messages; 0 where there was none.
    pub messages: usize,
    /// What the proxy added to the conversation.
    pub injections: Injections,
    /// Lengths of the answers so far, from which the next one is expected.
    pub answers: AnswerHistory,
    /// The provider's cache holds nothing of this conversation any more.
    pub is_cold: bool,
    /// All reasoning made before this answer is left out, whatever the session knows: the provider refused it.
    pub leaves_out_reasoning: bool,
    /// Places of answers whose reasoning another provider has sealed: it is left out. Places as in [`sent_history::Epoch`].
    pub foreign: Vec<Range<u32>>,
}

impl Recall {
    /// What caps and shares take a raw token for: as before, so that the front of the prompt stays, unless there is no
    /// prompt before this one that a cache could hold.
    fn token_scale(&self) -> TokenScale {
        match self.messages == 0 || self.is_cold {
            true => self.calibration.to_scale(),
            false => self.calibration.hold_scale(self.kept_memory().scale),
        }
    }

    /// Whether what stands for a cut names ids: as before, so that the front of the prompt stays where a client brings its
    /// tools late, unless there is no prompt before this one that a cache could hold.
    fn names_ids(&self) -> bool {
        let offered = self.injections.names_ids;
        match self.messages == 0 || self.is_cold {
            true => offered,
            false => self.kept_memory().names_ids.unwrap_or(offered),
        }
    }

    /// The memory whose cuts the request keeps.
    fn kept_memory(&self) -> &GuardMemory {
        self.sent.as_ref().unwrap_or(&self.memory)
    }
}

/// What the guard does to a request.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub edits: Edits,
    pub report: Report,
    pub memory: GuardMemory,
    pub history: SentHistory,
    /// The place of the answer.
    pub answer: Epoch,
}

/// Plans the edits of a request. The edits are empty where the guard stands back, but for results that are truncated
/// although the provider manages the history; the report says why.
pub fn plan(conversation: &Conversation, policy: &Policy<'_>, recall: &Recall) -> Plan {
    if !conversation.asks_to_compact() {
        let (kept, offered) = (recall.names_ids(), recall.injections.names_ids);
        let plan = plan_request(conversation, policy, recall, kept, false);
        let is_new_fold = plan.report.folded.as_ref().is_some_and(|it| it.new);
        // A new fold changes the front all the same.
        return match kept != offered && is_new_fold {
            true => plan_request(conversation, policy, recall, offered, false),
            false => plan,
        };
    }
    let policy = Policy {
        settings: &compaction_request::keep_results(policy),
        ..*policy
    };
    let recall = compaction_request::forget_cuts(recall);
    plan_request(conversation, &policy, &recall, recall.names_ids(), true)
}

/// `compacts`: the client compacts the conversation with this request.
fn plan_request(
    conversation: &Conversation,
    policy: &Policy<'_>,
    recall: &Recall,
    names_ids: bool,
    compacts: bool,
) -> Plan {
    let measured = MeasuredRequest::new(conversation, policy, recall);
    let mut units = match split_guarded_units(conversation, policy) {
        Ok(units) => units,
        Err(reason) => {
            let is_managed = matches!(reason, StandBackReason::ProviderManages(_));
            if !is_managed || !conversation.truncates_managed_history() {
                return measured.stand_back(reason, recall);
            }
            let view = RequestView {
                conversation,
                // The provider may hold the calls of these results.
                units: &units::split_units(conversation),
                policy: *policy,
                names_ids: false,
                scale: recall.token_scale(),
            };
            return managed_history::plan_managed_history(view, &measured, reason, recall);
        }
    };
    if compacts {
        compaction_request::keep_all_units(&mut units);
    }
    let known = role_alternation::find_settled_alternation(conversation, recall);
    let profile = role_alternation::resolve_profile(conversation.format, policy.profile, known);
    let view = RequestView {
        conversation,
        units: &units,
        policy: policy.with_profile(&profile),
        names_ids,
        scale: recall.token_scale(),
    };
    let epoch = recall.history.epoch;
    let injected = placed_injections::PlacedInjections::find_places(view, recall, epoch);
    let cuts = cuts::Cuts::from_first_line(view, measured.tokens.clone(), Some(&injected));
    let mut cuts = cuts.apply_limits(view, recall);
    let weight = injected.weigh_injections(recall.messages);
    if compacts {
        compaction_request::fit_results(view, &measured, &mut cuts, &weight, recall);
    }
    let mut fit = fold_search::find_fold(view, &measured, cuts, weight, recall, known);
    let alternates = fit.replay.alternates;
    let profile =
        role_alternation::resolve_profile(conversation.format, policy.profile, alternates);
    let view = RequestView {
        policy: policy.with_profile(&profile),
        ..view
    };
    let folding = preface::apply_fold(view, recall, &mut fit);
    let mut draft = assemble::assemble_draft(view, &measured, &fit, folding, &injected, recall);
    draft.plan.memory.alternates = alternates;
    draft.into_linted_plan(view, &measured, recall)
}

/// The units of the conversation, or why the guard stands back.
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
    Ok(units::split_units(conversation))
}

#[cfg(test)]
mod tests;
