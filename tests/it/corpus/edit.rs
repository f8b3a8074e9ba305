//! Index, plan and edits of any bytes: JSON stays JSON, what is valid stays valid, and bytes
//! outside the edits stay as they are.

use super::{split, talk::talk};
use crate::support::{
    any_settings,
    made::make_injected,
    plans::{self, assert_untouched, is_clean},
    without_annotations,
};
use bytes::Bytes;
use plimsoll::{
    config::GuardConfig,
    conversation::Conversation,
    format::chat,
    guard::{
        self, Policy, SessionKnowledge, StandBackReason, injections::Injections, profile::PROFILES,
    },
};
use serde::de::IgnoredAny;

const WINDOWS: [u32; 8] = [0, 64, 700, 1_024, 2_048, 4_096, 8_192, 200_000];

/// The first three bytes choose window, profile and settings. The fourth chooses the injections:
/// below 64 the rest is the body, otherwise the rest makes a conversation.
pub(super) fn check(data: &[u8]) {
    let (head, rest) = split(data, 4);
    let made;
    let body = if head[3] < 64 {
        rest
    } else {
        made = talk(rest);
        &made
    };
    let Ok(conversation) = chat::index_body(Bytes::copy_from_slice(body)) else {
        return;
    };
    let seed = u64::from(head[2]) << 8 | u64::from(head[3]);
    let settings = match head[2] {
        0 => GuardConfig::default(),
        _ => any_settings(seed),
    };
    let policy = plans::make_policy(
        &PROFILES[usize::from(head[1]) % PROFILES.len()],
        WINDOWS[usize::from(head[0] % 8)],
        &settings,
    );
    let mine = match head[3] % 2 {
        0 => Injections::default(),
        _ => make_injected(&conversation, seed),
    };
    assert_holds(&conversation, &policy, mine);
}

fn is_json(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = std::str::from_utf8(body);
    text.is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

fn assert_holds(before: &Conversation, policy: &Policy<'_>, ours: Injections) {
    let with_ours = !(ours.records.is_empty() && ours.course.is_none() && ours.summary.is_none());
    let knowledge = SessionKnowledge {
        injections: ours,
        ..SessionKnowledge::default()
    };
    let plan = guard::plan(before, policy, &knowledge);
    let after = plans::apply_plan(before, &plan);
    let _ = plan.report.format_actions();
    if let Some(stood_back) = plan.report.stood_back {
        assert_eq!(after, before.body);
        let ours = matches!(stood_back, StandBackReason::Unsound(_));
        assert!(
            !ours || !is_clean(&before.body, policy.profile),
            "an unsound plan: {stood_back:?}"
        );
        return;
    }
    assert_untouched(before, &after, &plan, policy.profile.name);
    if !is_json(&before.body) {
        return;
    }
    let shown = || String::from_utf8_lossy(&after).into_owned();
    assert!(is_json(&after), "no JSON any more: {}", shown());
    let sound = is_clean(&before.body, policy.profile);
    let mut broken = plans::broken_rules(&before.body, &after, policy.profile);
    // A conversation that already breaks a rule of order may break another one at the same place.
    broken.retain(|it| sound || !(5..=9).contains(&it.rule));
    assert_eq!(broken, [], "{}: {}", policy.profile.name, shown());
    let edited = chat::index_body(after.clone()).expect("a conversation, as it was one");
    // The provider's request has no annotations.
    let after = without_annotations(&edited);
    let shown = || String::from_utf8_lossy(&after).into_owned();
    let edited = chat::index_body(after.clone()).expect("a conversation, as it was one");
    let again = plans::guard_again(&edited, policy, plan.report.budget.reserve);
    if !with_ours && plan.report.raw_after <= plan.report.budget.tokens && sound {
        let twice = plans::apply_plan(&edited, &again);
        assert_eq!(String::from_utf8_lossy(&twice), shown(), "guarded twice");
    }
}
