//! The rows of refusals of thinking.

use super::*;
use crate::format::block_binding::MismatchField;

#[test]
#[rustfmt::skip]
fn a_refusal_of_thinking_is_followed_by_dropping_it_then_by_leaving_it_out() {
    let plain = facts();
    let thinking = |change: fn(&mut ThinkingFacts)| with(|it| change(&mut it.thinking));
    let [stale, unguarded] = [with(|it| it.names_gap = true), with(|it| it.is_guarded = false)];
    let asks = with(|it| it.extras.drop_by = Some(MismatchField::Prefix));
    let off = with(|it| it.extras.thinking_off = true);
    let may_not_ask = thinking(|it| it.may_ask_to_drop = false);
    let none_is_sent = thinking(|it| it.is_sent = false);
    let wanted = thinking(|it| it.refusal_is_wanted = true);
    let closed = thinking(|it| it.is_open = false);
    let other_format = thinking(|it| it.begins_turns = false);
    let asked = &[(BOUND, AskToDrop)];
    let renamed = &[(BOUND, AskToDrop), (NO_NAME, RenameDrop)];
    let left_stale = &[(BOUND, AskToDrop), (BOUND, LeaveGapOut)];
    let left = &[(BOUND, LeaveThinkingOut)];
    check_rows(&[
        ("bound", &[], plain, BOUND, &[AskToDrop]),
        ("bound, asked before", asked, asks, BOUND, &[LeaveThinkingOut]),
        ("bound, known to be asked", &[], asks, BOUND, &[LeaveThinkingOut]),
        ("bound, may not be asked", &[], may_not_ask, BOUND, &[LeaveThinkingOut]),
        ("bound, all left out", left, plain, BOUND, &[]),
        ("bound, the place is named", &[], stale, BOUND, &[AskToDrop]),
        ("bound, the place is named, asked", asked, stale, BOUND, &[LeaveGapOut]),
        ("bound, left out from that place", left_stale, stale, BOUND, &[LeaveThinkingOut]),
        ("bound, the client wants the refusal", &[], wanted, BOUND, &[]),
        ("bound, but none is sent", &[], none_is_sent, BOUND, &[]),
        ("bound, the request may not change", &[], closed, BOUND, &[]),
        ("bound, the guard stands back", &[], unguarded, BOUND, &[AskToDrop]),
        ("bound, the guard stands back, asked", asked, unguarded, BOUND, &[]),
        ("a signature", &[], plain, SIGNATURE, &[LeaveThinkingOut]),
        ("the member, by its name", asked, asks, NO_NAME, &[RenameDrop]),
        ("the member, by both names", renamed, asks, NO_NAME, &[LeaveThinkingOut]),
        ("the member itself", asked, asks, NO_DROP, &[LeaveThinkingOut]),
        ("the member, the place is named", asked, stale, NO_DROP, &[LeaveGapOut]),
        ("the member, all left out", left, plain, NO_DROP, &[]),
        ("the turn", &[], plain, TURN, &[SwitchThinkingOff]),
        ("the turn, thinking is off", &[], off, TURN, &[]),
        ("the turn, in another format", &[], other_format, TURN, &[LeaveThinkingOut]),
        ("an unpaired item", &[], none_is_sent, UNPAIRED, &[LeaveThinkingOut]),
        ("an unpaired item, all left out", left, plain, UNPAIRED, &[]),
    ]);
}
