//! Turns the decisions of the guard into a plan (edits, report, memory), and lints it.
//!
//! A chain of types: a [`ReplayedConversation`] becomes a [`CutRequest`], which has the edits of all cuts; this becomes a
//! [`SealedRequest`], whose changes of what was sent before are digested, and to which only records and the answer cap are
//! added; this becomes the [`Plan`]. Each step takes what the step before made, so no edit can come after the digests.

use crate::{
    conversation::{edit::Edits, units},
    guard::{
        fold::{
            memory::{GuardMemory, SessionKnowledge},
            preface::{self, AppliedFold},
            replay::ReplayedConversation,
            sent_history::{SealedEdits, SentChanges, SentHistory},
        },
        grammar::{lint, message_order::MessageOrder, outline::OutlineItem},
        inject::placed_injections::{InsertedRecords, PlacedInjections, SentTools},
        plan::report::{FoldReport, Plan, Report, StandBackReason},
        request::{
            budget::{self, TokenShares},
            measured_request::MeasuredRequest,
            view::RequestView,
        },
        shrink::{
            clearing::Cleared, priority::PriorityReport, shortened_messages::TruncationReport,
        },
    },
};

/// What all steps read.
#[derive(Clone, Copy)]
pub(in crate::guard) struct PlanInputs<'a> {
    pub(in crate::guard) view: RequestView<'a>,
    pub(in crate::guard) measured: &'a MeasuredRequest<'a>,
    pub(in crate::guard) knowledge: &'a SessionKnowledge,
    pub(in crate::guard) injected: &'a PlacedInjections<'a>,
}

/// A request with the edits of all cuts.
pub(in crate::guard) struct CutRequest<'a> {
    inputs: PlanInputs<'a>,
    fit: ReplayedConversation<'a>,
    edits: Edits,
    order: MessageOrder,
    /// For each message, whether it is sent.
    kept: Vec<bool>,
    /// Raw tokens of the ledger in the preface.
    ledger: u32,
    /// Messages that are left out.
    folded: usize,
    has_preface: bool,
    texts: PriorityReport,
    cleared: Option<Cleared>,
    truncated: Vec<TruncationReport>,
    /// Something of the messages is cut.
    is_cut: bool,
    memory: GuardMemory,
}

/// A request whose changes of what was sent before are digested.
pub(in crate::guard) struct SealedRequest<'a> {
    cut: CutRequest<'a>,
    edits: SealedEdits,
    history: SentHistory,
    inserted: InsertedRecords,
    tools: SentTools,
    /// Raw tokens that are weighed for tools without which this request is sent.
    unsent_tokens: u32,
}

impl<'a> CutRequest<'a> {
    /// Makes the edits of the cuts of a replayed conversation.
    pub(in crate::guard) fn make_edits(
        inputs: PlanInputs<'a>,
        fit: ReplayedConversation<'a>,
    ) -> Self {
        let PlanInputs {
            view,
            measured,
            knowledge,
            injected,
        } = inputs;
        let note = &fit.replay.note;
        let (preface, ledger) = note.write_preface(&fit.state);
        let AppliedFold {
            messages: folded,
            prefaced: has_preface,
            mut edits,
            order,
        } = preface::apply_fold(
            view,
            injected,
            &fit.state.folded,
            &preface,
            note.is_always_sent(),
        );
        edits.merge(measured.tools.edits.clone());
        let (texts, messages) = (&fit.replay.cuts.texts, &fit.replay.cuts.messages);
        let mut kept = vec![false; messages.tokens.len()];
        for item in &order.outline {
            if let OutlineItem::Client(at) = *item {
                kept[at] = true;
            }
        }
        let fresh = units::first_new_message(view.units, knowledge.sent_messages);
        // A new conversation has no message that was sent before.
        let sent_before = if knowledge.sent_messages > 0 {
            fresh
        } else {
            0
        };
        let mut texts = texts.collect_edits(&kept, sent_before, &mut edits);
        texts.new = texts.digest_figures() != knowledge.memory.texts;
        let cleared = collect_cleared(view, &fit, &kept, &knowledge.memory, &mut edits);
        let cleared_messages = cleared.as_ref().map_or(&[][..], |it| &it.messages);
        let sent = |at: usize| kept[at] && cleared_messages.binary_search(&at).is_err();
        let remembered = &knowledge.memory.limits;
        let truncated = messages.collect_edits(sent, fresh, remembered, &mut edits);
        let is_cut = !truncated.is_empty() || cleared.is_some() || folded > 0 || has_preface;
        let memory = remember_cuts(inputs, &fit, &kept, texts.digest_figures(), is_cut);
        Self {
            inputs,
            edits,
            order,
            kept,
            ledger,
            folded,
            has_preface,
            texts,
            cleared,
            truncated,
            is_cut,
            memory,
            fit,
        }
    }

