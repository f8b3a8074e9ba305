//! The plan of a request: all edits of the guard, what they are, and what is remembered of them.

use crate::{
    conversation::{
        Conversation,
        edit::Edits,
        units::{self, Unit},
    },
    guard::{
        fold::{
            memory::{GuardMemory, Recall},
            preface, replay_conversation,
            sent_history::SentHistory,
        },
        grammar::role_alternation,
        inject::placed_injections,
        plan::{
            assemble, compaction_request, managed_history,
            report::{Report, StandBackReason},
        },
        request::{
            epoch::Epoch, measured_request::MeasuredRequest, policy::Policy, view::RequestView,
        },
        shrink::cuts::MessageCuts,
    },
};

/// What the guard does to a request.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub edits: Edits,
    pub report: Report,
    pub memory: GuardMemory,
    pub history: SentHistory,
    /// The place of the answer.
    pub answer: Epoch,
}

/// Plans the edits of a request. The edits are empty where the guard stands back, but for results that are truncated
/// although the provider manages the history; the report says why.
pub fn plan(conversation: &Conversation, policy: &Policy<'_>, recall: &Recall) -> Plan {
    if !conversation.asks_to_compact() {
        let (kept, offered) = (recall.names_ids(), recall.injections.names_ids);
        let plan = plan_request(conversation, policy, recall, kept, false);
        let is_new_fold = plan.report.folded.as_ref().is_some_and(|it| it.new);
        // A new fold changes the front all the same.
        return match kept != offered && is_new_fold {
            true => plan_request(conversation, policy, recall, offered, false),
            false => plan,
        };
    }
    let policy = Policy {
        settings: &compaction_request::keep_results(policy),
        ..*policy
    };
    let recall = compaction_request::forget_cuts(recall);
    plan_request(conversation, &policy, &recall, recall.names_ids(), true)
}

/// `compacts`: the client compacts the conversation with this request.
fn plan_request(
    conversation: &Conversation,
    policy: &Policy<'_>,
    recall: &Recall,
    names_ids: bool,
    compacts: bool,
) -> Plan {
    let measured = MeasuredRequest::new(conversation, policy, &recall.past_answers());
    let mut units = match split_guarded_units(conversation, policy) {
        Ok(units) => units,
        Err(reason) => {
            let is_managed = matches!(reason, StandBackReason::ProviderManages(_));
            if !is_managed || !conversation.format.rules().truncates_managed_history {
                return measured.stand_back(reason, recall);
            }
            let view = RequestView {
                conversation,
                // The provider may hold the calls of these results.
                units: &units::split_units(conversation),
                policy: *policy,
                names_ids: false,
                scale: recall.token_scale(),
            };
            return managed_history::plan_managed_history(view, &measured, reason, recall);
        }
    };
    if compacts {
        compaction_request::keep_all_units(&mut units);
    }
    let known = recall.find_settled_alternation(conversation);
    let profile = role_alternation::resolve_profile(conversation.format, policy.profile, known);
    let view = RequestView {
        conversation,
        units: &units,
        policy: policy.with_profile(&profile),
        names_ids,
        scale: recall.token_scale(),
    };
    let epoch = recall.history.epoch;
    let injected = placed_injections::PlacedInjections::find_places(
        view,
        &recall.injections,
        &recall.foreign,
        epoch,
    );
    let limits = recall.limits(&view.policy);
    let mut cuts =
        MessageCuts::cut_messages(view, measured.tokens.clone(), Some(&injected), &limits);
    let weight = injected.weigh_injections(recall.messages);
    if compacts {
        compaction_request::fit_results(view, &measured, &mut cuts, &weight, recall);
    }
    let mut fit =
        replay_conversation::replay_conversation(view, &measured, cuts, weight, recall, known);
    let alternates = fit.replay.rules.alternates;
    let profile =
        role_alternation::resolve_profile(conversation.format, policy.profile, alternates);
    let view = RequestView {
        policy: policy.with_profile(&profile),
        ..view
    };
    let folding = preface::apply_fold(view, recall, &mut fit);
    let mut draft = assemble::assemble_draft(view, &measured, &fit, folding, &injected, recall);
    draft.plan.memory.alternates = alternates;
    draft.into_linted_plan(view, &measured, recall)
}

/// The units of the conversation, or why the guard stands back.
pub(in crate::guard) fn split_guarded_units(
    conversation: &Conversation,
    policy: &Policy<'_>,
) -> Result<Vec<Unit>, StandBackReason> {
    if !policy.settings.enabled {
        return Err(StandBackReason::Disabled);
    }
    if let Some(name) = conversation.managed_by_provider() {
        return Err(StandBackReason::ProviderManages(name));
    }
    Ok(units::split_units(conversation))
}

impl MeasuredRequest<'_> {
    /// The report of a request that goes out unchanged.
    pub(in crate::guard) fn report_untouched(&self, recall: &Recall) -> Report {
        let raw = self.shares.total();
        Report {
            raw_before: raw,
            raw_after: raw,
            expected: recall.calibration.to_expected_tokens(raw),
            budget: self.budgets.current_budget(),
            shares: self.shares,
            sent: self.shares,
            ..Report::default()
        }
    }

    /// The plan without edits, for a request that goes out unchanged.
    pub(in crate::guard) fn stand_back(&self, reason: StandBackReason, recall: &Recall) -> Plan {
        Plan {
            report: Report {
                stood_back: Some(reason),
                ..self.report_untouched(recall)
            },
            memory: recall.memory.clone(),
            history: recall.history,
            ..Plan::default()
        }
    }
}
