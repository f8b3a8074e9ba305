//! Statistics of a generation: in its session's state, the metrics and the log. No decision depends on them.

use crate::{
    guard::estimate::Calibration,
    health::Health,
    proxy::{GuardMode, PlannedRequest, SessionContext, judged_answer::reported_tokens},
    relay::{InputChanges, ResponseSummary},
    session::{history::Marks, state::PromptBreakdown},
    telemetry::record::GenerationFacts,
};

/// Estimates the tokens of each part of the request; `None` if the guard did not read the request.
pub(super) fn break_down_prompt(
    planned: &PlannedRequest,
    calibration: &Calibration,
) -> Option<PromptBreakdown> {
    let report = &planned.plan.report;
    if report.raw_before == 0 {
        return None;
    }
    let slope = calibration.slope();
    let tokens = |raw: u32| (f64::from(raw) * slope) as u32;
    let came = &report.shares;
    let (sent, raw) = match planned.mode {
        GuardMode::Guard => (&report.sent, report.raw_after),
        _ => (came, came.total()),
    };
    Some(PromptBreakdown {
        system: tokens(sent.system),
        tools: tokens(sent.tools),
        history: tokens(sent.history),
        tool_results: tokens(sent.tool_results),
        images: tokens(sent.images),
        ours: tokens(raw.saturating_sub(sent.total())),
        reserve: report.budget.reserve,
        left_out: tokens(came.total().saturating_sub(sent.total())),
    })
}

/// Collects the actions that are new with this request.
pub(super) fn collect_marks(planned: &PlannedRequest) -> Marks {
    if planned.mode != GuardMode::Guard {
        return Marks::default();
    }
    let report = &planned.plan.report;
    let course = planned.recovery.begins_course();
    let cleared = report.cleared.as_ref().is_some_and(|cleared| cleared.new) || report.texts.cut;
    let folded = report.folded.is_some_and(|folded| folded.new) && !course;
    let injected = planned.recovery.injected_prompt().is_some();
    Marks::default()
        .with_mark(Marks::TRUNCATED, report.truncated.iter().any(|cut| cut.new))
        .with_mark(Marks::CLEARED, cleared)
        .with_mark(Marks::FOLDED, folded)
        .with_mark(Marks::INJECTED, injected)
        .with_mark(Marks::COURSE, course)
        .with_mark(Marks::SUMMARY, planned.compaction.goes_out_first())
        .with_mark(Marks::REFITTED, planned.refits + planned.size_refits > 0)
}

/// Notes the generation for the log, the metrics and the trace.
pub(super) fn note_generation(
    session: &SessionContext,
    planned: &PlannedRequest,
    response: &ResponseSummary,
    health: &Health,
) {
    let usage = response.usage;
    let billed = planned.recovery.billed_tokens();
    let mut facts = session.notes.facts();
    facts.guard_took = Some(planned.guard_took);
    facts.generation = Some(GenerationFacts {
        level: health.level,
        hard_util: health.hard_util,
        window: health.window,
        prompt_tokens: reported_tokens(response),
        completion_tokens: usage.and_then(|usage| usage.completion_tokens),
        cached_tokens: usage.and_then(|usage| usage.cached_tokens),
        billed: billed.map(|billed| (billed.prompt_tokens, billed.completion_tokens)),
        finish_reason: response.finish_reason,
    });
    drop(facts);
    if session.repeated.is_none() {
        count_actions(session, planned);
    }
    count_input_changes(session, planned, &response.input_changes);
}

/// Counts what the provider says that it did with the thinking in the request.
fn count_input_changes(session: &SessionContext, planned: &PlannedRequest, changes: &InputChanges) {
    let (provider, model) = (&*planned.target.provider.name, &*planned.target.model);
    let counters = &session.app.metrics.input_changes;
    for (change, reason, count) in changes.list_counts() {
        let labels = [provider, change, reason];
        counters.with_label_values(&labels).inc_by(count.into());
    }
    if changes.count_forgotten() > 0 && !session.names_reasoning {
        let provider = &planned.target.provider;
        provider.change_notes(model, |it| it.forgets_turns = true);
    }
    let (dropped, allowed) = (changes.count_dropped(), changes.count_allowed());
    if dropped + allowed > 0 {
        tracing::info!(
            session = %session.inherited.session, provider, model, dropped, allowed,
            "thinking that does not fit the messages before it: {provider} dropped {dropped} blocks, and allowed {allowed}"
        );
    }
}

/// Counts the actions that are new with this request.
fn count_actions(session: &SessionContext, planned: &PlannedRequest) {
    let metrics = &session.app.metrics;
    if session.inherited.state.is_none() && !session.inherited.store_failed {
        metrics.sessions.inc();
    }
    if planned.mode != GuardMode::Guard {
        return;
    }
    let report = &planned.plan.report;
    for cut in report.truncated.iter().filter(|cut| cut.new) {
        metrics.truncations.inc();
        let chars = cut.before.saturating_sub(cut.after);
        metrics.cut_characters.inc_by(chars as u64);
    }
    let cleared = report.cleared.as_ref().map_or(0, |cleared| cleared.fresh);
    metrics.cleared_messages.inc_by(cleared as u64);
    let lowered = &metrics.lowered_answer_caps;
    lowered.inc_by(u64::from(planned.lowers_cap()));
    let recalls = planned.recovery.recalls;
    for (outcome, count) in [("found", recalls.found), ("missed", recalls.missed)] {
        let recalls = metrics.recalls.with_label_values(&[outcome]);
        recalls.inc_by(count.into());
    }
    let course = planned.recovery.begins_course();
    metrics.courses.inc_by(u64::from(course));
    if let Some(kind) = planned.recovery.injected_prompt() {
        metrics.injections.with_label_values(&[kind]).inc();
    }
    if let Some(folded) = report.folded.filter(|folded| folded.new) {
        metrics.folds.inc_by(u64::from(!course));
        let before = planned.knowledge.memory.list_left_out();
        let before: usize = before.iter().map(ExactSizeIterator::len).sum();
        let dropped = folded.messages.saturating_sub(before);
        metrics.dropped_messages.inc_by(dropped as u64);
    }
}
