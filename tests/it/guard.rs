//! The guard's invariants, over generated and recorded conversations.

mod stable_cuts;

use crate::support::{
    annotate_randomly, any_settings, data,
    drive::counted_by_characters,
    generate::{ConversationSize, Recipe, Session, Shape, any_conversation},
    guard_properties::{
        CHAT, CHAT_WITH_TOOLS, SMALL_WINDOWS, WINDOWS, any_answer_share, profiles_of, settings,
    },
    made::non_system_indices,
    plans::{apply_plan, index_conversation, make_policy},
    strict,
};
use bytes::Bytes;
use plimsoll::{
    config::{GuardConfig, WhenUnsure},
    conversation::Conversation,
    guard::{
        self, Plan, SessionKnowledge,
        profile::{PROFILES, find_profile},
    },
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_plan_keeps_the_invariants(case in any_conversation(60), window in prop::sample::select(&WINDOWS[..])) {
        let body = case.body();
        for profile in profiles_of(&case) {
            CHAT.check(&body, window, profile);
        }
    }

    #[test]
    fn a_refused_request_is_planned_anew(case in any_conversation(40), window in prop::sample::select(&SMALL_WINDOWS[..])) {
        let body = case.body();
        for profile in profiles_of(&case) {
            CHAT.check_refused(&body, window, profile);
        }
    }

    /// Also where the profile is stricter than the conversation.
    #[test]
    fn a_profile_that_does_not_fit_breaks_nothing_new(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..3]), profile in prop::sample::select(PROFILES)) {
        let profile = find_profile(profile.name).expect("a row of the table");
        CHAT.check(&case.body(), window, profile);
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..4]), profile in any::<prop::sample::Index>()) {
        let profiles = profiles_of(&case);
        CHAT.grow(&case.session, window, profiles[profile.index(profiles.len())]);
    }

    #[test]
    fn every_plan_keeps_the_invariants_with_long_tools(case in any_conversation(60), window in prop::sample::select(&WINDOWS[..3])) {
        for profile in profiles_of(&case) {
            CHAT_WITH_TOOLS.check(&case.body(), window, profile);
        }
    }

    #[test]
    fn tools_get_shorter_once_and_with_any_state(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..3]), profile in any::<prop::sample::Index>()) {
        let profiles = profiles_of(&case);
        CHAT_WITH_TOOLS.grow(&case.session, window, profiles[profile.index(profiles.len())]);
    }

    #[test]
    fn what_does_not_pair_stays_and_the_rest_is_guarded(case in any_conversation(60), window in prop::sample::select(&WINDOWS[..3]), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        CHAT.check_damaged(&case.body(), window, profiles[profile.index(profiles.len())], seed);
    }

    #[test]
    fn every_plan_keeps_the_invariants_for_any_answer_cap(case in any_conversation(60), window in prop::sample::select(&WINDOWS[..]), asked in any_answer_share()) {
        let asked = (f64::from(window) * asked) as u32;
        let body = case.session.asking_for(asked).whole();
        for profile in profiles_of(&case) {
            CHAT.check(&body, window, profile);
            CHAT.fits_beside_its_answer(&body, window, profile);
        }
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts_for_any_answer_cap(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..4]), profile in any::<prop::sample::Index>(), asked in any_answer_share()) {
        let profiles = profiles_of(&case);
        let profile = profiles[profile.index(profiles.len())];
        let asked = (f64::from(window) * asked) as u32;
        CHAT.grow(&case.session.asking_for(asked), window, profile);
    }

    #[test]
    fn every_line_of_defence_keeps_the_invariants(case in any_conversation(60), window in prop::sample::select(&WINDOWS[..4]), seed in any::<u64>()) {
        let body = annotate_randomly(&index_conversation(&case.body()), seed);
        for profile in profiles_of(&case) {
            CHAT.check_with(&body, window, profile, &any_settings(seed));
        }
    }

    #[test]
    fn every_line_of_defence_changes_the_prefix_only_at_cuts(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..4]), profile in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let profiles = profiles_of(&case);
        CHAT.grow_annotated(&case.session, window, profiles[profile.index(profiles.len())], seed);
    }
}
#[test]
fn long_sessions_are_cut_seldom() {
    let mut recipe = Recipe::new(Shape::OneTurn);
    recipe.strict = true;
    let session = Session::new(11, recipe, ConversationSize::Messages(600));
    for profile in ["openai", "template", "gemini"] {
        let cuts = CHAT.grow(&session, 32_768, find_profile(profile).unwrap());
        let requests = session.requests();
        assert!(cuts > 3, "{cuts} cuts in {requests} requests");
        assert!(cuts * 5 < requests, "{cuts} cuts in {requests} requests");
    }
}

