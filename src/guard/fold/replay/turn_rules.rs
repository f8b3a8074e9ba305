//! What a cut must leave standing side by side: the rules of turns.

use super::Moment;
use crate::{
    config::profile::Profile,
    conversation::units::{Unit, UnitKind},
    guard::{
        grammar::{prompt_placement, role_alternation, running_turn},
        request::view::RequestView,
    },
};

/// The rules of turns that a conversation keeps.
pub(in crate::guard) struct TurnRules {
    /// With the rule of alternation if the conversation keeps that.
    profile: Profile,
    /// Whether user and assistant alternate; `None` until the first cut settles it.
    pub(in crate::guard) alternates: Option<bool>,
    /// Of each unit, whether it begins with thinking; empty if the running turn need not.
    thinking: Vec<bool>,
}

impl TurnRules {
    pub(in crate::guard) fn new(view: RequestView<'_>, alternates: Option<bool>) -> Self {
        Self {
            profile: *view.policy.profile,
            alternates,
            thinking: running_turn::find_thinking_units(view),
        }
    }

    /// The first cut, for the request that ended at unit `at`, settles whether the conversation alternates, if nothing
    /// has settled it before.
    pub(super) fn settle_alternation(&mut self, view: RequestView<'_>, at: usize) {
        if self.alternates.is_none() {
            let (conversation, end) = (view.conversation, view.units[at].messages_through());
            let known = Some(role_alternation::has_alternating_roles(conversation, end));
            self.alternates = known;
            self.profile =
                role_alternation::resolve_profile(conversation.format, &self.profile, known);
        }
    }

    /// Whether what stands around units may do so without them.
    pub(super) fn may_go(&self, view: RequestView<'_>, units: &[usize], now: &Moment) -> bool {
        self.find_clashing_neighbours(view, units, now).is_none()
            && self.find_bare_successor(view, units, now).is_none()
    }

    /// What stands before units and after them, if these may not stand side by side.
    pub(super) fn find_clashing_neighbours(
        &self,
        view: RequestView<'_>,
        units: &[usize],
        now: &Moment,
    ) -> Option<(usize, usize)> {
        if !view.conversation.format.rules().pairs_roles {
            return None;
        }
        let mut neighbours = now.kept.list_neighbours(units).into_iter();
        neighbours.find(|&(before, after)| {
            let last = view.item(view.units[before].unbound_messages().end - 1);
            let next = view.item(view.units[after].messages.start);
            !prompt_placement::can_follow(last.author, next.author, &self.profile)
        })
    }

    /// The answer without thinking that would begin the running turn if these units went, of which one begins it with
    /// thinking.
    pub(super) fn find_bare_successor(
        &self,
        view: RequestView<'_>,
        units: &[usize],
        now: &Moment,
    ) -> Option<usize> {
        let mut thinking = units
            .iter()
            .filter(|&&unit| self.thinking.get(unit) == Some(&true));
        thinking.find_map(|&unit| {
            let next = now.kept.find_next_of_turn(unit, units, view.units)?;
            (!self.thinking[next]).then_some(next)
        })
    }

    /// Where a course begins that leaves out all units before `begun`: earlier if the running turn would begin with an
    /// answer without thinking.
    pub(in crate::guard) fn begin_with_thinking(
        &self,
        view: RequestView<'_>,
        begun: usize,
    ) -> usize {
        let units = view.units;
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
        let mut earlier = (turn.max(view.count_pinned())..begun).rev();
        earlier.find(|&unit| self.thinking[unit]).unwrap_or(begun)
    }
}
