//! Leaves out the reasoning of earlier answers that the provider would refuse or cannot use. For the client's answers,
//! [`PlacedInjections::find_reason`] is the one place that says why; the places of unusable reasoning, and the reason before
//! the epoch, are those of the session. A tool round that the proxy puts back loses its reasoning before the epoch too
//! (`RequestView::leaves_out`), which is not reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::{PlacedInjections, PlacedRecords};
use crate::{
    conversation::edit::Edits,
    guard::request::answer_place::{AnswerPlace, count_places},
};

/// Reasoning that is of no use to the target, by what the session knows.
#[derive(Clone, Copy)]
pub(in crate::guard) struct UnusableReasoning<'a> {
    /// Places of answers that keep none, whatever the epoch is, and why.
    pub(in crate::guard) places: &'a [(Range<u32>, LeftOut)],
    /// Why reasoning made before the epoch is left out, if the target binds reasoning.
    pub(in crate::guard) before_epoch: LeftOut,
}

/// Why the reasoning of an answer is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// The proxy has changed something before the answer since the model made it, and the model binds its reasoning to that; or
    /// an earlier request left it out.
    Stale,
    /// Another provider, or a model of another family, made it: the target cannot read it.
    Foreign,
    /// The client sends it joined with the reasoning of tool rounds, which the proxy puts back before the answer.
    Joined,
    /// What the proxy puts back into the answer is at another place than the model wrote it.
    Moved,
    /// The provider refused the reasoning of this conversation.
    Refused,
}

/// Answers without their reasoning, by the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOutReasoning(BTreeMap<LeftOut, usize>);

impl LeftOut {
    /// The word for the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Foreign => "foreign",
            Self::Joined => "joined",
            Self::Moved => "moved",
            Self::Refused => "refused",
        }
    }
}

impl LeftOutReasoning {
    pub(in crate::guard) fn add(&mut self, reason: LeftOut) {
        *self.0.entry(reason).or_default() += 1;
    }

    pub fn count(&self) -> usize {
        self.0.values().sum()
    }

    /// `stale=3, foreign=1`; empty if nothing is left out.
    pub fn describe(&self) -> String {
        let reasons = self.0.iter();
        let reasons = reasons.map(|(reason, count)| format!("{}={count}", reason.name()));
        reasons.collect::<Vec<_>>().join(", ")
    }
}

impl PlacedInjections<'_> {
    /// Why the reasoning of the answer made at `made` is left out; `None` if the answer keeps it. `records`: what the proxy puts
    /// back at the answer; `stands`: the tool rounds among these are sent. Reasoning made before `epoch` is stale.
    pub(super) fn find_reason(
        &self,
        made: AnswerPlace,
        records: Option<&PlacedRecords<'_>>,
        stands: bool,
        epoch: AnswerPlace,
    ) -> Option<LeftOut> {
        let mut unusable = self.unusable.places.iter();
        if let Some((_, reason)) = unusable.find(|(places, _)| places.contains(&made.place)) {
            return Some(*reason);
        }
        if !self.view.refuses_stale_reasoning() {
            return None;
        }
        if made < epoch {
            return Some(self.unusable.before_epoch);
        }
        let records = records?;
        let reasoning = self.view.conversation.format.rules().reasoning;
        if records.follows_rounds && reasoning.is_outside_blocks() {
            return Some(LeftOut::Joined);
        }
        if !records.has_echo() {
            return None;
        }
        let echo = self.edit_echoed_answer(records, stands, false);
        (echo.left_out > 0 || echo.moved).then_some(LeftOut::Moved)
    }

    /// Leaves reasoning out of the answers that are `kept` and not `removed`, except for those into which records are put back.
    pub(super) fn leave_out_reasoning(
        &self,
        kept: &[bool],
        removed: &BTreeSet<usize>,
        epoch: AnswerPlace,
        edits: &mut Edits,
        left_out: &mut LeftOutReasoning,
    ) {
        if !self.view.refuses_stale_reasoning() && self.unusable.places.is_empty() {
            return;
        }
        let conversation = self.view.conversation;
        let places = count_places(conversation);
        let with_records = self.places.iter().filter_map(|it| Some((it.answer?, it)));
        let with_records: BTreeMap<usize, &PlacedRecords<'_>> = with_records.collect();
        for (at, message) in conversation.items.iter().enumerate() {
            let records = with_records.get(&at).copied();
            let has_echo = records.is_some_and(PlacedRecords::has_echo);
            if !kept[at] || removed.contains(&at) || has_echo {
                continue;
            }
            let made = AnswerPlace {
                place: places[at],
                round: records.map_or(0, |records| records.rounds),
            };
            if let Some(reason) = self.find_reason(made, records, false, epoch)
                && conversation.leave_out_reasoning(message, edits)
            {
                left_out.add(reason);
            }
        }
    }
}
