//! What goes first when the conversation grows on: the order of sacrifice, as it stands now.
//!
//! The next cut is asked of the guard itself: the same request, as if the provider had counted it
//! as one token more than its budget.

use std::cmp::Reverse;

use serde::Serialize;

use super::{ClearedSpan, scaled};
use crate::{
    conversation::{
        Conversation, Item,
        units::{Unit, UnitKind, find_pinned_end},
    },
    guard::{
        fold::memory::Recall,
        plan::make_plan::{self, Plan},
        request::{
            estimate::{self, Calibration},
            policy::Policy,
        },
        shrink::{result_limits, results::ToolNames},
    },
};

/// How many results and turns are named.
const NAMED: usize = 5;

#[derive(Debug, Serialize)]
pub struct NextRemovals {
    /// The largest tool results that are sent.
    pub results: Vec<LargeResult>,
    /// All that are sent.
    pub results_in_all: usize,
    /// What is cleared first; nothing where there is not enough of it.
    pub clear: Option<ClearedSpan>,
    /// What the next cut takes after that; nothing where only the pinned start and the newest step are left.
    pub cut: Option<MessageRange>,
    /// The first turns of that cut.
    pub turns: Vec<MessageRange>,
    pub turns_in_all: usize,
}

/// A stretch of messages, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MessageRange {
    pub first: usize,
    pub last: usize,
    /// Those between that stay are not counted.
    pub messages: usize,
    pub tokens: u32,
}

#[derive(Debug, Serialize)]
pub struct LargeResult {
    pub message: usize,
    pub tool: String,
    pub chars: usize,
    /// The longest that is left alone.
    pub limit_chars: usize,
    pub tokens: u32,
}

impl NextRemovals {
    pub(super) fn from_request(sent: &GuardedRequest<'_>, plan: &Plan) -> Self {
        let (results, results_in_all) = sent.results();
        let (clear, going) = sent.next_to_go(plan);
        let mut turns = sent.turns(&going);
        let turns_in_all = turns.len();
        let cut = sent.message_range(&going);
        turns.truncate(NAMED);
        Self {
            results,
            results_in_all,
            clear,
            cut,
            turns,
            turns_in_all,
        }
    }
}

/// A request and what is sent of it.
pub(super) struct GuardedRequest<'a> {
    conversation: &'a Conversation,
    fitted: &'a Conversation,
    units: &'a [Unit],
    policy: &'a Policy<'a>,
    /// Of each unit, whether it is left out.
    folded: &'a [bool],
    calibration: Calibration,
    /// Of each message that is sent and is not bound, what it is in the fitted request.
    sent: Vec<Option<&'a Item>>,
}

impl<'a> GuardedRequest<'a> {
    pub(super) fn new(
        conversation: &'a Conversation,
        fitted: &'a Conversation,
        units: &'a [Unit],
        policy: &'a Policy<'a>,
        folded: &'a [bool],
        calibration: Calibration,
    ) -> Self {
        let kept = units.iter().zip(folded).filter(|it| !*it.1);
        let kept: Vec<usize> = kept.flat_map(|it| it.0.unbound_messages()).collect();
        // Bound messages may stand elsewhere, so the others are counted.
        let items = fitted.items.iter().filter(|item| !item.is_bound);
        let items: Vec<&Item> = items.collect();
        // A preface may stand behind the pinned start.
        let preface = items.len().saturating_sub(kept.len());
        let start = units[..find_pinned_end(units)].last();
        let pinned = start.map_or(0, |unit| unit.messages.end);
        let mut sent = vec![None; conversation.items.len()];
        for (nth, at) in kept.into_iter().enumerate() {
            let nth = nth + if at < pinned { 0 } else { preface };
            sent[at] = items.get(nth).copied();
        }
        Self {
            conversation,
            fitted,
            units,
            policy,
            folded,
            calibration,
            sent,
        }
    }

    fn tokens(&self, at: usize) -> u32 {
        let Some(message) = self.sent[at] else {
            return 0;
        };
        let weights = self.policy.token_weights();
        let profile = self.policy.profile;
        let raw =
            estimate::estimate_message(self.fitted, message, &message.sizes, &weights, profile);
        scaled(raw, self.calibration)
    }

