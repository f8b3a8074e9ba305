//! Turns the decisions of the guard into a plan (edits, report, memory), and lints it.

use crate::{
    conversation::{edit::Edits, units},
    guard::{
        fold::{
            cut_state::CutMark,
            memory::{GuardMemory, SessionKnowledge},
            preface::AppliedFold,
            replay::ReplayedConversation,
            sent_history::SentChanges,
        },
        grammar::{lint, outline::OutlineItem},
        inject::placed_injections::PlacedInjections,
        plan::report::{FoldReport, Plan, Report, StandBackReason},
        request::{
            budget::{self, TokenShares},
            measured_request::MeasuredRequest,
            view::RequestView,
        },
        shrink::clearing::Cleared,
    },
};

/// Puts the plan together. `ledger`: raw tokens of the ledger in the preface.
pub(in crate::guard) fn assemble_plan(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    fit: &ReplayedConversation<'_>,
    folding: AppliedFold,
    ledger: u32,
    injected: &PlacedInjections<'_>,
    knowledge: &SessionKnowledge,
) -> Plan {
    let (texts, messages) = (&fit.replay.cuts.texts, &fit.replay.cuts.messages);
    let mut edits = folding.edits;
    edits.merge(measured.tools.edits.clone());
    let mut kept = vec![false; messages.tokens.len()];
    for item in &folding.order.outline {
        if let OutlineItem::Client(at) = *item {
            kept[at] = true;
        }
    }
    let fresh = units::first_new_message(view.units, knowledge.messages);
    // A new conversation has no message that was sent before.
    let sent_before = if knowledge.messages > 0 { fresh } else { 0 };
    let mut text_report = texts.collect_edits(&kept, sent_before, &mut edits);
    let digest = text_report.digest_figures();
    text_report.new = digest != knowledge.memory.texts;
    // A question of the user that is left out may come back, so its limits are remembered too.
    let mut limited = kept.clone();
    for asked in units::list_newest_questions(view.units) {
        limited[asked].fill(true);
    }
    let mut memory = GuardMemory {
        basis: fit.basis,
        cut: Some(fit.state.to_mark(view.conversation, view.units))
            .filter(|mark| *mark != CutMark::default()),
        limits: fit.replay.cuts.list_limits(&kept, &limited),
        planned: units::count_messages_before(view.units, view.units.len()),
        texts: digest,
        scale: view.scale,
        alternates: fit.alternates(),
        ..GuardMemory::default()
    };
    memory.remember_tools(measured.tools.brevity);
    let cleared = collect_cleared(view, fit, &kept, &knowledge.memory, &mut edits);
    let cleared_messages = cleared.as_ref().map_or(&[][..], |it| &it.messages);
    let sent = |at: usize| kept[at] && cleared_messages.binary_search(&at).is_err();
    let remembered = &knowledge.memory.limits;
    let truncated = messages.collect_edits(sent, fresh, remembered, &mut edits);
    let is_cut =
        !truncated.is_empty() || cleared.is_some() || folding.messages > 0 || folding.prefaced;
    memory.names_ids = is_cut.then(|| view.names_ids.clone());
    let tools = injected.sent_tools(&kept, is_cut);
    let changes = SentChanges::collect(
        view,
        &edits,
        &folding.order,
        injected.list_sent_records(&kept),
        tools.in_list,
        knowledge.count_sent_messages(),
    );
    let replayed = fit.replay.find_epoch();
    let history = knowledge.continue_history(view.conversation, &changes, replayed);
    let epoch = history.epoch;
    let moved = epoch != knowledge.history.epoch;
    let injected = if moved && !knowledge.injections.records.is_empty() {
        &PlacedInjections::find_places(
            view,
            &knowledge.injections,
            knowledge.unusable_reasoning(),
            epoch,
        )
    } else {
        injected
    };
    let inserted = injected.insert_records(&kept, is_cut, folding.order, epoch, &mut edits);
    let raw_after = fit.replay.sent_tokens(&fit.state, ledger);
    let (stale, counted) = fit.replay.stale_tokens(&fit.state, epoch);
    let raw_after = raw_after.saturating_sub(counted);
    let mut sent = measure_sent(view, measured, cleared.as_ref(), &kept, &messages.tokens);
    sent.history = sent.history.saturating_sub(stale);
    let raw_after = raw_after.saturating_sub(injected.unsent_tokens(&kept, is_cut));
    let answer_cap = measured.budgets.fit_answer_cap(raw_after, fit.added);
    if let Some(cap) = answer_cap.filter(|cap| cap.is_lowered()) {
        view.conversation.lower_answer_caps(cap.sent, &mut edits);
    }
    let removed = kept
        .iter()
        .zip(&messages.tokens)
        .filter(|(kept, _)| !**kept);
    let removed = removed.fold(0u32, |sum, (_, tokens)| sum.saturating_add(*tokens));
    let course = knowledge.injections.course.as_ref();
    let course = course.filter(|_| folding.prefaced);
    let has_ledger = || fit.replay.note.has_ledger(&fit.state);
    let is_new_cut = match (&memory.cut, &knowledge.memory.cut) {
        (Some(cut), Some(known)) => cut.differs_from(known, has_ledger),
        (cut, known) => cut != known,
    };
    let report = Report {
        texts: text_report,
        short_tools: measured.report_tools(knowledge.tool_brevity(&view.policy)),
        truncated,
        folded: (folding.messages > 0).then(|| FoldReport {
            messages: folding.messages,
            came: kept.len(),
            kept: kept.iter().filter(|kept| **kept).count(),
            tokens: removed,
            new: is_new_cut,
        }),
        due: fit.replay.due,
        course: course.map(|course| course.number),
        tools: tools.in_list.union(tools.in_entry),
        has_tools_entry: !tools.in_entry.is_empty(),
        records_left_out: inserted.records_left_out,
        reasoning_left_out: inserted.reasoning_left_out,
        raw_after,
        expected: knowledge.calibration.to_expected_tokens(raw_after),
        answer_cap,
        over_budget: raw_after > fit.high,
        sent,
        fixed: fit.replay.fixed_tokens(),
        cleared,
        ..measured.report_untouched(knowledge)
    };
    let plan = Plan {
        edits,
        report,
        memory,
        history,
        answer: knowledge.find_next_answer(view.conversation),
    };
    lint_plan(plan, &inserted.outline, view, measured, knowledge)
}

