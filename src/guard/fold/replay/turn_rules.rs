//! The rules of turns: which units may follow each other after a cut, and with what the running turn must begin.

use super::Moment;
use crate::{
    config::profile::Profile,
    conversation::units::{Unit, UnitKind},
    guard::{
        fold::cut_state::CutState,
        grammar::{prompt_placement, role_alternation, running_turn},
        request::view::RequestView,
    },
};

/// The rules of turns that a conversation keeps.
pub(super) struct TurnRules<'a> {
    view: RequestView<'a>,
    /// The provider's profile, with the rule of alternation if the conversation keeps it.
    profile: Profile,
    /// Whether user and assistant alternate; `None` until the first cut settles it.
    pub(super) alternates: Option<bool>,
    /// Of each unit, whether it begins with thinking; empty if the running turn need not.
    thinking: Vec<bool>,
}

impl<'a> TurnRules<'a> {
    pub(super) fn new(view: RequestView<'a>, alternates: Option<bool>) -> Self {
        Self {
            view,
            profile: *view.policy.profile,
            alternates,
            thinking: running_turn::find_thinking_units(view),
        }
    }

    /// The first cut, for the request that ended at unit `at`, settles whether the conversation alternates, if nothing
    /// has settled it before.
    pub(super) fn settle_alternation(&mut self, at: usize) {
        if self.alternates.is_none() {
            let (conversation, units) = (self.view.conversation, self.view.units);
            let end = units[at].messages_through();
            let known = Some(role_alternation::has_alternating_roles(conversation, end));
            self.alternates = known;
            self.profile =
                role_alternation::resolve_profile(conversation.format, &self.profile, known);
        }
    }

    /// Whether units may be left out: no other unit keeps them from it (see [`Self::find_blockers`]).
    pub(super) fn may_go(&self, units: &[usize], now: &Moment) -> bool {
        self.find_blockers(units, now).is_empty()
    }

    /// The units that keep `units` from being left out: the units before and after these if they may not follow each other,
    /// or an answer without thinking that would begin the running turn.
    pub(super) fn find_blockers(&self, units: &[usize], now: &Moment) -> Vec<usize> {
        if let Some((before, after)) = self.find_clashing_neighbours(units, now) {
            return vec![before, after];
        }
        let mut thinking = units
            .iter()
            .filter(|&&unit| self.thinking.get(unit) == Some(&true));
        // The answer without thinking that would begin the running turn.
        let bare = thinking.find_map(|&unit| {
            let next = now.kept.find_next_of_turn(unit, units, self.view.units)?;
            (!self.thinking[next]).then_some(next)
        });
        Vec::from_iter(bare.or_else(|| self.find_bare_answer_before(units, now)))
    }

    /// The answer without thinking that would begin the running turn, if its questions are among `units`: without them, the
    /// turn before goes on.
    fn find_bare_answer_before(&self, units: &[usize], now: &Moment) -> Option<usize> {
        let is_user = |unit: usize| self.view.units[unit].is_user();
        let asks = |&unit: &usize| is_user(unit) && now.kept.is_of_newest_turn(unit);
        if self.thinking.is_empty() || !units.iter().any(asks) {
            return None;
        }
        let joined = now.kept.list_neighbours(units).into_iter();
        let joined = joined.filter(|&(before, after)| !is_user(before) && !is_user(after));
        let first = |(before, _)| now.kept.find_first_answer(before, self.view.units);
        joined.map(first).find(|&first| !self.thinking[first])
    }

    /// The units directly before and after `units`, if they may not follow each other.
    fn find_clashing_neighbours(&self, units: &[usize], now: &Moment) -> Option<(usize, usize)> {
        let view = self.view;
        if !view.conversation.format.rules().pairs_roles {
            return None;
        }
        let mut neighbours = now.kept.list_neighbours(units).into_iter();
        neighbours.find(|&(before, after)| !self.can_follow(before, after))
    }

    /// Whether unit `after` may follow unit `before`.
    fn can_follow(&self, before: usize, after: usize) -> bool {
        let view = self.view;
        let last = view.item(view.units[before].unbound_messages().end - 1);
        let next = view.item(view.units[after].messages.start);
        prompt_placement::can_follow(last.author, next.author, &self.profile)
    }

    /// Whether the units that a cut leaves may follow each other. Behind the pinned start, the preface takes care of that.
    pub(super) fn accept_cut(&self, state: &CutState) -> bool {
        if !self.view.conversation.format.rules().pairs_roles {
            return true;
        }
        let (mut before, mut is_gap) = (None, false);
        let units = self.view.units.iter().enumerate();
        for (at, unit) in units.skip(self.view.count_pinned()) {
            if unit.kind == UnitKind::System {
                continue;
            }
            if state.folded[at] {
                is_gap = true;
                continue;
            }
            if std::mem::take(&mut is_gap)
                && before.is_some_and(|before| !self.can_follow(before, at))
            {
                return false;
            }
            before = Some(at);
        }
        true
    }

    /// Whether a unit that was left out may come back between these.
    pub(super) fn may_return(
        &self,
        before: Option<usize>,
        unit: usize,
        after: Option<usize>,
    ) -> bool {
        let is_free = !self.view.conversation.format.rules().pairs_roles;
        let follows = |(one, next)| self.can_follow(one, next);
        let pairs = [before.map(|it| (it, unit)), after.map(|it| (unit, it))];
        is_free || pairs.into_iter().flatten().all(follows)
    }

    /// Where a course begins that leaves out all units before `begun`: earlier if the running turn would begin with an
    /// answer without thinking.
    pub(super) fn begin_with_thinking(&self, begun: usize) -> usize {
        let units = self.view.units;
        let answers = |unit: &Unit| matches!(unit.kind, UnitKind::Assistant | UnitKind::Step);
        if self.thinking.is_empty() || units[begun..].iter().any(Unit::is_user) {
            return begun;
        }
        let first = units[begun..].iter().position(answers);
        if first.is_none_or(|first| self.thinking[begun + first]) {
            return begun;
        }
        let turn = units[..begun].iter().rposition(Unit::is_user);
        let turn = turn.map_or(0, |question| question + 1);
        let mut earlier = (turn.max(self.view.count_pinned())..begun).rev();
        earlier.find(|&unit| self.thinking[unit]).unwrap_or(begun)
    }
}
