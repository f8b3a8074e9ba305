//! The plan of a request: all edits of the guard, what they are, and what is remembered of them.

use crate::{
    conversation::{
        Conversation,
        units::{self, Unit},
    },
    guard::{
        fold::{memory::SessionKnowledge, replay},
        grammar::role_alternation,
        inject::{injections::Summary, placed_injections::PlacedInjections},
        plan::{
            assemble::{CutRequest, PlanInputs},
            compaction_request, old_media, provider_summary,
            report::{Plan, Report, StandBackReason},
        },
        request::{
            budget::{self, Budget},
            estimate,
            measured_request::MeasuredRequest,
            policy::Policy,
            recall_id::NamedIds,
            short_tools::ShortTools,
            view::RequestView,
        },
        shrink::{message_cuts::MessageCuts, shortened_messages::ShortenedMessages},
    },
};

/// Plans the edits of a request. If the guard stands back, there are no edits, and the report says why; but some formats
/// have long results truncated even if the provider manages the history.
pub fn plan(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: &SessionKnowledge,
) -> Plan {
    if conversation.asks_to_compact() {
        let mut settings = policy.settings.clone();
        settings.clear.enabled = false;
        let policy = Policy {
            settings: &settings,
            ..*policy
        };
        let knowledge = compaction_request::forget_cuts(knowledge);
        return plan_with_ids(
            conversation,
            &policy,
            &knowledge,
            &knowledge.find_named_ids(),
            true,
        );
    }
    if knowledge
        .injections
        .summary
        .as_ref()
        .is_some_and(Summary::is_block)
    {
        return provider_summary::plan_behind_block(conversation, policy, knowledge);
    }
    plan_conversation(conversation, policy, knowledge)
}

/// Plans a conversation whose summary, if there is any, is in a preface.
pub(super) fn plan_conversation(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: &SessionKnowledge,
) -> Plan {
    let kept = knowledge.find_named_ids();
    let anew = NamedIds::all(knowledge.injections.names_ids);
    let plan = plan_with_ids(conversation, policy, knowledge, &kept, false);
    // A new fold or placeholder changes the front of the prompt anyway, so that this request decides whether ids are named.
    let is_cut_anew = |plan: &Plan| {
        let cleared = plan.report.cleared.as_ref();
        plan.report.folded.is_some_and(|it| it.new) || cleared.is_some_and(|it| it.new)
    };
    if kept == anew || !is_cut_anew(&plan) {
        return plan;
    }
    // Without ids, the cuts may be short enough that no new one is due.
    let other = plan_with_ids(conversation, policy, knowledge, &anew, false);
    if is_cut_anew(&other) { other } else { plan }
}

/// `compacts`: the client compacts the conversation with this request.
fn plan_with_ids(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: &SessionKnowledge,
    names_ids: &NamedIds,
    compacts: bool,
) -> Plan {
    let brevity = knowledge.tool_brevity(policy);
    let tools = ShortTools::cut_to(conversation, policy, brevity);
    plan_with_tools(conversation, policy, knowledge, names_ids, compacts, tools)
}

/// `tools`: as they are sent if the guard does not stand back.
fn plan_with_tools(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: &SessionKnowledge,
    names_ids: &NamedIds,
    compacts: bool,
    tools: ShortTools,
) -> Plan {
    let units = split_guarded_units(conversation, policy);
    let tools = if units.is_ok() {
        tools
    } else {
        ShortTools::default()
    };
    let past = knowledge.past_answers();
    let mut measured = MeasuredRequest::with_tools(conversation, policy, &past, tools);
    let density = knowledge.refused.reasoning_density;
    if density > 0.0 {
        for (tokens, item) in measured.tokens.iter_mut().zip(&conversation.items) {
            let more = estimate::estimate_dense_reasoning(conversation, item, density);
            *tokens = tokens.saturating_add(more);
        }
    }
    let mut units = match units {
        Ok(units) => units,
        Err(reason) => {
            let is_managed = matches!(reason, StandBackReason::ProviderManages(_));
            if !is_managed || !conversation.format.rules().truncates_managed_history {
                return measured.stand_back(reason, knowledge);
            }
            let view = RequestView {
                conversation,
                // The provider may hold the calls of these results.
                units: &units::split_units(conversation),
                policy: *policy,
                names_ids: NamedIds::NONE,
                scale: knowledge.token_scale(),
            };
            return plan_managed_history(view, &measured, reason, knowledge);
        }
    };
    if compacts {
        units.iter_mut().for_each(|unit| unit.is_pinned = true);
    }
    if knowledge.refused.keeps_media {
        old_media::keep_media(conversation, policy, knowledge.kept_memory(), &mut units);
    }
    let known = knowledge.find_settled_alternation(conversation);
    let profile = role_alternation::resolve_profile(conversation.format, policy.profile, known);
    let view = RequestView {
        conversation,
        units: &units,
        policy: policy.with_profile(&profile),
        names_ids,
        scale: knowledge.token_scale(),
    };
    let epoch = knowledge.history.epoch;
    let injected = PlacedInjections::find_places(
        view,
        &knowledge.injections,
        knowledge.unusable_reasoning(),
        epoch,
    );
    let limits = knowledge.limits(&view.policy);
    let mut cuts =
        MessageCuts::cut_messages(view, measured.tokens.clone(), Some(&injected), &limits);
    let weight = injected.weigh_injections(knowledge.sent_messages);
    if compacts {
        compaction_request::fit_results(view, &measured, &mut cuts, &weight, knowledge);
    }
    let fit = replay::replay_conversation(view, &measured, cuts, weight, knowledge, known);
    if fit.replay.shortens_tools
        && measured.tools.brevity.is_none()
        && let Some(tools) = ShortTools::cut_to_share(
            conversation,
            policy,
            knowledge
                .refused
                .was_too_long
                .then(|| measured.shares.total()),
        )
    {
        return plan_with_tools(conversation, policy, knowledge, names_ids, compacts, tools);
    }
    let profile =
        role_alternation::resolve_profile(conversation.format, policy.profile, fit.alternates());
    let view = RequestView {
        policy: policy.with_profile(&profile),
        ..view
    };
    let inputs = PlanInputs {
        view,
        measured: &measured,
        knowledge,
        injected: &injected,
    };
    CutRequest::make_edits(inputs, fit).seal().into_plan()
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

/// The budget of a request in its session, where its answer cap is lowered before the history is cut.
pub fn session_budget(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: &SessionKnowledge,
) -> Budget {
    let tools = ShortTools::cut_to(conversation, policy, knowledge.tool_brevity(policy));
    let past = knowledge.past_answers();
    let measured = MeasuredRequest::with_tools(conversation, policy, &past, tools);
    measured.budgets.current_budget()
}

/// The plan that truncates long tool results and does nothing else: what the provider holds cannot shrink later. No
/// limit is remembered, since the provider has the result after one request.
fn plan_managed_history(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    reason: StandBackReason,
    knowledge: &SessionKnowledge,
) -> Plan {
    let mut results = ShortenedMessages::new(view, measured.tokens.clone());
    results.truncate_long_results();
    let mut plan = measured.stand_back(reason, knowledge);
    let fresh = units::first_new_message(view.units, knowledge.sent_messages);
    let truncated = results.collect_edits(|_| true, fresh, &[], &mut plan.edits);
    let tools = measured.shares.tools;
    let sent = budget::measure_shares(tools, view.conversation, &view.policy, &results.tokens);
    plan.report = Report {
        truncated,
        raw_after: sent.total(),
        expected: knowledge.calibration.to_expected_tokens(sent.total()),
        sent,
        ..plan.report
    };
    plan
}
