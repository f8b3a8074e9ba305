//! Cuts stay where they are while a conversation grows.

use super::*;

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
    let strict = SessionKnowledge {
        calibration: guard::estimate::Calibration::from_ratio(2.0),
        ..SessionKnowledge::default()
    };
    let cut = guard::plan(&conversation, &policy, &strict);
    let fresh = guard::plan(&conversation, &policy, &SessionKnowledge::default());
    assert_ne!(cut.memory, fresh.memory);
    let knowledge = SessionKnowledge {
        memory: cut.memory.clone(),
        sent_messages: non_system_indices(&conversation).len(),
        ..SessionKnowledge::default()
    };
    let later = guard::plan(&conversation, &policy, &knowledge);
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
    let cut = guard::plan(&conversation, &small, &SessionKnowledge::default());
    assert!(cut.report.folded.is_some());
    let knowledge = SessionKnowledge {
        memory: cut.memory,
        sent_messages: non_system_indices(&conversation).len(),
        ..SessionKnowledge::default()
    };
    let large = make_policy(profile, 128_000, &settings);
    let plan = guard::plan(&conversation, &large, &knowledge);
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
        let before = guard::plan(&talk(&messages), &policy, &SessionKnowledge::default());
        let folded = before.report.folded.expect("a fold").messages;
        messages.push(serde_json::json!({"role": "user", "content": "And?"}));
        let conversation = talk(&messages);
        let after = guard::plan(&conversation, &policy, &SessionKnowledge::default());
        let now = after.report.folded.expect("a fold");
        assert!(now.messages >= folded, "{now:?}");
        // The question stays, also once it is before the cut.
        messages.extend(worked_steps(60).split_off(1));
        let conversation = talk(&messages);
        let last = guard::plan(&conversation, &policy, &SessionKnowledge::default());
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
    let first = guard::plan(&body(1_450), &policy, &SessionKnowledge::default());
    let knowledge = |memory| SessionKnowledge {
        memory,
        sent_messages: non_system_indices(&body(0)).len(),
        ..SessionKnowledge::default()
    };
    let second = guard::plan(&body(1_560), &policy, &knowledge(first.memory.clone()));
    let third = guard::plan(&body(1_450), &policy, &knowledge(second.memory.clone()));
    assert_eq!(first.memory, second.memory);
    assert_eq!(first.memory, third.memory);
    assert!(!second.report.folded.expect("a fold").new);
    // Without state the grid differs, so the test is not vacuous.
    let alone = guard::plan(&body(1_560), &policy, &SessionKnowledge::default());
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
        let knowledge = SessionKnowledge {
            refused: guard::RefusalLessons {
                was_too_long: true,
                ..guard::RefusalLessons::default()
            },
            ..SessionKnowledge::default()
        };
        let policy = make_policy(find_profile(profile).unwrap(), window, settings);
        let again = guard::plan(&conversation, &policy, &knowledge);
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
    guard::plan(conversation, &policy, &SessionKnowledge::default())
}

#[test]
fn a_later_round_of_a_request_keeps_the_cuts_of_the_round_before() {
    let settings = counted_by_characters();
    let conversation = talk(&worked_steps(100));
    let profile = find_profile("openai").unwrap();
    let plan = |window, knowledge: &SessionKnowledge| {
        guard::plan(
            &conversation,
            &make_policy(profile, window, &settings),
            knowledge,
        )
    };
    let tokens = plan(200_000, &SessionKnowledge::default())
        .report
        .raw_before;
    // It fits, and is cut only because the cache is cold.
    let window = tokens * 65 / 64 + 1_100;
    let cold = SessionKnowledge {
        is_cold: true,
        ..SessionKnowledge::default()
    };
    let first = plan(window, &cold);
    assert!(!first.edits.is_empty());
    let warm = plan(window, &SessionKnowledge::default());
    assert!(warm.edits.is_empty());
    let later = SessionKnowledge {
        earlier_plan: Some(first.to_earlier_plan()),
        ..SessionKnowledge::default()
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
