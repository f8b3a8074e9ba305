//! Leaves stale reasoning out of the client's answers: reasoning that is no longer behind the messages for which it was
//! made, or that another provider made.

use std::collections::{BTreeMap, BTreeSet};

use super::{PlacedInjections, PlacedRecords};
use crate::{
    conversation::edit::Edits,
    guard::request::answer_place::{AnswerPlace, count_places},
};

impl PlacedInjections<'_> {
    /// Whether the reasoning of an answer is left out: it is stale, or another provider made it.
    pub(super) fn is_stale(&self, made: AnswerPlace, epoch: AnswerPlace) -> bool {
        let is_foreign = || {
            self.foreign
                .iter()
                .any(|places| places.contains(&made.place))
        };
        self.view.leaves_out(made, epoch) || is_foreign()
    }

    /// Whether the client sends the reasoning of an answer joined with that of the rounds before it. Such reasoning is stale
    /// from the beginning.
    pub(super) fn is_joined(&self, records: &PlacedRecords<'_>) -> bool {
        records.follows_rounds
            && self
                .view
                .conversation
                .format
                .rules()
                .reasoning
                .is_beside_blocks()
            && self.view.refuses_stale_reasoning()
    }

    /// Leaves stale reasoning out of the answers that are `kept` and not `removed`. Answers that are edited for records are
    /// skipped: these edits leave it out. Returns the number of answers.
    pub(super) fn leave_out_reasoning(
        &self,
        kept: &[bool],
        removed: &BTreeSet<usize>,
        epoch: AnswerPlace,
        edits: &mut Edits,
    ) -> usize {
        if !self.view.refuses_stale_reasoning() && self.foreign.is_empty() {
            return 0;
        }
        let conversation = self.view.conversation;
        let places = count_places(conversation);
        let with_records = self.places.iter().filter_map(|it| Some((it.answer?, it)));
        let with_records: BTreeMap<usize, &PlacedRecords<'_>> = with_records.collect();
        let stale = conversation.items.iter().enumerate().filter(|&(at, _)| {
            let records = with_records.get(&at);
            let made = AnswerPlace {
                place: places[at],
                round: records.map_or(0, |records| records.rounds),
            };
            let is_joined = || records.is_some_and(|records| self.is_joined(records));
            kept[at]
                && (self.is_stale(made, epoch) || is_joined())
                && !removed.contains(&at)
                && !records.is_some_and(|records| records.has_echo())
        });
        stale
            .filter(|(_, message)| conversation.leave_out_reasoning(message, edits))
            .count()
    }
}
