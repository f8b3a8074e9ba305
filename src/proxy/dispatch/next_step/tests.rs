//! The tables row by row. A failure names its row.

mod candidates;
mod thinking;

use super::*;
use crate::provider::{overflow::Overflow, summary_refusal::SummaryRefusal};

const BOUND: Refusal = Refusal::Thinking(ThinkingRefusal::Conversation { names: None });
const SIGNATURE: Refusal = Refusal::Thinking(ThinkingRefusal::Signature);
const TURN: Refusal = Refusal::Thinking(ThinkingRefusal::Turn);
const UNPAIRED: Refusal = Refusal::Thinking(ThinkingRefusal::Unpaired);
const MISSING: Refusal = Refusal::Thinking(ThinkingRefusal::Missing);
const BYTES: Refusal = Refusal::OverSize(SizeRefusal::Bytes);
const IMAGES: Refusal = Refusal::OverSize(SizeRefusal::Images);
const SUMMARY: Refusal = Refusal::Summary(SummaryRefusal::Unknown);

/// The provider does not take the member that drops thinking, or perhaps only its name.
const NO_DROP: Refusal = to_drop(true, false);
const NO_NAME: Refusal = to_drop(true, true);

const fn to_drop(named: bool, by_name: bool) -> Refusal {
    Refusal::ToDrop { named, by_name }
}

fn too_long() -> Refusal {
    Refusal::OverWindow {
        overflow: Overflow::default(),
        classic: false,
        by_one_host: false,
    }
}

fn one_request() -> Refusal {
    Refusal::OverMinuteLimit(Overflow::default())
}

fn unknown(size: Option<SizeRefusal>) -> Refusal {
    let wording = "odd words".to_owned();
    Refusal::Unknown { wording, size }
}

/// A guarded request with thinking of earlier answers, to a provider that may be asked to drop it.
fn facts() -> RemedyFacts {
    RemedyFacts {
        extras: Extras::default(),
        has_additions: false,
        is_guarded: true,
        names_gap: false,
        thinking: ThinkingFacts {
            is_open: true,
            begins_turns: true,
            is_sent: true,
            refusal_is_wanted: false,
            may_ask_to_drop: true,
        },
    }
}

fn with(change: impl FnOnce(&mut RemedyFacts)) -> RemedyFacts {
    let mut facts = facts();
    change(&mut facts);
    facts
}

/// The past of an attempt: refusals, each with the remedy that followed.
fn past(refusals: &[(Refusal, Remedy)]) -> PastRefusals {
    let mut past = PastRefusals::default();
    for (refusal, remedy) in refusals {
        past.note(refusal.clone(), Some(*remedy));
    }
    past
}

/// A name, what was refused before and how the request was changed, the request, the new refusal, and what is tried now.
type Row<'a> = (
    &'a str,
    &'a [(Refusal, Remedy)],
    RemedyFacts,
    Refusal,
    &'a [Remedy],
);

