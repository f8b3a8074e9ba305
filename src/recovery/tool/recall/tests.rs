use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{config::GuardConfig, format::chat::index_body, guard::profile::find_profile};

/// A conversation with one user message and one result for each text.
fn conversation(texts: &[&str]) -> Conversation {
    let mut messages = vec![
        json!({"role": "system", "content": "s"}),
        json!({"role": "user", "content": "u"}),
    ];
    for (at, text) in texts.iter().enumerate() {
        let call = json!({"id": at.to_string(), "type": "function", "function": {"name": "f", "arguments": "{}"}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": at.to_string(), "content": text}));
    }
    index_body(Bytes::from(json!({"messages": messages}).to_string())).unwrap()
}

#[test]
fn the_recalls_of_one_reply_are_bounded_together() {
    for line in ["a line of a long text\n", "\u{4f60}\u{597d}\u{5417}\n"] {
        check_bounds(&line.repeat(5_000));
    }
}

fn check_bounds(long: &str) {
    let conversation = conversation(&[long]);
    let settings = GuardConfig::default();
    let policy = policy(&settings);
    let source = RecallSource {
        conversation: &conversation,
        policy: &policy,
        left_out: &[],
    };
    let call = ProxyToolCall {
        arguments: r#"{"id":"m3"}"#.into(),
        ..ProxyToolCall::default()
    };
    let mut used = RecallUse::default();
    let mut lengths = Vec::new();
    for _ in 0..MAX_CALLS {
        let found = execute_recall(&call, Some(&source), &mut used).unwrap();
        let CallAnswer::Stored(stored) = found else {
            panic!("nothing was found");
        };
        lengths.push(restore_result(&stored, &conversation).chars().count());
    }
    assert!(lengths[..3].iter().all(|it| *it > 7_000), "{lengths:?}");
    assert!(lengths[7] < 1_000, "{lengths:?}");
    assert!(lengths.iter().sum::<usize>() < 5 * 8_000, "{lengths:?}");
    let refused = execute_recall(&call, Some(&source), &mut used);
    assert!(refused.is_err_and(|why| why.contains("in one reply")));
}

fn policy(settings: &GuardConfig) -> Policy<'_> {
    Policy::new(
        find_profile("openai").unwrap(),
        128_000,
        crate::config::tokens::unknown_model(),
        settings,
    )
}

/// The text that the model reads, and what is stored of it where anything was found.
fn recall(conversation: &Conversation, left_out: Range<u32>, arguments: &str) -> (String, usize) {
    let settings = GuardConfig::default();
    let policy = policy(&settings);
    let source = RecallSource {
        conversation,
        policy: &policy,
        left_out: &[left_out],
    };
    let call = ProxyToolCall {
        id: "rc".into(),
        name: "recall".into(),
        arguments: arguments.into(),
        ..ProxyToolCall::default()
    };
    match execute_recall(&call, Some(&source), &mut RecallUse::default()) {
        Ok(CallAnswer::Stored(stored)) => {
            let item = restore_result(&stored, conversation);
            let item: Value = serde_json::from_str(&item).unwrap();
            assert_eq!(
                (&item["role"], &item["tool_call_id"]),
                (&json!("tool"), &json!("rc"))
            );
            (item["content"].as_str().unwrap().to_owned(), stored.len())
        }
        Ok(CallAnswer::Text(text)) | Err(text) => (text, 0),
    }
}

#[test]
fn a_stored_result_is_small_and_gives_the_same_text_again() {
    let lines: Vec<_> = (0..3_000)
        .map(|line| format!("line {line} \"q\" \u{4f60}"))
        .collect();
    let conversation = conversation(&[&lines.join("\n")]);
    for arguments in [
        r#"{"id":"m3"}"#,
        r#"{"id":"m3","lines":"100-900"}"#,
        r#"{"id":"m3","pattern":"line .*7"}"#,
        r#"{"id":"m3","pattern":"."}"#,
    ] {
        let (text, stored) = recall(&conversation, 0..0, arguments);
        assert!(text.contains("\"q\" \u{4f60}"), "{text}");
        assert!(text.chars().count() <= 8_000, "{}", text.chars().count());
        // 128 KiB of a state hold very many of them.
        assert!(
            stored > 0 && stored < 3_000,
            "{stored} bytes of {arguments}"
        );
    }
}

#[test]
fn other_results_are_restored_as_they_are() {
    let conversation = conversation(&[]);
    for item in [
        r#"{"content":"{\"recall\":[]}","role":"tool","tool_call_id":"x"}"#,
        r#"{"recall":7}"#,
        "",
    ] {
        assert_eq!(restore_result(item, &conversation), item);
    }
}

#[test]
fn each_message_left_out_has_its_id_and_author() {
    let conversation = conversation(&["one\ntwo", "three"]);
    let (text, _) = recall(&conversation, 1..5, r#"{"id":"earlier"}"#);
    let expected = "earlier (4 messages left out), 5 lines in all. \n\
        [m2, assistant: line 1]\ncall of f: {}\n\
        [m3, result of f: lines 1-2]\none\ntwo\n\
        [m4, assistant: line 1]\ncall of f: {}\n\
        [m5, result of f: line 1]\nthree";
    assert_eq!(text, expected);
    let (text, _) = recall(&conversation, 1..3, r#"{"id":"earlier","pattern":"t[wh]"}"#);
    assert!(
        text.contains("1 line matches.") && text.contains("m3, result of f: lines 1-2]\none\ntwo"),
        "{text}"
    );
    let (text, _) = recall(&conversation, 1..5, r#"{"id":"earlier","lines":"3"}"#);
    assert!(text.starts_with("lines count within one message"), "{text}");
}

#[test]
fn every_part_of_one_long_line_can_be_shown() {
    let long = format!("{}needle{}", "x".repeat(120_000), "\u{4f60}".repeat(9_000));
    let conversation = conversation(&[&long]);
    let (text, _) = recall(&conversation, 0..0, r#"{"id":"m3","pattern":"needle"}"#);
    assert!(text.contains("needle\u{4f60}"), "{text}");
    let (text, _) = recall(&conversation, 0..0, r#"{"id":"m3","lines":"241"}"#);
    assert!(text.contains("[line 241]\nneedle\u{4f60}"), "{text}");
}

proptest! {
    #[test]
    fn any_text_and_arguments_are_answered_within_the_bound(
        texts in prop::collection::vec("(?s).{0,3000}", 1..4),
        id in prop::sample::select(vec!["m3", "earlier", "m1", "m2"]),
        lines in prop_oneof![Just(Value::Null), "[0-9]{0,4}-?[0-9]{0,4}".prop_map(Value::from)],
        pattern in prop_oneof![Just(Value::Null), Just(json!("a")), Just(json!("^")), ".{0,8}".prop_map(Value::from)],
    ) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let conversation = conversation(&texts);
        let arguments = json!({"id": id, "lines": lines, "pattern": pattern}).to_string();
        let (text, _) = recall(&conversation, 1..3, &arguments);
        prop_assert!(!text.is_empty() && text.chars().count() <= 8_000);
    }
}

#[test]
fn a_document_of_text_is_shown_with_its_message() {
    let data = "The keel is of oak.\n".repeat(3);
    let document = json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": data}});
    let words = json!({"type": "text", "text": "Read it."});
    let body = json!({"messages": [{"role": "user", "content": [document, words]}]});
    let conversation = crate::format::messages::index_body(Bytes::from(body.to_string())).unwrap();
    let shown = document::render_place(&conversation, 0).unwrap();
    assert!(
        shown.contains("The keel is of oak.") && shown.contains("Read it."),
        "{shown}"
    );
}
