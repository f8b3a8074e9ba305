//! Keeps a conversation inside its window: `(conversation, policy, recall) -> plan`.
//!
//! Order: truncate tool results → cuts (the remembered one first, then by replay) → where the
//! newest step alone is too large, its results cut harder. Every plan is linted; one that does
//! not pass is thrown away and the original goes out, counted as a fault of ours.
//!
//! No I/O and no clock here. Nothing is ever done to a conversation that came in invalid.

pub mod budget;
pub mod estimate;
pub mod fold;
pub mod lint;
mod preface;
pub mod profile;
pub mod record;
mod report;
mod results;
pub mod truncate;
pub mod units;

use serde::{Deserialize, Serialize};

use self::{
    budget::{Budget, Shares},
    estimate::{Calibration, Weights},
    fold::{Fold, Ground, Mark, Replay},
    lint::Item,
    preface::Folding,
    profile::Profile,
    record::Ours,
    results::Results,
    units::{Unit, UnitKind},
};
pub use self::{
    preface::NOTE,
    report::{Folded, Report, StoodBack},
    results::{Truncated, most_chars, tool},
};
use crate::{
    config::GuardConfig,
    wire::{chat::Conversation, edit::Edits, text},
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
    /// Tighter limits of results that were the newest and did not fit: message digest and
    /// characters. Applied ever after.
    tight: Vec<(u128, u32)>,
}

impl Memory {
    /// The first message kept after the pinned start, counted without system messages, where
    /// something is folded.
    pub fn boundary(&self) -> Option<u32> {
        self.fold.map(Mark::boundary)
    }

    /// Results that are held to a limit of their own.
    pub const fn tightened(&self) -> usize {
        self.tight.len()
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
    /// Messages of the last request, whose cuts are in `memory`, system messages apart; 0 where
    /// there is none.
    pub messages: usize,
    /// What of ours stands in it.
    pub ours: Ours,
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
    let mut results = Results::new(conversation, policy);
    let before = results.tokens.clone();
    let shares = budget::shares(conversation, policy, &before);
    let mut report = Report {
        raw_before: shares.total(),
        raw_after: shares.total(),
        expected: recall.calibration.tokens(shares.total()),
        budget: budget::budget(conversation, policy),
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
    results.first_line();
    results.remembered(&recall.memory.tight);
    let fit = fit(&units, shares, &mut results, policy, recall, &report.budget);
    let folding = preface::fold(
        conversation,
        &units,
        units::pinned(&units),
        fit.fold.boundary,
        policy.profile,
    );
    let plan = assemble(&units, &fit, folding, &results, recall, report);
    checked(conversation, policy, plan, &shares)
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

/// A conversation that was replayed, and where it is folded.
struct Fit<'a> {
    replay: Replay<'a>,
    fold: Fold,
    ground: Ground,
}

/// Replays the conversation and finds the fold.
fn fit<'a>(
    units: &'a [Unit],
    shares: Shares,
    results: &mut Results<'_>,
    policy: &Policy<'_>,
    recall: &Recall,
    budget: &Budget,
) -> Fit<'a> {
    let of = |unit: &Unit| {
        unit.messages
            .clone()
            .map(|at| results.tokens[at])
            .fold(0, u32::saturating_add)
    };
    let tokens: Vec<u32> = units.iter().map(of).collect();
    let fresh = fresh(units, recall.messages);
    let added = results.tokens[fresh..]
        .iter()
        .fold(0, |sum: u32, &tokens| sum.saturating_add(tokens));
    let first_user = units.iter().position(|unit| unit.kind == UnitKind::User);
    let before = units
        .iter()
        .zip(&tokens)
        .filter(|(unit, _)| unit.kind == UnitKind::System)
        .fold(shares.tools, |sum, (_, &tokens)| sum.saturating_add(tokens));
    let fixed = before.saturating_add(first_user.map_or(0, |unit| tokens[unit]));
    let ground = Ground::of(policy, fixed).or(recall.memory.ground);
    let mut replay = Replay {
        units,
        tokens,
        beside: shares.tools,
        high: recall.calibration.raw(budget.tokens, added),
        preface: policy
            .weights()
            .text(&text::measure(NOTE.as_bytes()))
            .ceil() as u32
            + 8,
        step: ground.step(),
    };
    // Requests whose cuts are remembered are not replayed, unless they were cut on another grid.
    let same_grid = recall.memory.ground == ground;
    let remembered = replay.recall(recall.memory.fold.filter(|_| same_grid));
    let lost = recall.memory.fold.is_some() && remembered.is_none();
    let from = if !same_grid || lost {
        0
    } else {
        units
            .iter()
            .position(|unit| unit.messages.end > fresh)
            .unwrap_or(units.len().saturating_sub(1))
    };
    let fold = replay.run(from, remembered, |unit, excess| {
        results.tighten(units[unit].messages.clone(), excess)
    });
    Fit {
        replay,
        fold,
        ground,
    }
}