#[track_caller]
fn check_rows(rows: &[Row<'_>]) {
    for (name, before, facts, refusal, expected) in rows {
        let past = past(before);
        let refusal = past.reinterpret(refusal.clone());
        assert_eq!(list_remedies(&past, &refusal, facts), *expected, "{name}");
    }
}

#[test]
#[rustfmt::skip]
fn what_the_proxy_added_is_left_out() {
    let (plain, has_additions) = (facts(), with(|it| it.has_additions = true));
    let filled = with(|it| it.extras.filling = AnswerFilling::All);
    let without = &WITHOUT_ADDITIONS[..];
    let restore = &[RestoreMembers, MovePrompt, LeaveRoundsOut, LeaveAdditionsOut];
    let members = &[(Refusal::Filling, LeaveMembersOut)];
    let markers = &[(Refusal::Markers, LeaveMarkersOut)];
    let both = &[members[0].clone(), (Refusal::Additions, LeaveAdditionsOut)];
    let then_halved = &[both[0].clone(), both[1].clone(), (unknown(None), HalveTexts)];
    let restored = &[members[0].clone(), (Refusal::MembersDemanded, MovePrompt)];
    check_rows(&[
        ("usage", &[], plain, Refusal::Usage, &[LeaveUsageOut]),
        ("beta of the window", &[], plain, Refusal::WindowBeta, &[LeaveWindowBetaOut]),
        ("summary", &[], plain, SUMMARY, &[ReplaceSummary]),
        ("markers", &[], plain, Refusal::Markers, &[LeaveMarkersOut]),
        ("members", &[], plain, Refusal::Filling, &[LeaveMembersOut]),
        ("additions", &[], has_additions, Refusal::Additions, without),
        ("additions, after markers", markers, has_additions, Refusal::Additions, without),
        ("members are missing", &[], plain, MISSING, &[FillAnswers]),
        ("members are missing that were added", &[], filled, MISSING, &[]),
        ("members are missing that were refused", members, has_additions, MISSING, restore),
        ("the same without additions", members, plain, MISSING, &[RestoreMembers]),
        ("the same after additions", both, plain, MISSING, &[FillAnswers]),
        ("the same after halved texts", then_halved, has_additions, MISSING, restore),
        ("the same twice", restored, has_additions, MISSING, &[FillAnswers]),
    ]);
}

#[test]
#[rustfmt::skip]
fn a_refusal_for_length_is_followed_by_a_smaller_request() {
    let plain = facts();
    let refit = &[(too_long(), Refit)];
    let halved = &[(unknown(None), HalveTexts)];
    let guessed = &[(Refusal::WithoutReason, RefitByGuess)];
    let fitted = &[(one_request(), FitToRequestLimit)];
    check_rows(&[
        ("too long", &[], plain, too_long(), &[ConfirmLength, Refit]),
        ("too long again", refit, plain, too_long(), &[ConfirmLength, Refit]),
        ("too long, after halved texts", halved, plain, too_long(), &[ConfirmLength, Refit]),
        ("no words", &[], plain, Refusal::WithoutReason, &[RefitByGuess]),
        ("no words again", guessed, plain, Refusal::WithoutReason, &[RefitByGuess]),
        ("a limit a minute", &[], plain, one_request(), &[FitToRequestLimit]),
        ("a limit a minute again", fitted, plain, one_request(), &[]),
        ("unknown words", &[], plain, unknown(None), &[HalveTexts]),
        ("unknown words again", halved, plain, unknown(None), &[]),
        ("unknown words, after an overflow", refit, plain, unknown(None), &[HalveTexts]),
    ]);
}

#[test]
#[rustfmt::skip]
fn a_refusal_for_size_is_followed_by_fewer_images_then_by_half() {
    let (plain, unknown_bytes) = (facts(), || unknown(Some(SizeRefusal::Bytes)));
    let few = &[(BYTES, KeepFewImages)];
    let none = &[(BYTES, KeepNoImages)];
    let half = [const { (BYTES, HalvePrompt) }; 3];
    let halved_texts = &[(unknown_bytes(), HalveTexts)];
    let by_bytes = [RestoreTexts, KeepFewImages, KeepNoImages, HalvePrompt];
    let all = [&[HalveTexts], &by_bytes[..]].concat();
    check_rows(&[
        ("bytes", &[], plain, BYTES, &LESS_SIZE),
        ("images", &[], plain, IMAGES, &LESS_SIZE),
        ("after few images", few, plain, IMAGES, &[KeepNoImages, HalvePrompt]),
        ("after no images", none, plain, IMAGES, &[HalvePrompt]),
        ("images, after a half", &half[..1], plain, IMAGES, &[]),
        ("bytes, after a half", &half[..1], plain, BYTES, &[HalvePrompt]),
        ("bytes, after two halves", &half[..2], plain, BYTES, &[HalvePrompt]),
        ("bytes, after three halves", &half, plain, BYTES, &[]),
        ("a 413 in unknown words", &[], plain, unknown_bytes(), &all),
        ("the same after halved texts", halved_texts, plain, unknown_bytes(), &by_bytes),
    ]);
}

#[test]
#[rustfmt::skip]
fn a_lesson_needs_the_remedy_that_made_it_the_newest_reason() {
    let members = [(Refusal::Filling, LeaveMembersOut)];
    let demanded = [(MISSING, FillAnswers)];
    let additions = [(Refusal::Additions, LeaveAdditionsOut)];
    let prompt = [(Refusal::Additions, MovePrompt)];
    let halved = [(unknown(None), HalveTexts)];
    let both = [&members[..], &additions].concat();
    for (name, before, blames_members, blames_additions) in [
        ("nothing", vec![], false, false),
        ("members", members.to_vec(), true, false),
        ("members, then demanded", [&members[..], &demanded].concat(), false, false),
        ("additions", additions.to_vec(), false, true),
        ("the prompt alone", prompt.to_vec(), false, false),
        ("both, then halved texts", [&both[..], &halved].concat(), false, false),
        ("halved texts, then both", [&halved[..], &both].concat(), true, true),
    ] {
        let past = past(&before);
        let found = (past.blames_members(), past.blames_additions());
        assert_eq!(found, (blames_members, blames_additions), "{name}");
    }
}

#[test]
fn a_refusal_of_the_member_is_told_from_one_of_its_name() {
    let renamed = past(&[(BOUND, AskToDrop), (NO_NAME, RenameDrop)]);
    assert!(renamed.tries_drop() && !renamed.drop_was_refused());
    let mut refused = past(&[(BOUND, AskToDrop), (NO_DROP, LeaveThinkingOut)]);
    assert!(!refused.tries_drop() && refused.drop_was_refused());
    assert_eq!(
        refused.first_of_thinking(),
        Some(ThinkingRefusal::Conversation { names: None })
    );
    assert!(!refused.gave_up_on_thinking());
    refused.note(SIGNATURE, None);
    assert!(refused.gave_up_on_thinking());
    assert!(!past(&[(to_drop(false, false), LeaveThinkingOut)]).drop_was_refused());
}
