//! The user's newest message: when it is left out, and when it comes back.

use std::cmp::Reverse;

use super::{Moment, Replay, due::ReturningQuestion};
use crate::{
    conversation::units::{Unit, UnitKind},
    guard::fold::cut_state::CutState,
};

impl Replay<'_> {
    /// Leaves the user's newest message out, if it takes much of the room and the newest step cannot get smaller. A short
    /// message stays, since a message that is left out comes back only with a later cut. If the request is then over its
    /// budget, the proxy gives up what it adds.
    pub(super) fn fold_newest_question(&mut self, at: usize, newest: usize, now: &mut Moment) {
        let asked = self.list_long_questions(at, newest, now);
        if asked.is_empty() {
            return;
        }
        self.read_words(at, now);
        now.ledger_is_due = true;
        asked.into_iter().for_each(|unit| self.fold_unit(unit, now));
        self.drop_settled(newest, now);
    }

    /// The user's newest messages that may be left out. Of many in a row, short ones stay while they fit: first the newest,
    /// and last the texts of the client's own among them. If other units keep the long ones from going, none goes.
    pub(super) fn list_long_questions(&self, at: usize, newest: usize, now: &Moment) -> Vec<usize> {
        let open = now.kept.list_open(newest).iter().copied();
        let asks =
            |unit: &usize| self.is_newest_question(*unit, now) && !now.kept.is_lasting(*unit);
        let mut asked: Vec<usize> = open.filter(asks).collect();
        asked.sort_by_key(|&unit| (self.view.units[unit].says_nothing, Reverse(unit)));
        let least = self.view.policy.window / self.view.policy.rules.least_question_part;
        let mut left = (self.budgets.room(at) / self.view.policy.rules.question_part).max(least);
        asked.retain(|&last| {
            // What the proxy adds behind the message is not weighed: it is given up before the message is left out.
            let unit = &self.view.units[last];
            let tokens = if now.state.cleared[last] {
                self.clearing.weigh(unit, &self.cuts.messages)
            } else {
                self.cuts.weigh_unit(unit)
            };
            let goes = tokens > left;
            left -= if goes { 0 } else { tokens };
            goes
        });
        asked.sort_unstable();
        if self.turn_rules.may_go(&asked, now) {
            asked
        } else {
            Vec::new()
        }
    }

    /// Takes the newest question back if it is too short for any cut to leave it out. The places of a remembered cut can
    /// cover it if the client has added or removed messages before those that are compared with its last request.
    pub(super) fn keep_short_question(&self, state: &mut CutState) {
        let units = self.view.units;
        let Some(asked) = units.iter().rposition(Unit::is_question) else {
            return;
        };
        let least = self.view.policy.window / self.view.policy.rules.least_question_part;
        if state.folded[asked] && self.cuts.weigh_unit(&units[asked]) <= least {
            let stands = |it: &usize| !state.folded[*it] && units[*it].kind != UnitKind::System;
            let before = (self.view.count_pinned()..asked).rev().find(stands);
            let after = (asked + 1..units.len()).find(stands);
            state.folded[asked] = !self.turn_rules.may_return(before, asked, after);
        }
    }

    pub(super) fn is_newest_question(&self, unit: usize, now: &Moment) -> bool {
        self.view.units[unit].kind == UnitKind::User && now.kept.is_of_newest_turn(unit)
    }

    /// Finds the user's newest message that was left out because of one large step, if the request has room for it next to
    /// its newest step and a cut of older units makes that room. That cut follows, so that what was sent before changes with
    /// a cut only.
    pub(super) fn find_returning_question(
        &self,
        at: usize,
        newest: usize,
        now: &Moment,
    ) -> Option<ReturningQuestion> {
        let question = self.find_question_with_room(at, newest, now)?;
        let sent = self
            .sent_now(now)
            .saturating_add(self.weights.of_whole_unit(question.unit));
        let goal = self.budgets.goal(at, self.find_low_water(at));
        let is_due = sent > self.budgets.budget_with_tolerance(at)
            && self.can_free((at, newest), sent, goal, now);
        is_due.then_some(question)
    }

    /// Takes a question back into what is sent.
    pub(super) fn return_question(
        &mut self,
        at: usize,
        question: ReturningQuestion,
        now: &mut Moment,
    ) {
        let ReturningQuestion {
            unit,
            before,
            after,
        } = question;
        now.live = now.live.saturating_add(self.weights.of_whole_unit(unit));
        self.read_words(at, now);
        // No state remembers whether it was cleared.
        (now.state.folded[unit], now.state.cleared[unit]) = (false, false);
        self.count_words(unit, false, 1, &mut now.visible);
        now.kept.return_user(unit, before, after);
        self.note.set_folded(&now.state.folded);
    }

    /// The last message of the user that was left out of the newest turn, with the units before and after it, if it may be
    /// between these and fits next to the newest step. A message with annotated texts never comes back: the session does not
    /// remember which of them were left out of a message that is gone, so a replica without the state could find another
    /// cut.
    fn find_question_with_room(
        &self,
        at: usize,
        newest: usize,
        now: &Moment,
    ) -> Option<ReturningQuestion> {
        let all = self.view.units;
        let unit = now.kept.find_gone_question()?;
        let conversation = self.view.conversation;
        let mut messages = all[unit].messages.clone();
        let is_annotated = messages.any(|at| !conversation.annotations_of(at).is_empty());
        if unit < self.note.begins || unit >= newest || is_annotated {
            return None;
        }
        let step = (newest..=at).map(|unit| self.weights.of_unit(unit, &now.state));
        let step = step.chain([self.weights.of_whole_unit(unit)]);
        let note = self.note.weigh(self.note.most_of_ledger(&now.state));
        if step.fold(note, u32::saturating_add) > self.budgets.room(at) {
            return None;
        }
        let stands = |&it: &usize| !now.state.folded[it] && all[it].kind != UnitKind::System;
        let before = (self.view.count_pinned()..unit).rev().find(stands);
        let after = (unit + 1..=at).find(stands)?;
        let may_return = self.turn_rules.may_return(before, unit, Some(after));
        may_return.then_some(ReturningQuestion {
            unit,
            before,
            after,
        })
    }
}