/// The first message that was not part of the last request.
fn fresh(units: &[Unit], known: usize) -> usize {
    let mut said = 0;
    for unit in units.iter().filter(|unit| unit.kind != UnitKind::System) {
        if said + unit.messages.len() > known {
            return unit.messages.start + (known - said);
        }
        said += unit.messages.len();
    }
    units.last().map_or(0, |unit| unit.messages.end)
}

fn assemble(
    units: &[Unit],
    fit: &Fit<'_>,
    folding: Folding,
    results: &Results<'_>,
    recall: &Recall,
    mut report: Report,
) -> (Plan, Vec<Item>) {
    let mut edits = folding.edits;
    let mut kept = vec![false; results.tokens.len()];
    for item in &folding.outline {
        if let Item::Theirs(at) = *item {
            kept[at] = true;
        }
    }
    let fresh = fresh(units, recall.messages);
    report.truncated = results.made(units, &kept, fresh, &mut edits);
    let mark = fit.replay.mark(fit.fold);
    report.raw_after = fit.replay.sent(fit.fold);
    report.expected = recall.calibration.tokens(report.raw_after);
    report.folded = (folding.messages > 0).then(|| Folded {
        messages: folding.messages,
        tokens: (0..kept.len())
            .filter(|&at| !kept[at])
            .map(|at| results.tokens[at])
            .fold(0, u32::saturating_add),
        new: mark.map(Mark::boundary) != recall.memory.boundary(),
    });
    let memory = Memory {
        ground: fit.ground,
        fold: mark,
        tight: results.limits(&kept),
    };
    let plan = Plan {
        edits,
        report,
        memory,
    };
    (plan, folding.outline)
}

/// Lints a plan; one that would break what was whole is thrown away.
///
/// A rule of the profile's grammar that the conversation broke when it came in does not count:
/// the provider evidently takes it, or refuses it with us and without us.
fn checked(
    conversation: &Conversation,
    policy: &Policy<'_>,
    (plan, outline): (Plan, Vec<Item>),
    shares: &Shares,
) -> Plan {
    if plan.report.folded.is_none() {
        // Truncation changes no message's place.
        return plan;
    }
    let before: Vec<_> = (0..conversation.messages.len()).map(Item::Theirs).collect();
    let broken = lint::broken(conversation, &outline, policy.profile).beyond(lint::broken(
        conversation,
        &before,
        policy.profile,
    ));
    if broken.is_empty() {
        return plan;
    }
    Plan {
        edits: Edits::default(),
        report: Report {
            stood_back: Some(StoodBack::Unsound(broken)),
            truncated: Vec::new(),
            folded: None,
            raw_after: shares.total(),
            ..plan.report
        },
        // What was planned did not happen: the next request is replayed from its start.
        memory: Memory::default(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::chat::index;

    #[test]
    fn an_unsound_plan_is_thrown_away() {
        let body = r#"{"messages":[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":"a","content":"r"}]}"#;
        let conversation = index(Bytes::from_static(body.as_bytes())).unwrap();
        let settings = GuardConfig::default();
        let policy = Policy {
            profile: profile::named("openai").unwrap(),
            window: 8_192,
            input_limit: None,
            settings: &settings,
        };
        // As a fault of ours would leave it: the call went, its result stayed.
        let mut edits = Edits::default();
        edits.remove(conversation.messages[1].span);
        let plan = Plan {
            edits,
            report: Report {
                folded: Some(Folded {
                    messages: 1,
                    tokens: 10,
                    new: true,
                }),
                ..Report::default()
            },
            memory: Memory::default(),
        };
        let outline = vec![Item::Theirs(0), Item::Theirs(2)];
        let shares = Shares::default();
        let plan = checked(&conversation, &policy, (plan, outline), &shares);
        assert!(plan.edits.is_empty() && plan.report.folded.is_none());
        assert!(matches!(
            plan.report.stood_back,
            Some(StoodBack::Unsound(broken)) if broken.has(lint::Rule::Pairing)
        ));
        assert_eq!(plan.report.actions(), "guard-fault");
    }
}
