//! Clearing old images and other media at once, after a provider refused the media or the bytes of a request.

use crate::{
    conversation::{
        BlockKind, Conversation,
        units::{self, Unit, UnitKind},
    },
    guard::{
        fold::{basis::CutBasis, cut_state::CutState, memory::GuardMemory},
        plan::make_plan::split_guarded_units,
        request::policy::Policy,
    },
};

/// The memory of a session in which the oldest units with media are cleared, their results included. Of the units with
/// media, the newest half is not cleared, but at most `most` units. The newest unit, the user's newest message and what is
/// pinned stay as they are. `None` if no unit is cleared.
pub fn clear_old_media(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &GuardMemory,
    most: usize,
) -> Option<GuardMemory> {
    let units = &split_guarded_units(conversation, policy).ok()?;
    let mut state = find_cut(conversation, policy, memory, units);
    let asked = units.iter().rposition(|unit| unit.kind == UnitKind::User);
    let may_clear = |at: &usize| {
        !units[*at].is_pinned
            && !state.folded[*at]
            && !state.cleared[*at]
            && Some(*at) != asked
            && has_media(conversation, &units[*at])
    };
    let last = units.len().saturating_sub(1);
    let shown: Vec<usize> = (units::find_pinned_end(units)..last)
        .filter(may_clear)
        .collect();
    let oldest = &shown[..shown.len() - most.min(shown.len() / 2)];
    for &at in oldest {
        state.cleared[at] = true;
    }
    (!oldest.is_empty()).then(|| GuardMemory {
        basis: CutBasis::from_policy(policy),
        cut: state.to_mark(conversation, units),
        ..memory.clone()
    })
}

/// Makes the units with media stay, except those that are cut already.
pub(in crate::guard) fn keep_media(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &GuardMemory,
    units: &mut [Unit],
) {
    let state = find_cut(conversation, policy, memory, units);
    for (at, unit) in units.iter_mut().enumerate() {
        let is_cut = state.folded[at] || state.cleared[at];
        unit.is_pinned |= !is_cut && has_media(conversation, unit);
    }
}

/// What the session has cut; nothing where it was cut for another window.
fn find_cut(
    conversation: &Conversation,
    policy: &Policy<'_>,
    memory: &GuardMemory,
    units: &[Unit],
) -> CutState {
    if CutBasis::from_policy(policy) == memory.basis {
        memory.find_cut(conversation, units)
    } else {
        CutState::new(units.len())
    }
}

fn has_media(conversation: &Conversation, unit: &Unit) -> bool {
    let mut items = unit.unbound_messages().map(|at| &conversation.items[at]);
    items.any(|item| {
        let mut blocks = conversation.blocks_of(item).iter();
        blocks.any(|it| matches!(it.kind, BlockKind::Image { .. } | BlockKind::Media))
    })
}