/// Returns the plan, or one in which the guard stands back if the plan breaks a rule that the conversation kept. `outline`:
/// the messages of the edited conversation.
pub(in crate::guard) fn lint_plan(
    plan: Plan,
    outline: &[OutlineItem],
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    knowledge: &SessionKnowledge,
) -> Plan {
    let is_client = |item: &OutlineItem| matches!(item, OutlineItem::Client(_));
    if plan.report.folded.is_none() && outline.iter().all(is_client) {
        // Cuts within messages, texts added to them, and schemas move no message.
        return plan;
    }
    let broken = lint::find_new_faults(view.conversation, outline, view.policy.profile);
    if broken.is_empty() {
        return plan;
    }
    Plan {
        // The plan is not carried out, so the next request is replayed from its start.
        memory: GuardMemory {
            alternates: plan.memory.alternates,
            scale: plan.memory.scale,
            names_ids: plan.memory.names_ids,
            ..GuardMemory::default()
        },
        ..measured.stand_back(StandBackReason::Unsound(broken), knowledge)
    }
}

/// The shares of the client's messages that go out, for the report. Cleared tokens are taken off tool results first,
/// since most of them are tool results.
fn measure_sent(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    cleared: Option<&Cleared>,
    kept: &[bool],
    tokens: &[u32],
) -> TokenShares {
    if cleared.is_none() && tokens == measured.tokens && !kept.contains(&false) {
        return measured.shares;
    }
    let sent_tokens = kept.iter().zip(tokens);
    let sent_tokens: Vec<u32> = sent_tokens
        .map(|(kept, tokens)| if *kept { *tokens } else { 0 })
        .collect();
    let (tools, conversation) = (measured.shares.tools, view.conversation);
    let mut sent = budget::measure_shares(tools, conversation, &view.policy, &sent_tokens);
    let mut freed = cleared.map_or(0, |it| it.tokens);
    for share in [&mut sent.tool_results, &mut sent.images, &mut sent.history] {
        let taken = freed.min(*share);
        *share -= taken;
        freed -= taken;
    }
    sent
}

/// Clears kept messages and adds the edits; `None` where nothing is cleared.
fn collect_cleared(
    view: RequestView<'_>,
    fit: &ReplayedConversation<'_>,
    kept: &[bool],
    before: &GuardMemory,
    edits: &mut Edits,
) -> Option<Cleared> {
    let units = view.units.iter().zip(&fit.state.cleared);
    let units = units.filter(|it| *it.1);
    let messages = units.flat_map(|(unit, _)| unit.messages.clone());
    let messages = messages.filter(|&at| kept[at]);
    let (clearing, shortened) = (&fit.replay.clearing, &fit.replay.cuts.messages);
    let cleared = clearing.collect_edits(messages, shortened, edits);
    // What was cleared for another window does not count: that window had other cuts.
    let before = before.cut.as_ref().filter(|_| fit.basis == before.basis);
    let was_cleared = |at: usize| {
        let unit = &view.units[units::find_unit_of_message(view.units, at)];
        before.is_some_and(|before| before.is_cleared(unit.messages_before as u32))
    };
    let fresh = cleared.messages.iter().filter(|at| !was_cleared(**at));
    let fresh = fresh.count();
    (cleared.count() > 0).then_some(Cleared {
        new: fresh > 0,
        fresh,
        ..cleared
    })
}
