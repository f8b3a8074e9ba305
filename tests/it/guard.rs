//! The guard's invariants, over generated and recorded conversations.

use crate::support::{
    annotate_randomly, any_settings, data,
    drive::counted_by_characters,
    generate::{ConversationSize, Recipe, Session, Shape, any_conversation},
    guard_properties::{CHAT, WINDOWS, any_answer_share, profiles_of, settings},
    made::non_system_indices,
    plans::{apply_plan, index_conversation, make_policy},
    strict,
};
use bytes::Bytes;
use plimsoll::{
    config::{GuardConfig, WhenUnsure},
    conversation::Conversation,
    guard::{
        self, Plan, Recall,
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

    /// Also where the profile is stricter than the conversation.
    #[test]
    fn a_profile_that_does_not_fit_breaks_nothing_new(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..3]), profile in prop::sample::select(PROFILES)) {
        let profile = find_profile(profile.name).expect("a row of the table");
        CHAT.check(&case.body(), window, profile);
    }

    #[test]
    fn growing_changes_the_prefix_only_at_cuts(case in any_conversation(40), window in prop::sample::select(&WINDOWS[..4]), profile in any::<prop::sample::Index>()) {
        let profiles = profiles_of(&case);
        CHAT.grow(&case.session, window, profiles[profile.index(profiles.len())], &settings(), None);
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
        CHAT.grow(&case.session.asking_for(asked), window, profile, &settings(), None);
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
        CHAT.grow(&case.session, window, profiles[profile.index(profiles.len())], &any_settings(seed), Some(seed));
    }
}
#[test]
fn long_sessions_are_cut_seldom() {
    let mut recipe = Recipe::new(Shape::OneTurn);
    recipe.strict = true;
    let session = Session::new(11, recipe, ConversationSize::Messages(600));
    for profile in ["openai", "template", "gemini"] {
        let (cuts, requests) = CHAT.grow(
            &session,
            32_768,
            find_profile(profile).unwrap(),
            &settings(),
            None,
        );
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
    let with = guard::plan(&body(true), &policy, &Recall::default());
    let folded = with.report.folded.expect("a fold");
    let recall = Recall {
        memory: with.memory.clone(),
        messages: non_system_indices(&body(true)).len(),
        ..Recall::default()
    };
    let without = guard::plan(&body(false), &policy, &recall);
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
    let plan = guard::plan(&body, &policy, &Recall::default());
    assert_eq!(plan.report.truncated.len(), 30_000);
    assert_eq!(plan.report.truncated[0].tool, "f29999");
    let recall = Recall {
        memory: plan.memory.clone(),
        messages: body.items.len(),
        ..Recall::default()
    };
    let again = guard::plan(&body, &policy, &recall);
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
        &Recall::default(),
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
    let plan = guard::plan(&before, &policy, &Recall::default());
    let first = apply_plan(&before, &plan);
    let after = index_conversation(&first);
    let again = guard::plan(&after, &policy, &Recall::default());
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
        let plan = guard::plan(&conversation, &policy, &Recall::default());
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
    let plan = guard::plan(&result_text(&messages), &policy, &Recall::default());
    assert_eq!(plan.report.raw_before, u32::MAX);
    assert!(plan.report.folded.is_some());
}

fn long_chat() -> Conversation {
    let turn = |at: usize| {
        [
            said_by("user", &format!("question {at}: {}", "why? ".repeat(60))),
            said_by(
                "assistant",
                &format!("answer {at}: {}", "so it is. ".repeat(80)),
            ),
        ]
    };
    let mut messages: Vec<_> = (0..60).flat_map(turn).collect();
    messages.push(said_by("user", "and now?"));
    result_text(&messages)
}

#[test]
fn a_recorded_cut_stays_where_calibration_would_move_it() {
    let settings = settings();
    let policy = make_policy(find_profile("openai").unwrap(), 16_384, &settings);
    let conversation = long_chat();
    let strict = Recall {
        calibration: guard::estimate::Calibration::from_ratio(2.0),
        ..Recall::default()
    };
    let cut = guard::plan(&conversation, &policy, &strict);
    let fresh = guard::plan(&conversation, &policy, &Recall::default());
    assert_ne!(cut.memory, fresh.memory);
    let recall = Recall {
        memory: cut.memory.clone(),
        messages: non_system_indices(&conversation).len(),
        ..Recall::default()
    };
    let later = guard::plan(&conversation, &policy, &recall);
    assert_eq!(later.memory, cut.memory);
    assert_eq!(
        apply_plan(&conversation, &later),
        apply_plan(&conversation, &cut)
    );
}

#[test]
fn a_cut_for_a_small_window_is_undone_in_a_large_one() {
    let settings = settings();
    let profile = find_profile("openai").unwrap();
    let conversation = long_chat();
    let small = make_policy(profile, 8_192, &settings);
    let cut = guard::plan(&conversation, &small, &Recall::default());
    assert!(cut.report.folded.is_some());
    let recall = Recall {
        memory: cut.memory,
        messages: non_system_indices(&conversation).len(),
        ..Recall::default()
    };
    let large = make_policy(profile, 128_000, &settings);
    let plan = guard::plan(&conversation, &large, &recall);
    assert!(plan.edits.is_empty() && plan.memory.boundary().is_none());
}

fn talk(messages: &[serde_json::Value]) -> Conversation {
    index_conversation(
        serde_json::json!({ "messages": messages })
            .to_string()
            .as_bytes(),
    )
}

fn worked_steps(steps: usize) -> Vec<serde_json::Value> {
    let mut messages = vec![serde_json::json!({"role": "system", "content": "Work."})];
    for step in 0..steps {
        let call = serde_json::json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        messages.push(serde_json::json!({"role": "assistant", "tool_calls": [call]}));
        let content = format!("{step}: {}", "what came out of it. ".repeat(20));
        messages.push(serde_json::json!({"role": "tool", "tool_call_id": "a", "content": content}));
    }
    messages
}

#[test]
fn a_late_question_keeps_the_fold() {
    let settings = counted_by_characters();
    for profile in ["openai", "anthropic"] {
        let policy = make_policy(find_profile(profile).unwrap(), 8_192, &settings);
        let mut messages = worked_steps(100);
        let before = guard::plan(&talk(&messages), &policy, &Recall::default());
        let folded = before.report.folded.expect("a fold").messages;
        messages.push(serde_json::json!({"role": "user", "content": "And?"}));
        let conversation = talk(&messages);
        let after = guard::plan(&conversation, &policy, &Recall::default());
        let now = after.report.folded.expect("a fold");
        assert!(now.messages >= folded, "{now:?}");
        // The question stays, also once it is before the cut.
        messages.extend(worked_steps(60).split_off(1));
        let conversation = talk(&messages);
        let last = guard::plan(&conversation, &policy, &Recall::default());
        assert!(last.report.folded.expect("a fold").messages > folded + 60);
        let out = apply_plan(&conversation, &last);
        assert!(String::from_utf8_lossy(&out).contains("And?"));
        assert_eq!(
            strict::find_broken_rules(&conversation.body, &out, policy.profile),
            []
        );
    }
}

#[test]
fn a_size_at_a_rounding_boundary_moves_no_cut() {
    let settings = counted_by_characters();
    let policy = make_policy(find_profile("openai").unwrap(), 8_192, &settings);
    // The fixed part crosses a sixteenth of the window in both directions.
    let body = |system: usize| {
        let mut messages = worked_steps(240);
        messages[0] = serde_json::json!({"role": "system", "content": "x".repeat(system)});
        messages.insert(1, serde_json::json!({"role": "user", "content": "Go."}));
        talk(&messages)
    };
    let first = guard::plan(&body(1_450), &policy, &Recall::default());
    let recall = |memory| Recall {
        memory,
        messages: non_system_indices(&body(0)).len(),
        ..Recall::default()
    };
    let second = guard::plan(&body(1_560), &policy, &recall(first.memory.clone()));
    let third = guard::plan(&body(1_450), &policy, &recall(second.memory.clone()));
    assert_eq!(first.memory, second.memory);
    assert_eq!(first.memory, third.memory);
    assert!(!second.report.folded.expect("a fold").new);
    // Without state the grid differs, so the test is not vacuous.
    let alone = guard::plan(&body(1_560), &policy, &Recall::default());
    assert_ne!(alone.memory, first.memory);
}

#[test]
fn a_request_beyond_its_budget_by_the_error_of_the_estimate_is_sent_where_that_is_free() {
    let conversation = talk(&worked_steps(200));
    let tokens_for = |profile| {
        let plan = plan_first(&conversation, profile, 200_000, &GuardConfig::default());
        plan.report.raw_before
    };
    let wish = |when_unsure| GuardConfig {
        when_unsure,
        ..GuardConfig::default()
    };
    let defaults = GuardConfig::default();
    let (send, cut) = (wish(Some(WhenUnsure::Send)), wish(Some(WhenUnsure::Cut)));
    for (profile, settings, is_sent) in [
        ("openai", &defaults, true),
        ("openai", &cut, false),
        ("template", &defaults, false),
        ("template", &send, true),
        // It would drop the beginning without an error.
        ("ollama", &send, false),
    ] {
        let window = tokens_for(profile) * 97 / 100 + 1_024;
        let plan = plan_first(&conversation, profile, window, settings);
        assert_eq!(plan.edits.is_empty(), is_sent, "{profile}");
        let recall = Recall {
            was_refused: true,
            ..Recall::default()
        };
        let policy = make_policy(find_profile(profile).unwrap(), window, settings);
        let again = guard::plan(&conversation, &policy, &recall);
        assert!(!again.edits.is_empty(), "{profile}");
    }
    let far = plan_first(
        &conversation,
        "openai",
        tokens_for("openai") * 9 / 10,
        &defaults,
    );
    assert!(!far.edits.is_empty());
}

fn plan_first(
    conversation: &Conversation,
    profile: &str,
    window: u32,
    settings: &GuardConfig,
) -> Plan {
    let policy = make_policy(find_profile(profile).unwrap(), window, settings);
    guard::plan(conversation, &policy, &Recall::default())
}

#[test]
fn a_later_round_of_a_request_keeps_the_cuts_of_the_round_before() {
    let settings = counted_by_characters();
    let conversation = talk(&worked_steps(100));
    let profile = find_profile("openai").unwrap();
    let plan = |window, recall: &Recall| {
        guard::plan(
            &conversation,
            &make_policy(profile, window, &settings),
            recall,
        )
    };
    let tokens = plan(200_000, &Recall::default()).report.raw_before;
    // It fits, and is cut only because the cache is cold.
    let window = tokens * 65 / 64 + 1_100;
    let cold = Recall {
        is_cold: true,
        ..Recall::default()
    };
    let first = plan(window, &cold);
    assert!(!first.edits.is_empty());
    let warm = plan(window, &Recall::default());
    assert!(warm.edits.is_empty());
    let later = Recall {
        sent: Some(first.memory.clone()),
        ..Recall::default()
    };
    let second = plan(window, &later);
    assert_eq!(second.memory, first.memory);
    assert_eq!(
        apply_plan(&conversation, &second),
        apply_plan(&conversation, &first)
    );
    // What is new is told of the whole request.
    assert_eq!(second.report.folded, first.report.folded);
}
