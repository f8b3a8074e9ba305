//! A plan from what was decided: its edits, its report, its memory; and the last look at it.

use super::{
    GuardMemory, Plan, Recall,
    budget::{self, TokenShares},
    clear::{Cleared, sweep::SweptMark},
    fold::FoldMark,
    fold_search::FoldDecision,
    lint::{self, OutlineItem},
    measured_request::MeasuredRequest,
    placed_injections::PlacedInjections,
    preface::AppliedFold,
    report::{FoldReport, Report, StandBackReason},
    view::RequestView,
};
use crate::conversation::{edit::Edits, units};

/// A plan that was not looked at yet.
pub(super) struct Draft {
    pub(super) plan: Plan,
    /// The messages of the edited conversation.
    pub(super) outline: Vec<OutlineItem>,
}

/// The edits of everything that was decided, with what is told and remembered of it.
pub(super) fn assemble_draft(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    fit: &FoldDecision<'_>,
    folding: AppliedFold,
    injected: &PlacedInjections<'_>,
    recall: &Recall,
) -> Draft {
    let (texts, results) = (&fit.replay.cuts.texts, &fit.replay.cuts.results);
    let mut edits = folding.edits;
    let mut kept = vec![false; results.tokens.len()];
    for item in &folding.outline {
        if let OutlineItem::Client(at) = *item {
            kept[at] = true;
        }
    }
    let fresh = units::first_new_message(view.units, recall.messages);
    // Of a conversation that is seen for the first time, nothing was sent before.
    let sent_before = if recall.messages > 0 { fresh } else { 0 };
    let mut texts_made = texts.collect_edits(&kept, sent_before, &mut edits);
    let told = texts_made.digest_counts();
    texts_made.new = told != recall.memory.texts;
    let memory = GuardMemory {
        ground: fit.ground,
        fold: fit.fold.to_mark(view.units),
        swept: fit.fold.swept.to_mark(view.units, fit.fold.boundary),
        tight: results
            .limits_to_remember(&kept)
            .chain(texts.limits_to_remember(&kept))
            .collect(),
        texts: told,
        ..GuardMemory::default()
    };
    let cleared = collect_cleared(view, fit, &kept, &mut edits);
    let cleared = cleared.map(|cleared| mark_newly_cleared(view, cleared, &memory, &recall.memory));
    let clear = cleared.as_ref().map_or(&[][..], |it| &it.messages);
    let sent = |at: usize| kept[at] && clear.binary_search(&at).is_err();
    let truncated = results.collect_edits(sent, fresh, &mut edits);
    let (outline, records_left_out) = injected.insert_records(&kept, folding.outline, &mut edits);
    let course = recall
        .injections
        .course
        .as_ref()
        .filter(|_| folding.prefaced);
    let raw_after = fit.replay.sent(&fit.fold);
    let answer_cap = measured.budgets.fit_answer_cap(raw_after, fit.added);
    if let Some(cap) = answer_cap.filter(|cap| cap.is_lowered()) {
        view.conversation.lower_answer_caps(cap.sent, &mut edits);
    }
    let report = Report {
        texts: texts_made,
        truncated,
        folded: (folding.messages > 0).then(|| FoldReport {
            messages: folding.messages,
            came: kept.len(),
            kept: kept.iter().filter(|kept| **kept).count(),
            tokens: (0..kept.len())
                .filter(|&at| !kept[at])
                .map(|at| results.tokens[at])
                .fold(0, u32::saturating_add),
            new: !FoldMark::is_same_cut(memory.fold, recall.memory.fold),
        }),
        course: course.map(|course| course.number),
        own_tools: injected.adds_tools(),
        records_left_out,
        raw_after,
        expected: recall.calibration.to_expected_tokens(raw_after),
        answer_cap,
        over_budget: raw_after > fit.high,
        sent: measure_sent(view, measured, cleared.as_ref(), &kept, &results.tokens),
        cleared,
        ..measured.report_untouched(recall)
    };
    Draft {
        plan: Plan {
            edits,
            report,
            memory,
        },
        outline,
    }
}

/// What of the client's own goes out, for who looks. What is cleared is taken off tool results first, of
/// which it mostly is.
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
    let tokens: Vec<u32> = kept
        .iter()
        .zip(tokens)
        .map(|(kept, tokens)| if *kept { *tokens } else { 0 })
        .collect();
    let tools = measured.shares.tools;
    let mut sent =
        budget::measure_shares_with_tools(tools, view.conversation, &view.policy, &tokens);
    let mut freed = cleared.map_or(0, |it| it.tokens);
    for share in [&mut sent.tool_results, &mut sent.images, &mut sent.history] {
        let taken = freed.min(*share);
        *share -= taken;
        freed -= taken;
    }
    sent
}

/// What is cleared of the messages that are kept, with its edits; none where nothing is.
fn collect_cleared(
    view: RequestView<'_>,
    fit: &FoldDecision<'_>,
    kept: &[bool],
    edits: &mut Edits,
) -> Option<Cleared> {
    let clearing = &fit.replay.sweep.as_ref()?.clearing;
    let units = view.units.iter().enumerate();
    let swept = units.filter(|(at, unit)| fit.fold.swept.covers(*at, unit.kind));
    let messages = swept.flat_map(|(_, unit)| unit.messages.clone());
    let messages = messages.filter(|&at| kept[at]);
    let cleared = clearing.collect_edits(messages, &fit.replay.cuts.results, edits);
    (cleared.count() > 0).then_some(cleared)
}

/// With what of it is new since the last request.
fn mark_newly_cleared(
    view: RequestView<'_>,
    cleared: Cleared,
    now: &GuardMemory,
    before: &GuardMemory,
) -> Cleared {
    // What was cleared on another grid was cleared elsewhere.
    let before = match before.ground == now.ground {
        true => before.swept,
        false => SweptMark::default(),
    };
    Cleared {
        new: now
            .swept
            .clears_more_than(before, now.fold.map_or(0, FoldMark::boundary)),
        fresh: before.uncovered(view.units, &cleared.messages),
        ..cleared
    }
}

impl Draft {
    /// Lints the plan; one that would break what was whole is thrown away.
    ///
    /// A rule of the profile's grammar that the conversation broke when it came in does not count:
    /// the provider evidently takes it, or refuses it with us and without us.
    pub(super) fn into_linted_plan(
        self,
        view: RequestView<'_>,
        measured: &MeasuredRequest<'_>,
        recall: &Recall,
    ) -> Plan {
        let Self { plan, outline } = self;
        let theirs = |item: &OutlineItem| matches!(item, OutlineItem::Client(_));
        if plan.report.folded.is_none() && outline.iter().all(theirs) {
            // Truncation changes no message's place, nor do paragraphs and schemas.
            return plan;
        }
        let (conversation, profile) = (view.conversation, view.policy.profile);
        let before: Vec<_> = (0..conversation.items.len())
            .map(OutlineItem::Client)
            .collect();
        let before = lint::find_broken_rules(conversation, &before, profile);
        let broken = lint::find_broken_rules(conversation, &outline, profile).excess_over(before);
        if broken.is_empty() {
            return plan;
        }
        Plan {
            // What was planned did not happen: the next request is replayed from its start.
            memory: GuardMemory {
                alternates: plan.memory.alternates,
                ..GuardMemory::default()
            },
            ..measured.stand_back(StandBackReason::Unsound(broken), recall)
        }
    }
}
