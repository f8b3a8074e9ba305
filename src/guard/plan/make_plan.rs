//! The plan of a request: all edits of the guard, what they are, and what is remembered of them.

use crate::{
    conversation::{
        Conversation,
        units::{self, Unit},
    },
    guard::{
        fold::{memory::Recall, preface, replay},
        grammar::role_alternation,
        inject::placed_injections::PlacedInjections,
        plan::{
            assemble, compaction_request,
            report::{Plan, Report, StandBackReason},
        },
        request::{budget, measured_request::MeasuredRequest, policy::Policy, view::RequestView},
        shrink::{cuts::MessageCuts, shortened_messages::ShortenedMessages},
    },
};

/// Plans the edits of a request. The edits are empty where the guard stands back, but for results that are truncated
/// although the provider manages the history; the report says why.
pub fn plan(conversation: &Conversation, policy: &Policy<'_>, recall: &Recall) -> Plan {
    if conversation.asks_to_compact() {
        let mut settings = policy.settings.clone();
        settings.clear.enabled = false;
        let policy = Policy {
            settings: &settings,
            ..*policy
        };
        let recall = compaction_request::forget_cuts(recall);
        return plan_request(conversation, &policy, &recall, recall.names_ids());
    }
    let (kept, offered) = (recall.names_ids(), recall.injections.names_ids);
    let plan = plan_request(conversation, policy, recall, kept);
    // A new fold changes the front of the prompt anyway, so that ids may be named from then on.
    let is_new_fold = plan.report.folded.is_some_and(|it| it.new);
    match kept != offered && is_new_fold {
        true => plan_request(conversation, policy, recall, offered),
        false => plan,
    }
}

fn plan_request(
    conversation: &Conversation,
    policy: &Policy<'_>,
    recall: &Recall,
    names_ids: bool,
) -> Plan {
    let compacts = conversation.asks_to_compact();
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
            return plan_managed_history(view, &measured, reason, recall);
        }
    };
    if compacts {
        units.iter_mut().for_each(|unit| unit.stays = true);
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
    let injected = PlacedInjections::find_places(view, &recall.injections, &recall.foreign, epoch);
    let limits = recall.limits(&view.policy);
    let mut cuts =
        MessageCuts::cut_messages(view, measured.tokens.clone(), Some(&injected), &limits);
    let weight = injected.weigh_injections(recall.messages);
    if compacts {
        compaction_request::fit_results(view, &measured, &mut cuts, &weight, recall);
    }
    let fit = replay::replay_conversation(view, &measured, cuts, weight, recall, known);
    let profile =
        role_alternation::resolve_profile(conversation.format, policy.profile, fit.alternates());
    let view = RequestView {
        policy: policy.with_profile(&profile),
        ..view
    };
    let note = &fit.replay.note;
    let (preface, ledger) = note.write_preface(&fit.state);
    let folding = preface::apply_fold(view, &fit.state.folded, &preface, note.stands_always());
    assemble::assemble_plan(view, &measured, &fit, folding, ledger, &injected, recall)
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

/// The plan that truncates long tool results and does nothing else: what the provider holds cannot shrink later. No
/// limit is remembered, since the provider has the result after one request.
fn plan_managed_history(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    reason: StandBackReason,
    recall: &Recall,
) -> Plan {
    let mut results = ShortenedMessages::new(view, measured.tokens.clone());
    results.truncate_long_results();
    let mut plan = measured.stand_back(reason, recall);
    let fresh = units::first_new_message(view.units, recall.messages);
    let truncated = results.collect_edits(|_| true, fresh, &mut plan.edits);
    let tools = measured.shares.tools;
    let sent = budget::measure_shares(tools, view.conversation, &view.policy, &results.tokens);
    plan.report = Report {
        truncated,
        raw_after: sent.total(),
        expected: recall.calibration.to_expected_tokens(sent.total()),
        sent,
        ..plan.report
    };
    plan
}
