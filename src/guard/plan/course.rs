//! Where a new course begins, and the messages before its boundary.

use crate::{
    conversation::{
        Conversation,
        units::{self, Unit},
    },
    guard::{
        fold::{memory::GuardMemory, note::PrefaceBase},
        inject::injections::Injections,
        plan::make_plan::split_guarded_units,
        request::{
            budget,
            estimate::{self, TokenScale},
            policy::Policy,
            recall_id::NamedIds,
            view::RequestView,
        },
        shrink::{
            clearing::Clearing,
            message_cuts::{MessageCuts, SessionLimits},
        },
    },
};

/// The part of the budget that the newest steps may take into a new course.
const TAIL_SHARE: u32 = 8;
/// The part of the budget that a preface may take.
const PREFACE_SHARE: u32 = 4;

fn view_with_cuts<'a>(
    conversation: &'a Conversation,
    policy: &Policy<'a>,
    units: &'a [Unit],
    limits: &SessionLimits<'_>,
) -> (RequestView<'a>, MessageCuts<'a>) {
    let view = RequestView {
        conversation,
        units,
        policy: *policy,
        names_ids: NamedIds::NONE,
        scale: TokenScale::default(),
    };
    let tokens = estimate::estimate_messages(conversation, &policy.token_weights());
    (view, MessageCuts::cut_messages(view, tokens, None, limits))
}

/// The boundary of a course that begins with this request, counted without system messages. The newest whole units
/// that fit into an eighth of the budget are kept, and the newest unit always is.
///
/// `None` where the guard stands back.
pub fn find_course_boundary(conversation: &Conversation, policy: &Policy<'_>) -> Option<u32> {
    let units = &split_guarded_units(conversation, policy).ok()?;
    let limits = SessionLimits::default();
    let (view, cuts) = view_with_cuts(conversation, policy, units, &limits);
    let room = budget::compute_request_budget(conversation, policy).tokens / TAIL_SHARE;
    let required = units::find_first_required_unit(units, units.len().checked_sub(1)?);
    let mut first = required;
    let newest = units[first.min(units.len())..].iter();
    let mut kept = newest.fold(0u32, |sum, unit| sum.saturating_add(cuts.weigh_unit(unit)));
    while first > view.count_pinned() {
        kept = kept.saturating_add(cuts.weigh_unit(&units[first - 1]));
        if kept > room {
            break;
        }
        first -= 1;
    }
    // A part of an older turn says little without its question.
    let mut kept_units = units[first..units.len().min(required + 1)].iter();
    if let Some(question) = kept_units.position(Unit::is_user) {
        first += question;
    }
    // An answer does not stay without the reasoning that led to it. The question that the rest answers stays
    // (`units::list_removed_before`).
    while first < required && units[first].follows_reasoning {
        first += 1;
    }
    Some(units::count_messages_before(units, first))
}

/// Raw tokens that a new course from `boundary` on would save: those of the messages before it that still go out, as they are
/// cut, and of the preface without its ledger. 0 where the guard stands back.
pub fn weigh_before(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &GuardMemory,
    injections: &Injections,
    boundary: u32,
) -> u32 {
    let Ok(units) = &split_guarded_units(conversation, policy) else {
        return 0;
    };
    let limits = SessionLimits {
        remembered: &memory.limits,
        leaves_out_texts: true,
        ..SessionLimits::default()
    };
    let (view, cuts) = view_with_cuts(conversation, policy, units, &limits);
    let clearing = Clearing::new(view, &cuts.settled_tokens);
    let cut = memory.find_cut(conversation, units);
    let base = PrefaceBase::new(injections, injections.names_ids);
    let from = base.boundary.map_or(view.count_pinned(), |begun| {
        units::find_boundary_unit(units, begun)
    });
    let removed = units::list_removed_before(units, units::find_boundary_unit(units, boundary));
    let part = (from..units.len()).filter(|&at| removed[at] && !cut.folded[at]);
    let preface = memory.boundary().max(base.boundary);
    let preface = preface.map_or(0, |_| view.token_weights().count_plain_tokens(&base.text));
    let weigh = |at: usize| {
        if cut.cleared[at] {
            clearing.weigh(&units[at], &cuts.messages)
        } else {
            cuts.weigh_unit(&units[at])
        }
    };
    part.fold(preface, |sum, at| sum.saturating_add(weigh(at)))
}

/// Returns a check whether a text fits as the preface of a course: into a quarter of the budget, and into half of what the
/// pinned messages and the tools leave of the budget. So a small window has room for work in addition to the preface.
pub fn preface_fit_check<'a>(
    conversation: &Conversation,
    policy: &Policy<'a>,
) -> impl Fn(&str) -> bool + use<'a> {
    let weights = policy.token_weights();
    let units = &units::split_units(conversation);
    let (_, cuts) = view_with_cuts(conversation, policy, units, &SessionLimits::default());
    let pinned = units.iter().map(|unit| {
        if unit.is_removable() {
            unit.bound_messages()
        } else {
            unit.messages.clone()
        }
    });
    // The guard leaves out annotated texts before a preface is too long.
    let pinned = pinned.map(|messages| cuts.weigh_least(messages));
    let beside = estimate::estimate_outside_messages(conversation, &weights);
    let taken = pinned.fold(beside, u32::saturating_add);
    let budget = budget::compute_request_budget(conversation, policy).tokens;
    let most = (budget / PREFACE_SHARE).min(budget.saturating_sub(taken) / 2);
    move |text| weights.count_plain_tokens(text) <= most
}

/// The messages that a course with this boundary leaves out, in order.
pub fn list_removed_messages(conversation: &Conversation, boundary: u32) -> Vec<usize> {
    let units = units::split_units(conversation);
    let begun = units::find_boundary_unit(&units, boundary);
    let removed = units::list_removed_before(&units, begun);
    let removed = units.iter().zip(removed).filter(|(_, removed)| *removed);
    removed
        .flat_map(|(unit, _)| unit.unbound_messages())
        .collect()
}