#[test]
fn a_changing_system_message_moves_no_cut() {
    let settings = settings();
    let policy = make_policy(find_profile("openai").unwrap(), 8_192, &settings);
    let turns: Vec<_> = (0..60)
        .flat_map(|turn| {
            let question = format!("question {turn}: {}", "why is that so? ".repeat(20));
            let answer = format!("answer {turn}: {}", "because it is. ".repeat(40));
            [("user", question), ("assistant", answer)]
        })
        .chain([("user", "and now?".to_owned())])
        .collect();
    let body = |system: bool| {
        let system = system.then(|| ("system", "Be brief.".to_owned()));
        let messages: Vec<_> = system
            .into_iter()
            .chain(turns.iter().cloned())
            .map(|(role, content)| serde_json::json!({"role": role, "content": content}))
            .collect();
        index_conversation(
            serde_json::json!({ "messages": messages })
                .to_string()
                .as_bytes(),
        )
    };
    let with = guard::plan(&body(true), &policy, &SessionKnowledge::default());
    let folded = with.report.folded.expect("a fold");
    let knowledge = SessionKnowledge {
        memory: with.memory.clone(),
        sent_messages: non_system_indices(&body(true)).len(),
        ..SessionKnowledge::default()
    };
    let without = guard::plan(&body(false), &policy, &knowledge);
    assert_eq!(without.memory, with.memory);
    let now = without.report.folded.expect("a fold");
    assert_eq!((now.messages, now.new), (folded.messages, false));
}

#[test]
fn two_thousand_messages_are_guarded_fast() {
    for shape in [Shape::Agent, Shape::Chat, Shape::Mixed] {
        let session = Session::new(3, Recipe::new(shape), ConversationSize::Messages(2_000));
        for window in [8_192, 128_000] {
            CHAT.check(&session.whole(), window, find_profile("openai").unwrap());
        }
    }
}

#[test]
fn every_recorded_request_is_guarded() {
    for recorded in data::requests().into_iter().chain(data::unusual()) {
        for window in WINDOWS {
            for profile in PROFILES {
                let checked =
                    std::panic::catch_unwind(|| CHAT.check(&recorded.body, window, profile));
                assert!(
                    checked.is_ok(),
                    "{} at {window} for {}",
                    recorded.name,
                    profile.name
                );
            }
        }
    }
}

/// A step of `calls` calls, answered in reverse order.
fn wide_step(calls: usize, result: &str) -> Vec<u8> {
    let asked: Vec<_> = (0..calls)
        .map(|at| format!(r#"{{"id":"c{at}","function":{{"name":"f{at}","arguments":"{{}}"}}}}"#))
        .collect();
    let answers: Vec<_> = (0..calls)
        .rev()
        .map(|at| format!(r#"{{"role":"tool","tool_call_id":"c{at}","content":"{result}"}}"#))
        .collect();
    format!(
        r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{}]}},{}]}}"#,
        asked.join(","),
        answers.join(",")
    )
    .into_bytes()
}

/// Searching all calls of the step for each result would take minutes.
#[test]
fn a_step_of_very_many_calls_is_guarded_fast() {
    let settings = settings();
    let policy = make_policy(find_profile("openai").unwrap(), 32_000, &settings);
    let body = index_conversation(&wide_step(30_000, &"word ".repeat(60)));
    let plan = guard::plan(&body, &policy, &SessionKnowledge::default());
    assert_eq!(plan.report.truncated.len(), 30_000);
    assert_eq!(plan.report.truncated[0].tool, "f29999");
    let knowledge = SessionKnowledge {
        memory: plan.memory.clone(),
        sent_messages: body.items.len(),
        ..SessionKnowledge::default()
    };
    let again = guard::plan(&body, &policy, &knowledge);
    assert_eq!(apply_plan(&body, &again), apply_plan(&body, &plan));
}

#[test]
fn tool_names_in_placeholders_are_bounded() {
    let settings = settings();
    let policy = make_policy(find_profile("openai").unwrap(), 4_096, &settings);
    let name = "n".repeat(1_000_000);
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"{name}","arguments":""}}}}]}},{{"role":"tool","tool_call_id":"a","content":"{}"}}]}}"#,
        "word ".repeat(2_000)
    );
    let plan = guard::plan(
        &index_conversation(body.as_bytes()),
        &policy,
        &SessionKnowledge::default(),
    );
    assert_eq!(plan.report.truncated[0].tool, "n".repeat(64));
}

