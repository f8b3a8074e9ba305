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
mod echo;
pub mod estimate;
pub(crate) mod fence;
mod fit;
pub mod fold;
pub mod found;
mod gap;
mod ground;
pub mod ledger;
mod limits;
pub mod lint;
mod place;
mod preface;
mod priority;
mod putback;
pub mod record;
mod report;
mod results;
mod rounds;
mod schemas;
pub mod truncate;
pub mod units;

use serde::{Deserialize, Serialize};

pub(crate) use self::{
    alternate::{alternates_without_steps, held_for_request},
    place::follows,
};
use self::{
    assemble::{Mine, assemble, checked},
    cap::Room,
    clear::sweep::SweptMark,
    estimate::{Calibration, Weights},
    fit::fresh,
    fold::Mark,
    ground::Ground,
    limits::Held,
    priority::Priorities,
    profile::Profile,
    putback::Putback,
    record::Ours,
    results::Results,
    schemas::Schemas,
    units::Unit,
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
    wire::{chat::Conversation, edit::Edits},
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

impl Policy<'_> {
    fn weights(&self) -> Weights {
        Weights::new(self.settings.chars_per_token)
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
    let results = Results::new(conversation, policy);
    let before = results.tokens.clone();
    let shares = budget::shares(conversation, policy, &before);
    let room = Room::new(conversation, policy, recall, |at| before[at]);
    let mut report = Report {
        raw_before: shares.total(),
        raw_after: shares.total(),
        expected: recall.calibration.tokens(shares.total()),
        budget: room.now(),
        shares,
        ..Report::default()
    };
    let units = match stands_back(conversation, policy) {
        Ok(units) => units,
        Err(reason) => {
            report.stood_back = Some(reason);
            return Plan {
                report,
                memory: recall.memory.clone(),
                ..Plan::default()
            };
        }
    };
    let known = alternate::known(conversation, recall);
    let profile = alternate::held(policy.profile, known);
    let held = Policy {
        profile: &profile,
        ..*policy
    };
    let ours = Mine {
        records: Putback::new(conversation, &units, &held, &recall.ours),
        schemas: recall
            .ours
            .tools
            .as_ref()
            .and_then(|tools| Schemas::of(conversation, tools)),
    };
    let mut results = results
        .with_blocks(ours.records.blocks())
        .with_echoes(ours.records.echoes());
    let mut texts = Priorities::decide(conversation, policy, &mut results.tokens);
    results.first_line();
    let first = results.tokens.clone();
    results.remembered(&recall.memory.tight);
    if let Some(chars) = recall.ours.tight_chars {
        results.nearly_full(fresh(&units, recall.messages), chars);
    }
    let weight = fit::Ours {
        records: ours.records.weigh(&units, recall.messages),
        turns: ours.records.turns(&units),
        tools: ours
            .schemas
            .as_ref()
            .map_or(0, |it| it.tokens(&policy.weights())),
    };
    let shares_and_ours = (shares, &weight);
    let mut fit = fit::fit(
        (conversation, &units),
        shares_and_ours,
        fit::Cuts {
            results: &mut results,
            texts: &mut texts,
            first: &first,
        },
        policy,
        recall,
        &room,
    );
    let note = preface::note(conversation, &units, policy, recall, &mut fit);
    let alternates = known.or_else(|| {
        let first = fit.replay.said_before(fit.fold.first?);
        Some(alternate::alternates(conversation, first as usize))
    });
    let profile = alternate::held(policy.profile, alternates);
    let policy = &Policy {
        profile: &profile,
        ..*policy
    };
    let folding = preface::fold(
        conversation,
        &units,
        units::pinned(&units),
        fit.fold.boundary,
        policy.profile,
        (&note, fit.replay.prefaced),
    );
    let found = (&texts, &results, &ours);
    let (mut plan, outline) = assemble(
        &units,
        &fit,
        folding,
        found,
        recall,
        (conversation, policy),
        report,
    );
    plan.memory.alternates = alternates;
    plan.report.answer_cap = room.cap_beside(plan.report.raw_after, fit.added);
    if let Some(cap) = plan.report.answer_cap.filter(|cap| cap.is_lowered()) {
        conversation.lower_answer_caps(cap.sent, &mut plan.edits);
    }
    checked(conversation, policy, (plan, outline), &shares)
}

/// The units, or why nothing is to be done.
fn stands_back(conversation: &Conversation, policy: &Policy<'_>) -> Result<Vec<Unit>, StoodBack> {
    if !policy.settings.enabled {
        return Err(StoodBack::Disabled);
    }
    if let Some(name) = manages_itself(conversation) {
        return Err(StoodBack::ProviderManages(name));
    }
    units::split(conversation).map_err(StoodBack::Invalid)
}

/// The member by which a request asks the provider to manage its context.
fn manages_itself(conversation: &Conversation) -> Option<&'static str> {
    if conversation.asks_for("context_management") {
        return Some("context_management");
    }
    let says = |name: &str, word: &[u8]| {
        conversation.field(name).is_some_and(|field| {
            memchr::memmem::find(conversation.bytes(field.value), word).is_some()
        })
    };
    if says("truncation", b"\"auto\"") {
        return Some("truncation");
    }
    if says("transforms", b"\"middle-out\"") {
        return Some("transforms");
    }
    says("plugins", b"\"context-compression\"").then_some("plugins")
}

#[cfg(test)]
mod tests;