    /// Digests what these edits change in what was sent before, and puts the records back. Reasoning that the changes make
    /// stale is left out.
    pub(in crate::guard) fn seal(mut self) -> SealedRequest<'a> {
        let PlanInputs {
            view,
            knowledge,
            injected,
            ..
        } = self.inputs;
        let (kept, is_cut) = (&self.kept, self.is_cut);
        let tools = injected.sent_tools(kept, is_cut);
        let (mut edits, changes) = SentChanges::seal(
            view,
            std::mem::take(&mut self.edits),
            &self.order,
            injected.list_sent_records(kept),
            tools.in_list,
            knowledge.count_sent_messages(),
        );
        let replayed = self.fit.replay.find_epoch();
        let history = knowledge.continue_history(view.conversation, &changes, replayed);
        let order = std::mem::take(&mut self.order);
        let inserted = edits.put_records_back(injected, kept, is_cut, order, history.epoch);
        SealedRequest {
            unsent_tokens: injected.unsent_tokens(kept, is_cut),
            cut: self,
            edits,
            history,
            inserted,
            tools,
        }
    }
}

impl SealedRequest<'_> {
    /// Lowers the answer cap to what is left, and puts the plan together.
    pub(in crate::guard) fn into_plan(self) -> Plan {
        let Self {
            cut,
            mut edits,
            history,
            inserted,
            tools,
            unsent_tokens,
        } = self;
        let folded = (cut.folded > 0).then(|| cut.report_fold());
        let CutRequest { inputs, fit, .. } = cut;
        let PlanInputs {
            view,
            measured,
            knowledge,
            ..
        } = inputs;
        let (stale, counted) = fit.replay.stale_tokens(&fit.state, history.epoch);
        let raw_after = fit.replay.sent_tokens(&fit.state, cut.ledger);
        let raw_after = raw_after.saturating_sub(counted.saturating_add(unsent_tokens));
        let tokens = &fit.replay.cuts.messages.tokens;
        let mut sent = measure_sent(view, measured, cut.cleared.as_ref(), &cut.kept, tokens);
        sent.history = sent.history.saturating_sub(stale);
        let answer_cap = measured.budgets.fit_answer_cap(raw_after, fit.added);
        if let Some(cap) = answer_cap.filter(|cap| cap.is_lowered()) {
            edits.lower_answer_caps(view.conversation, cap.sent);
        }
        let course = knowledge.injections.course.as_ref();
        let course = course.filter(|_| cut.has_preface);
        let report = Report {
            short_tools: measured.report_tools(knowledge.tool_brevity(&view.policy)),
            folded,
            // What is planned anew keeps the cuts of its earlier plan, and so their reason.
            due: fit
                .replay
                .due
                .or_else(|| knowledge.earlier_plan.as_ref()?.due),
            course: course.map(|course| course.number),
            tools: tools.in_list.union(tools.in_entry),
            has_tools_entry: !tools.in_entry.is_empty(),
            records_left_out: inserted.records_left_out,
            reasoning_left_out: inserted.reasoning_left_out,
            raw_after,
            expected: knowledge.calibration.to_expected_tokens(raw_after),
            answer_cap,
            over_budget: raw_after > fit.most,
            sent,
            fixed: fit.replay.fixed_tokens(),
            texts: cut.texts,
            truncated: cut.truncated,
            cleared: cut.cleared,
            ..measured.report_untouched(knowledge)
        };
        let plan = Plan {
            edits: edits.into_edits(),
            report,
            memory: cut.memory,
            history,
            answer: knowledge.find_next_answer(view.conversation),
        };
        lint_plan(plan, &inserted.outline, view, measured, knowledge)
    }
}

impl CutRequest<'_> {
    fn report_fold(&self) -> FoldReport {
        let fit = &self.fit;
        let tokens = &fit.replay.cuts.messages.tokens;
        let removed = self.kept.iter().zip(tokens).filter(|(kept, _)| !**kept);
        let has_ledger = || fit.replay.note.has_ledger(&fit.state);
        let new = match (&self.memory.cut, &self.inputs.knowledge.memory.cut) {
            (Some(cut), Some(known)) => cut.differs_from(known, has_ledger),
            (cut, known) => cut != known,
        };
        FoldReport {
            messages: self.folded,
            came: self.kept.len(),
            kept: self.kept.iter().filter(|kept| **kept).count(),
            tokens: removed.fold(0u32, |sum, (_, tokens)| sum.saturating_add(*tokens)),
            new,
        }
    }
}

/// What the session remembers of the cuts. `texts`: the digest of what caps and shares did.
fn remember_cuts(
    inputs: PlanInputs<'_>,
    fit: &ReplayedConversation<'_>,
    kept: &[bool],
    texts: u64,
    is_cut: bool,
) -> GuardMemory {
    let view = inputs.view;
    // A question of the user that is left out may come back, so its limits are remembered too.
    let mut limited = kept.to_vec();
    for asked in units::list_newest_questions(view.units) {
        limited[asked].fill(true);
    }
    let mut memory = GuardMemory {
        basis: fit.basis,
        cut: fit.state.to_mark(view.conversation, view.units),
        limits: fit.replay.cuts.list_limits(kept, &limited),
        planned: units::count_messages_before(view.units, view.units.len()),
        texts,
        scale: view.scale,
        alternates: fit.alternates(),
        names_ids: is_cut.then(|| view.names_ids.clone()),
    };
    memory.remember_tools(inputs.measured.tools.brevity);
    memory
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
