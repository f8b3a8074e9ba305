//! Properties of every plan of the guard with any injections, for the tests, the fuzz targets and
//! the run over a million conversations.

use super::{parse, settings_once_applied, strict, without_annotations};
use bytes::Bytes;
use plimsoll::{
    config::{GuardConfig, tokens::find_token_rule},
    conversation::Conversation,
    format::chat::index_body,
    guard::{
        self, Plan, Policy, SessionKnowledge, StandBackReason, injections::InjectionContent, lint,
        profile::Profile,
    },
};

pub(crate) fn index_conversation(body: &[u8]) -> Conversation {
    index_body(Bytes::copy_from_slice(body)).expect("a conversation")
}

pub(crate) fn make_policy<'a>(
    profile: &'a Profile,
    window: u32,
    settings: &'a GuardConfig,
) -> Policy<'a> {
    Policy::new(profile, window, find_token_rule("", profile), settings)
}

/// The body that the guard would send.
pub(crate) fn apply_plan(conversation: &Conversation, plan: &Plan) -> Bytes {
    plan.edits.apply(&conversation.body).to_bytes()
}

/// Whether the conversation is valid for the profile.
pub(crate) fn is_clean(body: &[u8], profile: &Profile) -> bool {
    let conversation = index_conversation(body);
    let items: Vec<_> = (0..conversation.items.len())
        .map(guard::OutlineItem::Client)
        .collect();
    lint::find_broken_rules(&conversation, &items, profile).is_empty()
        && strict::find_violations(body, profile).is_empty()
}

/// Rules that the edits broke; rule 13 is left out, since the proxy adds tools.
pub(crate) fn broken_rules(
    before: &[u8],
    after: &[u8],
    profile: &Profile,
) -> Vec<strict::Violation> {
    let mut broken = strict::find_broken_rules(before, after, profile);
    broken.retain(|violation| violation.rule != 13);
    broken
}

/// As [`check_plan`]; `None` where the guard stood back.
pub(crate) fn check_plan_unless_stood_back(
    body: &[u8],
    window: u32,
    profile: &Profile,
    knowledge: &SessionKnowledge,
    settings: &GuardConfig,
) -> Option<Plan> {
    let plan = check_plan(body, window, profile, knowledge, settings);
    plan.report.stood_back.is_none().then_some(plan)
}

/// Makes a plan and checks every property of a plan with injections.
pub(crate) fn check_plan(
    body: &[u8],
    window: u32,
    profile: &Profile,
    knowledge: &SessionKnowledge,
    settings: &GuardConfig,
) -> Plan {
    let policy = make_policy(profile, window, settings);
    let before = index_conversation(body);
    let plan = guard::plan(&before, &policy, knowledge);
    let context = format!("window {window}, profile {}", profile.name);
    let after = apply_plan(&before, &plan);
    match plan.report.stood_back {
        None => {}
        Some(StandBackReason::Unsound(found)) => {
            assert!(
                !is_clean(body, profile),
                "{context}: unsound plan {found:?}"
            );
            assert_eq!(after, before.body, "{context}");
            return plan;
        }
        Some(_) => {
            assert_eq!(after, before.body, "{context}");
            return plan;
        }
    }
    let shown = || String::from_utf8_lossy(&after).into_owned();
    assert_eq!(
        broken_rules(body, &after, profile),
        [],
        "{context}: {}",
        shown()
    );
    assert_untouched(&before, &after, &plan, &context);
    assert_added_once(&before, &after, &plan, knowledge, &context);
    // The provider's request has no annotations.
    let after = without_annotations(&index_conversation(&after));
    let shown = || String::from_utf8_lossy(&after).into_owned();
    let again = guard_again(
        &index_conversation(&after),
        &policy,
        plan.report.budget.reserve,
    );
    // A paragraph has no frame, and the tokens of spoken text are rounded.
    let slack = 20 + 4 * knowledge.injections.records.len() as u32;
    let (now, said) = (again.report.raw_before, plan.report.raw_after);
    // A generated record may claim more characters in a round than there are, so the estimate of
    // the plan may be off by as much.
    let most = policy.token_weights().max_char_weight();
    let claimed = knowledge
        .injections
        .records
        .iter()
        .map(|record| match record.what {
            InjectionContent::Spoken { chars, .. } => (f64::from(chars) * most).ceil() as u32,
            _ => 0,
        });
    assert!(
        now.abs_diff(said) <= 2 * slack + claimed.sum::<u32>(),
        "{context}: {now} sent, {said} planned"
    );
    // Nor may the two be on different sides of the mark past which old rounds are cleared.
    let mark = f64::from(plan.report.budget.tokens) * settings.clear.at.unwrap_or(1.0);
    let apart = f64::from(said.min(now)) <= mark && f64::from(said.max(now) + slack) > mark;
    // What was injected counts as turns and steps, so other results may be old ones past that mark.
    let cleared = settings.clear.enabled && f64::from(said.max(now) + slack) > mark;
    let carried = cleared && !knowledge.injections.records.is_empty();
    if said.max(now) + slack <= plan.report.budget.tokens && !apart && !carried {
        let second = apply_plan(&index_conversation(&after), &again);
        assert_eq!(
            String::from_utf8_lossy(&second),
            shown(),
            "{context}: guarded twice"
        );
    }
    plan
}

