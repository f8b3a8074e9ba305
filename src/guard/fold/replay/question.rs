//! The user's newest message: when it is left out.

use std::cmp::Reverse;

use super::{Moment, Replay};
use crate::{
    conversation::units::{Unit, UnitKind},
    guard::fold::cut_state::CutState,
};

impl Replay<'_> {
    /// Leaves the user's newest message out, if it takes much of the room and the newest step cannot get smaller. A short
    /// message stays. If the request is then over its
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
    /// and last the texts of the client's own among them.
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
        asked
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
}