    /// Units that are sent, the pinned start included.
    fn units(&self) -> impl Iterator<Item = &'a Unit> {
        let units = self.units.iter().zip(self.folded);
        units.filter(|it| !*it.1).map(|it| it.0)
    }

    /// The largest tool results that are sent, at most [`NAMED`], and how many are sent in all.
    fn results(&self) -> (Vec<LargeResult>, usize) {
        let answers = self
            .units()
            .flat_map(|unit| unit.messages.clone())
            .filter(|&at| self.conversation.items[at].author.is_tool());
        let mut results: Vec<(usize, u32)> = answers.map(|at| (at, self.tokens(at))).collect();
        let count = results.len();
        results.sort_by_key(|&(at, tokens)| (Reverse(tokens), at));
        results.truncate(NAMED);
        let mut names = ToolNames::default();
        let name = |(at, tokens): (usize, u32)| LargeResult {
            message: at,
            tool: names.name_tool(self.conversation, self.units, at),
            chars: self.sent[at].map_or(0, |message| message.sizes.total_chars()),
            limit_chars: result_limits::max_result_chars(
                &self.conversation.items[at].sizes,
                self.policy,
            ),
            tokens,
        };
        (results.into_iter().map(name).collect(), count)
    }

    /// What is cleared next, and the units that the next cut takes: it may be made with the same
    /// request, or only with a later one.
    fn next_to_go(&self, plan: &Plan) -> (Option<ClearedSpan>, Vec<&'a Unit>) {
        let later = self.plan_over_budget(plan);
        let clear = later.report.cleared.as_ref();
        let clear = clear.filter(|cleared| cleared.new).and_then(|cleared| {
            let known = plan.report.cleared.as_ref();
            let beyond = known.map_or_else(|| cleared.clone(), |known| cleared.beyond(known));
            ClearedSpan::from_cleared(&beyond, self.calibration)
        });
        let going = self.list_removed(&later);
        if going.is_empty() && clear.is_some() {
            return (clear, self.list_removed(&self.plan_over_budget(&later)));
        }
        (clear, going)
    }

    /// The plan of the same request as if it had been counted as one token more than its budget; where that is open,
    /// as if the provider had refused it for that.
    fn plan_over_budget(&self, plan: &Plan) -> Plan {
        let (raw, budget) = (plan.report.raw_after, plan.report.budget);
        let refused = budget.is_open.then_some(raw);
        let policy = Policy {
            input_limit: self.policy.input_limit.or(refused),
            ..*self.policy
        };
        let budget = refused.unwrap_or(budget.tokens);
        let full =
            Calibration::default().learn_usage(raw, budget.max(raw) + 1, self.policy.profile);
        let recall = Recall {
            memory: plan.memory.clone(),
            calibration: full,
            messages: self.units.last().map_or(0, Unit::messages_through),
            ..Recall::default()
        };
        make_plan::plan(self.conversation, &policy, &recall)
    }

    /// The units that are sent now, and are not by that plan.
    fn list_removed(&self, later: &Plan) -> Vec<&'a Unit> {
        let folded = later.memory.find_folded(self.units);
        let units = self.units.iter().zip(self.folded).zip(folded);
        units
            .filter(|((_, before), now)| !**before && *now)
            .map(|((unit, _), _)| unit)
            .collect()
    }

    /// Units by the turn they belong to.
    fn turns(&self, units: &[&Unit]) -> Vec<MessageRange> {
        units
            .chunk_by(|_, next| next.kind != UnitKind::User)
            .filter_map(|turn| self.message_range(turn))
            .collect()
    }

    fn message_range(&self, units: &[&Unit]) -> Option<MessageRange> {
        let (first, last) = (units.first()?, units.last()?);
        let messages = || units.iter().flat_map(|unit| unit.unbound_messages());
        Some(MessageRange {
            first: first.messages.start,
            last: last.unbound_messages().end - 1,
            messages: messages().count(),
            tokens: messages().map(|at| self.tokens(at)).sum(),
        })
    }
}