/// The plan of a guard behind the guard, whose plan had this reserve. What the first said in a message of the model
/// counts as an answer for the second, which may expect longer ones then; but not here.
pub(crate) fn guard_again(sent: &Conversation, policy: &Policy<'_>, reserve: u32) -> Plan {
    let mut settings = settings_once_applied(policy.settings);
    let plan = |settings: &GuardConfig| {
        let policy = Policy {
            settings,
            ..*policy
        };
        guard::plan(sent, &policy, &SessionKnowledge::default())
    };
    let again = plan(&settings);
    if again.report.budget.reserve == reserve {
        return again;
    }
    settings.reserve_tokens = Some(reserve);
    settings.clear.at = None;
    plan(&settings)
}

/// Only edited spans differ.
pub(crate) fn assert_untouched(before: &Conversation, after: &[u8], plan: &Plan, context: &str) {
    let mut at = 0;
    let mut rebuilt = 0;
    for edit in &plan.edits.ordered_edits(&before.body) {
        let kept = &before.body[at..edit.span.start as usize];
        assert_eq!(&after[rebuilt..rebuilt + kept.len()], kept, "{context}");
        rebuilt += kept.len() + edit.with.len();
        at = edit.span.end as usize;
    }
    assert_eq!(&after[rebuilt..], &before.body[at..], "{context}");
}

/// Every addition is there once: one preface, and the tools at the end of the client's.
fn assert_added_once(
    before: &Conversation,
    after: &[u8],
    plan: &Plan,
    knowledge: &SessionKnowledge,
    context: &str,
) {
    let body = String::from_utf8_lossy(after);
    let notes = body.matches(guard::NOTE).count();
    let prefaces = body.matches("[Course 2, by").count();
    let theirs = String::from_utf8_lossy(&before.body)
        .matches(guard::NOTE)
        .count();
    if knowledge.injections.course.is_some() {
        assert_eq!(notes, theirs, "{context}: two prefaces");
        assert_eq!(
            prefaces,
            usize::from(plan.report.course.is_some()),
            "{context}"
        );
    } else {
        assert!(notes <= theirs + usize::from(plan.report.folded.is_some()));
    }
    if let Some(own) = &knowledge.injections.tools {
        assert!(!plan.report.tools.is_empty());
        let (was, now) = (
            parse::parse_value(&before.body).unwrap(),
            parse::parse_value(after).unwrap(),
        );
        let was = was[own.field].as_array().unwrap();
        let now = now[own.field].as_array().unwrap();
        let added =
            strict::strip_client_tools(was, now).expect("the client's tools, perhaps shorter");
        assert_eq!(added.len(), 1, "{context}");
    }
}
