//! Properties of caps and shares.

use super::*;

fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["word ", "字", "\n", "😀", "\"\\", "</facts>"]);
    (prop::collection::vec(piece, 1..6), 1usize..400)
        .prop_map(|(pieces, times)| pieces.concat().repeat(times))
}

fn annotation() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        json!("schema"),
        json!("<summary>"),
        json!("n".repeat(90)),
        json!(null),
    ]);
    let priority = prop::sample::select(vec!["critical", "high", "medium", "low", "urgent"]);
    prop_oneof![
        Just(json!(null)),
        (name, priority).prop_map(|(name, priority)| json!({"name": name, "priority": priority})),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["system", "developer", "user", "assistant"]);
    let parts = prop::collection::vec((text(), annotation(), any::<bool>()), 1..4);
    prop_oneof![
        (role.clone(), text(), annotation()).prop_map(
            |(role, text, note)| json!({"role": role, "content": text, "plimsoll": note})
        ),
        (role, parts, annotation()).prop_map(|(role, parts, note)| {
            let parts: Vec<_> = parts
                .into_iter()
                .map(|(text, note, has)| {
                    if has {
                        part(&text, note)
                    } else {
                        json!({"type": "text", "text": text})
                    }
                })
                .collect();
            json!({"role": role, "content": parts, "plimsoll": note})
        }),
    ]
}

#[test]
fn later_instructions_change_nothing_that_was_sent() {
    let settings = GuardConfig {
        system_share: 0.1,
        trim_system: true,
        ..GuardConfig::counted_by_characters()
    };
    let policy = policy(&settings, 32_768);
    let plain = |text: &str| json!({"role": "system", "content": text});
    let mut messages = vec![plain(&"rule ".repeat(800)), plain(&"more ".repeat(1_500))];
    let mut last: Vec<Value> = Vec::new();
    for turn in 0..12 {
        messages.push(json!({"role": "user", "content": "go"}));
        let (out, plan) = sent(&messages, &policy);
        assert!(
            plan.report.folded.is_none()
                && plan.report.texts.count_shortened(Shortening::Trimmed) > 0
        );
        let out = out.as_array().unwrap().clone();
        assert!(out.starts_with(&last), "turn {turn}");
        last = out;
        messages.push(json!({"role": "assistant", "content": "done"}));
        messages.push(plain(&format!("note {turn} ").repeat(100)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn caps_and_shares_hold_and_a_second_pass_changes_nothing(
        messages in prop::collection::vec(message(), 1..8),
        cap in 64u32..2_000,
        share in 0.05f64..0.9,
        trim in any::<bool>(),
    ) {
        let mut messages = messages;
        messages.push(json!({"role": "user", "content": "now?"}));
        let settings = GuardConfig {
            caps: [("schema".to_owned(), cap)].into(),
            system_share: share,
            trim_system: trim,
            ..GuardConfig::counted_by_characters()
        };
        let policy = policy(&settings, 32_768);
        let conversation = read(&messages);
        let first = plan(&conversation, &policy, &SessionKnowledge::default());
        prop_assert!(first.report.stood_back.is_none());
        let texts = &first.report.texts;
        for used in texts.caps.values() {
            prop_assert!(used.tokens <= cap, "{:?}", used);
        }
        let unannotated_or_critical = texts.system.is_over_limit();
        let (out, _) = sent(&messages, &policy);
        prop_assert!(!out.to_string().contains("\"plimsoll\":"));
        for (take_out, body) in [(false, first.edits.clone()), (true, {
            let mut edits = first.edits.clone();
            conversation.take_out_annotations(&mut edits);
            edits
        })] {
            let body = body.apply(&conversation.body).to_bytes();
            let again = index_body(body.clone()).unwrap();
            let second = plan(&again, &policy, &SessionKnowledge::default());
            if take_out && unannotated_or_critical && trim {
                // Without annotations, a critical text is like any other.
                continue;
            }
            prop_assert!(second.edits.is_empty(), "{:?}\n{:?}", first.report.texts, second.report.texts);
            let paragraph = first.report.raw_after.abs_diff(second.report.raw_before);
            prop_assert!(first.report.folded.is_some() || paragraph == 0);
        }
    }
}
