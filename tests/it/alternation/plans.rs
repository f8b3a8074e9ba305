//! Plans for alternating conversations, for every profile.

use plimsoll::{
    config::GuardConfig,
    guard::{
        self, SessionKnowledge,
        injections::Injections,
        profile::{PROFILES, Profile, find_profile},
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{
    generate::{GeneratedCase, any_conversation},
    made::{make_injected, non_system_indices},
    parse,
    plans::{apply_plan, check_plan_unless_stood_back, index_conversation, make_policy},
};

const WINDOWS: [u32; 4] = [2_048, 8_192, 16_384, 32_768];

fn messages(body: &[u8]) -> Vec<Value> {
    let body = parse::parse_value(body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

/// As a template checks it: results count as the assistant's, and a system message is first.
fn alternates(body: &[u8]) -> bool {
    let messages = messages(body);
    let known = [
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "function",
    ];
    let mut roles = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap());
    let mut last = "assistant";
    roles.all(|role| {
        let speaks = matches!(role, "user" | "assistant");
        let fits = known.contains(&role) && (!speaks || role != last);
        if !matches!(role, "system" | "developer") {
            last = role;
        }
        fits
    })
}

/// The plan of a request, checked for alternation; where the guard stands back, nothing is checked.
fn check_plan(
    body: &[u8],
    window: u32,
    profile: &'static Profile,
    knowledge: &SessionKnowledge,
) -> Option<Vec<u8>> {
    let settings = GuardConfig::default();
    check_plan_unless_stood_back(body, window, profile, knowledge, &settings)?;
    let conversation = index_conversation(body);
    let plan = guard::plan(
        &conversation,
        &make_policy(profile, window, &settings),
        knowledge,
    );
    let after = apply_plan(&conversation, &plan).to_vec();
    let shown = String::from_utf8_lossy(&after);
    assert!(
        alternates(&after),
        "window {window}, {}: {shown}",
        profile.name
    );
    Some(after)
}

fn any_alternating() -> impl Strategy<Value = GeneratedCase> {
    any_conversation(50).prop_filter("it alternates", |case| alternates(&case.body()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn alternating_roles_still_alternate_after_a_cut_for_every_profile(case in any_alternating(), window in prop::sample::select(&WINDOWS[..]), seed in any::<u64>()) {
        let body = case.body();
        let of_ours = make_injected(&index_conversation(&body), seed);
        for profile in PROFILES {
            check_plan(&body, window, profile, &SessionKnowledge::default());
            check_plan(&body, window, profile, &SessionKnowledge { injections: of_ours.clone(), ..SessionKnowledge::default() });
        }
    }

    #[test]
    fn an_alternating_conversation_grows_with_the_same_prefix(case in any_alternating(), window in prop::sample::select(&WINDOWS[..]), profile in prop::sample::select(PROFILES)) {
        let profile = find_profile(profile.name).unwrap();
        let mut knowledge = SessionKnowledge::default();
        let mut last = Vec::new();
        for body in case.session.clone().thinned(3).steps() {
            let Some(out) = check_plan(&body, window, profile, &knowledge) else { return Ok(()) };
            prop_assert_eq!(&Some(out.clone()), &check_plan(&body, window, profile, &SessionKnowledge::default()));
            let conversation = index_conversation(&body);
            let settings = GuardConfig::default();
            let plan = guard::plan(&conversation, &make_policy(profile, window, &settings), &knowledge);
            let report = &plan.report;
            let cut = report.folded.is_some_and(|it| it.new) || report.cleared.as_ref().is_some_and(|it| it.new);
            let now = messages(&out);
            prop_assert!(cut || now.starts_with(&last));
            last = now;
            knowledge.memory = plan.memory;
            knowledge.sent_messages = non_system_indices(&conversation).len();
        }
    }
}

fn message_by(role: &str, nth: usize) -> Value {
    json!({"role": role, "content": format!("{nth}: {}", "a bit of fill text. ".repeat(30))})
}

fn body(messages: &[Value]) -> Vec<u8> {
    json!({ "messages": messages }).to_string().into_bytes()
}

/// `count` exchanges and a question.
fn exchanges(count: usize) -> Vec<Value> {
    let mut messages = vec![
        json!({"role": "system", "content": "s"}),
        message_by("user", 0),
    ];
    for nth in 1..=count {
        messages.extend([message_by("assistant", nth), message_by("user", nth)]);
    }
    messages
}

#[test]
fn two_user_messages_in_a_row_do_not_change_the_sent_prefix() {
    let settings = GuardConfig::default();
    let policy = make_policy(find_profile("openai").unwrap(), 8_192, &settings);
    let mut messages = exchanges(50);
    let conversation = index_conversation(&body(&messages));
    let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
    assert!(plan.report.folded.is_some());
    assert_eq!(plan.memory.alternates, Some(true));
    let before = self::messages(&apply_plan(&conversation, &plan));
    let with = SessionKnowledge {
        memory: plan.memory,
        sent_messages: non_system_indices(&conversation).len(),
        ..SessionKnowledge::default()
    };
    messages.push(message_by("user", 51));
    let body = body(&messages);
    for knowledge in [with, SessionKnowledge::default()] {
        let conversation = index_conversation(&body);
        let plan = guard::plan(&conversation, &policy, &knowledge);
        assert_eq!(plan.memory.alternates, Some(true));
        let after = self::messages(&apply_plan(&conversation, &plan));
        assert_eq!(after[..before.len()], before[..]);
        assert_eq!(after.len(), before.len() + 1);
    }
}

#[test]
fn without_alternating_roles_the_preface_is_a_message() {
    let settings = GuardConfig::default();
    let policy = make_policy(find_profile("openai").unwrap(), 8_192, &settings);
    let mut messages = exchanges(50);
    let double = message_by("user", 99);
    messages.insert(2, double);
    // A greeting first, or an answer in two messages, does not alternate for such a template.
    let greeted = [vec![message_by("assistant", 0)], exchanges(50)].concat();
    let mut halved = exchanges(50);
    halved.insert(3, message_by("assistant", 99));
    for messages in [messages, greeted, halved] {
        let conversation = index_conversation(&body(&messages));
        let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
        assert_eq!(plan.memory.alternates, Some(false));
        let after = self::messages(&apply_plan(&conversation, &plan));
        let note = after.iter().find(|it| {
            it["content"] == guard::NOTE || it["content"].as_str().unwrap().starts_with(guard::NOTE)
        });
        assert_eq!(note.unwrap()["role"], "user");
    }
}

#[test]
fn alternation_is_not_judged_while_nothing_is_edited() {
    let settings = GuardConfig::default();
    let policy = make_policy(find_profile("openai").unwrap(), 200_000, &settings);
    let conversation = index_conversation(&body(&exchanges(5)));
    let knowledge = SessionKnowledge {
        injections: Injections::default(),
        ..SessionKnowledge::default()
    };
    let plan = guard::plan(&conversation, &policy, &knowledge);
    assert_eq!(plan.memory.alternates, None);
}