/// A body with one tool result of this content, guarded once and twice.
fn guard_twice(content: &str, window: u32) -> (Plan, Bytes, Bytes) {
    let settings = settings();
    let policy = make_policy(find_profile("openai").unwrap(), window, &settings);
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"f","arguments":""}}}}]}},{{"role":"tool","tool_call_id":"a","content":{content}}}]}}"#
    );
    let before = index_conversation(body.as_bytes());
    let plan = guard::plan(&before, &policy, &SessionKnowledge::default());
    let first = apply_plan(&before, &plan);
    let after = index_conversation(&first);
    let again = guard::plan(&after, &policy, &SessionKnowledge::default());
    assert_eq!(again.report.raw_before, plan.report.raw_after);
    let second = apply_plan(&after, &again);
    (plan, first, second)
}

#[test]
fn a_result_whose_ends_are_denser_than_its_middle_is_cut_once() {
    for (end, window) in [
        ("中文", 4_096),
        ("中文", 16_384),
        ("😀", 4_096),
        ("é", 2_048),
    ] {
        for middle in [6_000, 20_000, 100_000] {
            let end = end.repeat(2_000);
            let content = format!("\"{end}{}{end}\"", "a".repeat(middle));
            let (plan, first, second) = guard_twice(&content, window);
            assert_eq!(plan.report.truncated.len(), 1);
            assert_eq!(first, second, "{middle} at {window}");
        }
    }
}

#[test]
fn content_beside_a_cut_text_is_still_counted() {
    let other = format!(
        r#"{{"type":"refusal","refusal":"{}"}}"#,
        "no ".repeat(1_000)
    );
    let content = format!(
        r#"[{{"type":"text","text":"{}"}},{other}]"#,
        "word ".repeat(20_000)
    );
    let (plan, first, second) = guard_twice(&content, 16_384);
    assert_eq!(plan.report.truncated.len(), 1);
    assert_eq!(first, second);
}

fn said_by(role: &str, content: &str) -> serde_json::Value {
    serde_json::json!({"role": role, "content": content})
}

fn result_text(messages: &[serde_json::Value]) -> Conversation {
    index_conversation(
        serde_json::json!({ "messages": messages })
            .to_string()
            .as_bytes(),
    )
}

#[test]
fn a_reminder_after_the_newest_question_does_not_displace_it() {
    let settings = settings();
    let policy = make_policy(find_profile("openai").unwrap(), 4_096, &settings);
    let filler = "why is that so? ".repeat(300);
    let mut messages = vec![said_by("user", "the task")];
    for _ in 0..3 {
        messages.push(said_by("assistant", &filler));
        messages.push(said_by("user", "go on"));
    }
    messages.push(said_by("assistant", "done"));
    messages.push(said_by("user", &format!("the newest question {filler}")));
    let reminder = said_by("system", &"be careful ".repeat(400));
    for tail in [
        vec![reminder.clone()],
        vec![said_by("critic", "hm")],
        vec![reminder.clone(), said_by("assistant", "Well,")],
        vec![said_by("assistant", &filler), said_by("assistant", "Well,")],
        vec![
            reminder,
            said_by("assistant", "Well,"),
            said_by("system", "x"),
        ],
    ] {
        let conversation = result_text(&[messages.clone(), tail].concat());
        let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
        assert!(plan.report.folded.is_some());
        let out = apply_plan(&conversation, &plan);
        let out = String::from_utf8_lossy(&out);
        assert!(out.contains("the newest question"), "{out}");
    }
}

#[test]
fn token_counts_saturate() {
    let mut settings = settings();
    settings.chars_per_token = Some(1e-7);
    let policy = make_policy(find_profile("openai").unwrap(), 4_096, &settings);
    let long = "a".repeat(500);
    let mut messages = vec![said_by("system", &long), said_by("user", &long)];
    for _ in 0..20 {
        messages.push(serde_json::json!({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}]}));
        messages.push(serde_json::json!({"role": "tool", "tool_call_id": "a", "content": long}));
        messages.push(said_by("user", &long));
    }
    let plan = guard::plan(
        &result_text(&messages),
        &policy,
        &SessionKnowledge::default(),
    );
    assert_eq!(plan.report.raw_before, u32::MAX);
    assert!(plan.report.folded.is_some());
}
