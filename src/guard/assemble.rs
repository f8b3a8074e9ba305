//! A plan from what was decided: its edits, its report, its memory; and the last look at it.

use super::{
    Memory, Plan, Policy, Recall,
    budget::{self, Shares},
    clear::{Cleared, sweep::SweptMark},
    fit::{Fit, fresh},
    fold::Mark,
    lint::{self, Item},
    preface::Folding,
    priority::{Priorities, Texts},
    putback::Putback,
    report::{Folded, Report, StoodBack},
    results::Results,
    schemas::Schemas,
    units::Unit,
};
use crate::wire::{chat::Conversation, edit::Edits};

/// What of ours the request carries.
pub(super) struct Mine<'a> {
    pub(super) records: Putback<'a>,
    pub(super) schemas: Option<Schemas<'a>>,
}

/// The edits of everything that was decided, with what is told and remembered of it.
pub(super) fn assemble(
    units: &[Unit],
    fit: &Fit<'_>,
    folding: Folding,
    (texts, results, ours): (&Priorities<'_>, &Results<'_>, &Mine<'_>),
    recall: &Recall,
    (conversation, policy): (&Conversation, &Policy<'_>),
    mut report: Report,
) -> (Plan, Vec<Item>) {
    let mut edits = folding.edits;
    let mut kept = vec![false; results.tokens.len()];
    for item in &folding.outline {
        if let Item::Theirs(at) = *item {
            kept[at] = true;
        }
    }
    let fresh = fresh(units, recall.messages);
    // Of a conversation that is seen for the first time, nothing was sent before.
    let sent_before = if recall.messages > 0 { fresh } else { 0 };
    report.texts = texts.made(&kept, sent_before, &mut edits);
    let told = report.texts.digest();
    report.texts.new = told != recall.memory.texts;
    let mark = fit.replay.mark(fit.fold);
    let swept = fit.replay.swept_mark(&fit.fold);
    report.cleared = cleared(units, fit, results, &kept, &mut edits);
    if let Some(cleared) = &mut report.cleared {
        // What was cleared on another grid was cleared elsewhere.
        let same = recall.memory.ground == fit.ground;
        let before = if same {
            recall.memory.swept
        } else {
            SweptMark::default()
        };
        cleared.new = swept.beyond(before, mark.map_or(0, Mark::boundary));
        cleared.fresh = before.uncovered(units, &cleared.messages);
    }
    let clear = report.cleared.as_ref().map_or(&[][..], |it| &it.messages);
    let sent = |at: usize| kept[at] && clear.binary_search(&at).is_err();
    report.truncated = results.made(units, sent, fresh, &mut edits);
    let (outline, left_out) = ours.records.put(&kept, folding.outline, &mut edits);
    report.records_left_out = left_out;
    report.own_tools = ours.schemas.is_some();
    if let Some(schemas) = &ours.schemas {
        schemas.put(&mut edits);
    }
    let course = recall.ours.course.as_ref().filter(|_| folding.prefaced);
    report.course = course.map(|course| course.number);
    report.raw_after = fit.replay.sent(fit.fold);
    report.sent = goes_out(&report, (conversation, policy), &kept, &results.tokens);
    report.over_budget = report.raw_after > fit.high;
    report.expected = recall.calibration.tokens(report.raw_after);
    report.folded = (folding.messages > 0).then(|| Folded {
        messages: folding.messages,
        came: kept.len(),
        kept: kept.iter().filter(|kept| **kept).count(),
        tokens: (0..kept.len())
            .filter(|&at| !kept[at])
            .map(|at| results.tokens[at])
            .fold(0, u32::saturating_add),
        new: !same_cut(mark, recall.memory.fold),
    });
    let memory = Memory {
        ground: fit.ground,
        fold: mark,
        swept,
        tight: results.limits(&kept).chain(texts.memory(&kept)).collect(),
        texts: told,
        ..Memory::default()
    };
    let plan = Plan {
        edits,
        report,
        memory,
    };
    (plan, outline)
}

/// What of the client's own goes out, for who looks. What is cleared is taken off tool results first, of
/// which it mostly is.
fn goes_out(
    report: &Report,
    (conversation, policy): (&Conversation, &Policy<'_>),
    kept: &[bool],
    tokens: &[u32],
) -> Shares {
    let tokens: Vec<u32> = kept
        .iter()
        .zip(tokens)
        .map(|(kept, tokens)| if *kept { *tokens } else { 0 })
        .collect();
    let mut sent = budget::with_tools(report.shares.tools, conversation, policy, &tokens);
    let mut freed = report.cleared.as_ref().map_or(0, |it| it.tokens);
    for share in [&mut sent.tool_results, &mut sent.images, &mut sent.history] {
        let taken = freed.min(*share);
        *share -= taken;
        freed -= taken;
    }
    sent
}

/// What is cleared of the messages that are kept, with its edits; none where nothing is.
fn cleared(
    units: &[Unit],
    fit: &Fit<'_>,
    results: &Results<'_>,
    kept: &[bool],
    edits: &mut Edits,
) -> Option<Cleared> {
    let clearing = fit.clearing.as_ref()?;
    let cleared = clearing.made((units, &fit.fold.swept), kept, results, edits);
    (cleared.count() > 0).then_some(cleared)
}

/// Whether nothing but the counting of its steps tells two cuts apart.
fn same_cut(one: Option<Mark>, other: Option<Mark>) -> bool {
    one.map(Mark::shows) == other.map(Mark::shows)
}

/// Lints a plan; one that would break what was whole is thrown away.
///
/// A rule of the profile's grammar that the conversation broke when it came in does not count:
/// the provider evidently takes it, or refuses it with us and without us.
pub(super) fn checked(
    conversation: &Conversation,
    policy: &Policy<'_>,
    (plan, outline): (Plan, Vec<Item>),
    shares: &Shares,
) -> Plan {
    let theirs = |item: &Item| matches!(item, Item::Theirs(_));
    if plan.report.folded.is_none() && outline.iter().all(theirs) {
        // Truncation changes no message's place, nor do paragraphs and schemas.
        return plan;
    }
    let before: Vec<_> = (0..conversation.messages.len()).map(Item::Theirs).collect();
    let broken = lint::broken(conversation, &outline, policy.profile).beyond(lint::broken(
        conversation,
        &before,
        policy.profile,
    ));
    if broken.is_empty() {
        return plan;
    }
    Plan {
        edits: Edits::default(),
        report: Report {
            stood_back: Some(StoodBack::Unsound(broken)),
            texts: Texts::default(),
            truncated: Vec::new(),
            cleared: None,
            folded: None,
            course: None,
            own_tools: false,
            records_left_out: 0,
            answer_cap: None,
            raw_after: shares.total(),
            sent: *shares,
            ..plan.report
        },
        // What was planned did not happen: the next request is replayed from its start.
        memory: Memory {
            alternates: plan.memory.alternates,
            ..Memory::default()
        },
    }
}
