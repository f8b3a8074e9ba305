//! Reasoning that a model binds to everything before it: a cut makes all of it stale. So a cut of a conversation with such
//! reasoning is deeper than others, and a cut that would come soon is made when a turn begins.

use super::{Moment, Replay};
use crate::{
    config::profile::PastReasoning,
    conversation::units,
    guard::{
        fold::cut_state::CutState,
        request::{
            answer_place::{AnswerPlace, count_places},
            estimate,
            view::RequestView,
        },
    },
};

/// The reasoning that is bound to what stands before it.
pub(super) struct BoundReasoning {
    /// Raw tokens of each unit's reasoning; empty if there is none, or if the model reads it whatever was changed before it.
    tokens: Vec<u32>,
    /// The first unit with reasoning of more than 0 tokens.
    first: usize,
    /// Units before this one count without their reasoning: it is left out, or the provider drops it.
    left_out_until: usize,
    /// The newest request leaves all of it out.
    leaves_out_all: bool,
}

impl BoundReasoning {
    /// `density`: see [`RefusalLessons::reasoning_density`](crate::guard::RefusalLessons::reasoning_density).
    pub(super) fn weigh(view: RequestView<'_>, density: f64) -> Self {
        let weights = view.token_weights();
        let mut has_any = false;
        let mut tokens = Vec::new();
        if view.policy.profile.past_reasoning != PastReasoning::Read {
            let weigh = |item| {
                let tokens = estimate::estimate_reasoning(view.conversation, item, &weights)?;
                let more = estimate::estimate_dense_reasoning(view.conversation, item, density);
                Some(tokens.saturating_add(more))
            };
            tokens.extend(view.units.iter().map(|unit| {
                let items = view.conversation.items[unit.messages.clone()].iter();
                items.filter_map(weigh).fold(0u32, |sum, tokens| {
                    has_any = true;
                    sum.saturating_add(tokens)
                })
            }));
        }
        if !has_any {
            tokens.clear();
        }
        Self {
            // Reasoning that the model does not read weighs nothing, and costs nothing to change.
            first: tokens.iter().position(|it| *it > 0).unwrap_or(usize::MAX),
            tokens,
            left_out_until: 0,
            leaves_out_all: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Raw tokens of a unit's reasoning that are left out.
    pub(super) fn left_out_of(&self, at: usize) -> u32 {
        let left_out = &self.tokens[..self.left_out_until];
        left_out.get(at).copied().unwrap_or(0)
    }
}

impl Replay<'_> {
    /// Leaves out what cuts before this request left out: all reasoning before `place`.
    pub(super) fn begin_reasoning(&mut self, place: u32) {
        if self.reasoning.is_empty() {
            return;
        }
        let units = self.view.units;
        let places = count_places(self.view.conversation);
        let stale = |at: &usize| places[units[*at].messages.start] < place;
        self.reasoning.left_out_until = (0..units.len()).take_while(stale).count();
        for at in 0..self.reasoning.left_out_until {
            self.weights.take_reasoning(at, self.reasoning.tokens[at]);
        }
    }

    /// Leaves out the reasoning of units before `until`, which is behind a change.
    pub(super) fn drop_reasoning(&mut self, until: usize, now: &mut Moment) {
        if self.reasoning.is_empty() {
            return;
        }
        for at in self.reasoning.left_out_until..until {
            let before = self.weights.of_unit(at, &now.state);
            self.weights.take_reasoning(at, self.reasoning.tokens[at]);
            if !now.state.folded[at] {
                let freed = before.saturating_sub(self.weights.of_unit(at, &now.state));
                now.live = now.live.saturating_sub(freed);
            }
        }
        self.reasoning.left_out_until = self.reasoning.left_out_until.max(until);
        self.reasoning.leaves_out_all |= until == self.view.units.len();
    }

    /// The first answer whose reasoning is sent, by the cuts of the replay.
    pub(in crate::guard) fn find_epoch(&self) -> AnswerPlace {
        if self.reasoning.leaves_out_all {
            return self.knowledge.find_next_answer(self.view.conversation);
        }
        let until = self.reasoning.left_out_until;
        AnswerPlace {
            place: units::count_messages_before(self.view.units, until),
            round: 0,
        }
    }

    /// Raw tokens of the reasoning before `epoch` in units that stay: all, and those that the replay counts among what is
    /// sent.
    pub(in crate::guard) fn stale_tokens(
        &self,
        state: &CutState,
        epoch: AnswerPlace,
    ) -> (u32, u32) {
        if self.reasoning.is_empty() {
            return (0, 0);
        }
        let units = self.view.units;
        let places = count_places(self.view.conversation);
        let is_stale = |at: usize| places[units[at].messages.start] < epoch.place;
        let sum_from = |first: usize| {
            let stale = (first..units.len()).filter(|&at| !state.folded[at] && is_stale(at));
            let tokens = stale.map(|at| self.reasoning.tokens[at]);
            tokens.fold(0, u32::saturating_add)
        };
        (sum_from(0), sum_from(self.reasoning.left_out_until))
    }

    /// The share of the room that the cut of a request that ends at unit `at` leaves filled.
    pub(super) fn find_low_water(&self, at: usize) -> f64 {
        if self.binds_reasoning(at) {
            self.budgets.low_water * self.view.policy.rules.bound_depth
        } else {
            self.budgets.low_water
        }
    }

    /// Whether a request that ends at unit `at` has reasoning that a change would cost. Later reasoning does not count: a
    /// replay in a longer conversation finds the same cuts.
    pub(super) fn binds_reasoning(&self, at: usize) -> bool {
        self.reasoning.first <= at
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        config::{
            GuardConfig,
            profile::{Profile, find_profile},
            tokens::unknown_model,
        },
        conversation::Format,
        guard::request::{estimate::TokenScale, policy::Policy},
    };

    /// An earlier replay took the first reasoning at all for the first that a change costs: cuts came early, and deep.
    #[test]
    fn reasoning_without_a_token_makes_no_cut_deeper() {
        let find_first = |thinking: &str| {
            let thought = json!({"type": "thinking", "thinking": thinking, "signature": "s"});
            let messages = json!([
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [thought, {"type": "text", "text": "done"}]},
                {"role": "user", "content": "and?"},
            ]);
            let body = json!({"model": "m", "max_tokens": 100, "messages": messages}).to_string();
            let conversation = Format::Messages.index_body(body.into()).unwrap();
            let units = units::split_units(&conversation);
            let profile = Profile {
                past_reasoning: PastReasoning::Refused,
                ..*find_profile("anthropic").unwrap()
            };
            let settings = GuardConfig::counted_by_characters();
            let view = RequestView {
                conversation: &conversation,
                units: &units,
                policy: Policy::new(&profile, 8_000, unknown_model(), &settings),
                names_ids: crate::guard::request::recall_id::NamedIds::NONE,
                scale: TokenScale::default(),
            };
            let reasoning = BoundReasoning::weigh(view, 0.0);
            assert!(!reasoning.is_empty());
            reasoning.first
        };
        assert_eq!(find_first("a thought"), 1);
        assert_eq!(find_first(""), usize::MAX);
    }
}
