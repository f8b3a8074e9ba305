//! Where a new course begins, and what lies before a boundary.

use super::{
    GuardMemory, Policy, budget,
    clear::{Clearing, sweep::Swept},
    cuts::Cuts,
    estimate,
    injections::Injections,
    preface::PrefaceBase,
    split_guarded_units,
    view::RequestView,
};
use crate::conversation::{Conversation, units};

/// The part of the budget that the newest steps may take with them into a new course.
const TAIL_SHARE: u32 = 8;
/// The part of the budget that a preface may take.
const PREFACE_SHARE: u32 = 4;

/// The boundary of a course that begins with this request, in messages without system ones: as
/// many of the newest whole units are kept as fit into an eighth of the budget, in raw tokens,
/// and always the newest one.
///
/// `None` where the guard does nothing to this conversation.
pub fn find_course_boundary(conversation: &Conversation, policy: &Policy<'_>) -> Option<u32> {
    let units = &split_guarded_units(conversation, policy).ok()?;
    let view = RequestView {
        conversation,
        units,
        policy: *policy,
    };
    let cuts = Cuts::from_first_line(
        view,
        estimate::estimate_messages(conversation, policy),
        None,
    );
    let room = budget::compute_request_budget(conversation, policy).tokens / TAIL_SHARE;
    let newest = units::find_first_required_unit(units, units.len().checked_sub(1)?);
    let mut kept = units[newest.min(units.len())..]
        .iter()
        .fold(0u32, |sum, unit| sum.saturating_add(cuts.weigh_unit(unit)));
    let mut first = newest;
    while first > view.count_pinned() {
        kept = kept.saturating_add(cuts.weigh_unit(&units[first - 1]));
        if kept > room {
            break;
        }
        first -= 1;
    }
    Some(units::count_messages_before(units, first))
}

/// Raw tokens of what still goes out between the pinned start and a boundary: the messages beyond
/// what is folded, as they are cut, and what stands in the place of the folded ones, but for its
/// ledger. 0 where the guard does nothing to this conversation.
pub fn weigh_before(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &GuardMemory,
    ours: &Injections,
    boundary: u32,
) -> u32 {
    let Ok(units) = &split_guarded_units(conversation, policy) else {
        return 0;
    };
    let view = RequestView {
        conversation,
        units,
        policy: *policy,
    };
    let mut cuts = Cuts::from_first_line(
        view,
        estimate::estimate_messages(conversation, policy),
        None,
    );
    let clearing = Clearing::new(view, &cuts.first_line_tokens);
    cuts.results.apply_remembered(&memory.tight);
    cuts.recall_texts(memory);
    let swept = Swept {
        rounds: units::find_boundary_unit(units, memory.swept.rounds),
        media: units::find_boundary_unit(units, memory.swept.media),
    };
    let base = PrefaceBase::from_injections(ours);
    let folded = memory.boundary().max(base.boundary);
    let from = folded.map_or(view.count_pinned(), |folded| {
        units::find_boundary_unit(units, folded)
    });
    let part = (from..units::find_boundary_unit(units, boundary)).filter(|&at| !units[at].stays);
    let preface = folded.map_or(0, |_| view.token_weights().count_plain_tokens(&base.text));
    let weigh = |at: usize| match swept.covers(at, units[at].kind) {
        true => clearing.weigh(&units[at], &cuts.results),
        false => cuts.weigh_unit(&units[at]),
    };
    part.fold(preface, |sum, at| sum.saturating_add(weigh(at)))
}

/// What a course's preface may be: in raw tokens a quarter of the budget, and half of what the pinned
/// messages and the tools leave of it, so that in a small window there is room for work beside it.
pub fn preface_fit_check<'a>(
    conversation: &Conversation,
    policy: &Policy<'a>,
) -> impl Fn(&str) -> bool + use<'a> {
    let weights = policy.token_weights();
    let units = &units::split_units(conversation).unwrap_or_default();
    let view = RequestView {
        conversation,
        units,
        policy: *policy,
    };
    let cuts = Cuts::from_first_line(
        view,
        estimate::estimate_messages(conversation, policy),
        None,
    );
    let pinned = units.iter().filter(|unit| unit.stays);
    // Annotated texts go before a preface is too long.
    let pinned = pinned.map(|unit| cuts.weigh_unit_least(unit));
    let beside = estimate::estimate_beside_messages(conversation, &weights);
    let taken = pinned.fold(beside, u32::saturating_add);
    let budget = budget::compute_request_budget(conversation, policy).tokens;
    let most = (budget / PREFACE_SHARE).min(budget.saturating_sub(taken) / 2);
    move |text| weights.count_plain_tokens(text) <= most
}

/// The messages that a course with this boundary leaves out, in order; none where the conversation
/// is invalid.
pub fn list_removed_messages(conversation: &Conversation, boundary: u32) -> Vec<usize> {
    let Ok(units) = units::split_units(conversation) else {
        return Vec::new();
    };
    let gone = units::find_pinned_end(&units)..units::find_boundary_unit(&units, boundary);
    units[gone]
        .iter()
        .filter(|unit| !unit.stays)
        .flat_map(|unit| unit.messages.clone())
        .collect()
}
