//! A summary from its first request to its last answer.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Summariser, SummaryProgress, SummaryWork};
use crate::{
    compaction::{SummaryRange, SummaryRejection},
    conversation::{Conversation, edit::Edits},
    format::chat::index_body,
    guard::profile::find_profile,
    recovery::Language,
};

const KEY: &str = "0102030405060708";

fn asked(own: bool, profile: &str, room: u32) -> Summariser {
    Summariser {
        is_conversation_model: own,
        model: "small".into(),
        profile: find_profile(profile).unwrap(),
        room,
        max_tokens: 400,
        language: Language::English,
        chars_per_token: 3.0,
        nonce: [1, 2, 3, 4, 5, 6, 7, 8],
    }
}

fn conversation() -> Conversation {
    let result = "line of a log\n".repeat(400);
    let step = |id: &str| {
        let call = json!({"role": "assistant", "content": null, "tool_calls": [{"id": id,
            "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}}]});
        let answer = json!({"role": "tool", "tool_call_id": id, "content": result});
        [call, answer]
    };
    let mut messages = vec![
        json!({"role": "system", "content": "s"}),
        json!({"role": "user", "content": "Repair it"}),
    ];
    for id in ["a", "b", "c", "d"] {
        messages.extend(step(id));
    }
    let body = json!({"model": "big", "messages": messages, "stream": true, "n": 1,
        "tools": [], "tool_choice": "auto", "max_tokens": 9});
    index_body(Bytes::from(body.to_string())).unwrap()
}

fn answer(text: &str) -> Vec<u8> {
    json!({"choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": text}}]})
    .to_string()
    .into()
}

fn summary(text: &str) -> String {
    format!(
        "<summary key=\"{KEY}\">\n<done>{text}</done>\n<to_do>b</to_do>\n<current_state>c</current_state>\n\
         <key_context>none</key_context>\n<next_steps>e</next_steps>\n<cautions>f</cautions>\n</summary>"
    )
}

const DUE: SummaryRange = SummaryRange {
    boundary: 7,
    replaced: 5_000,
};

#[test]
fn the_own_model_is_asked_once_with_the_conversations_own_beginning() {
    let conversation = conversation();
    for profile in ["openai", "mistral"] {
        let asked = asked(true, profile, 50_000);
        let (mut work, body) =
            SummaryWork::begin_summary(&conversation, &Edits::default(), DUE, asked).unwrap();
        let end = conversation.items[7].span.end as usize;
        let start = conversation.list.start as usize;
        let shared = &conversation.body[start..end];
        assert!(memchr::memmem::find(&body, shared).is_some());
        let body: Value = serde_json::from_slice(&body).unwrap();
        // No user message follows a result in this conversation, so an answer stands between.
        assert_eq!(body["messages"].as_array().unwrap().len(), 10);
        assert_eq!(body["messages"][8]["role"], "assistant");
        assert_eq!(body["stream"], false);
        assert_eq!(
            (&body["model"], &body["max_tokens"]),
            (&json!("small"), &json!(400))
        );
        assert_eq!(
            (body.get("n"), &body["tool_choice"]),
            (None, &json!("none"))
        );
        let SummaryProgress::Done(summary) = work.read_answer(&answer(&summary("a"))) else {
            panic!("not done");
        };
        assert_eq!(summary.boundary, 7);
        assert!(summary.text.starts_with("<summary>\n<done>a</done>"));
        assert!(!summary.text.contains(KEY));
    }
}

#[test]
fn a_small_model_reads_the_record_in_parts() {
    let conversation = conversation();
    let asked = asked(false, "template", 3_500);
    let (mut work, mut body) =
        SummaryWork::begin_summary(&conversation, &Edits::default(), DUE, asked).unwrap();
    let mut requests = 1;
    loop {
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(text.contains("summary of all before"), requests > 1);
        match work.read_answer(&answer(&summary("a"))) {
            SummaryProgress::Ask(next) => body = next,
            SummaryProgress::Done(_) => break,
            SummaryProgress::Failed(rejected) => panic!("{rejected}"),
        }
        requests += 1;
    }
    assert!(requests > 1, "{requests}");
}

#[test]
fn what_saves_too_little_is_refused() {
    let due = SummaryRange {
        replaced: 60,
        ..DUE
    };
    let conversation = conversation();
    let asked = asked(true, "openai", 50_000);
    let (mut work, _) =
        SummaryWork::begin_summary(&conversation, &Edits::default(), due, asked).unwrap();
    let next = work.read_answer(&answer(&summary(&"word ".repeat(50))));
    assert!(matches!(
        next,
        SummaryProgress::Failed(SummaryRejection::TooLittleSaved)
    ));
}

/// What is asked of the own model with these members beside the messages.
fn members(profile: &str, more: Value) -> Value {
    let messages = json!([
        {"role": "user", "content": "a", "plimsoll": {"name": "schema", "priority": "low"}},
        {"role": "assistant", "content": [{"type": "text", "text": "b", "plimsoll": {}}]},
        {"role": "user", "content": "c"},
    ]);
    let mut body = json!({"model": "big", "messages": messages});
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    let conversation = index_body(Bytes::from(body.to_string())).unwrap();
    let due = SummaryRange {
        boundary: 2,
        replaced: 5_000,
    };
    let asked = asked(true, profile, 50_000);
    let (_, body) =
        SummaryWork::begin_summary(&conversation, &Edits::default(), due, asked).unwrap();
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["messages"][0], json!({"role": "user", "content": "a"}));
    let said = &body["messages"][1]["content"][0];
    assert_eq!(*said, json!({"type": "text", "text": "b"}));
    body.as_object_mut().unwrap().remove("messages");
    body
}

#[test]
fn what_would_give_the_answer_another_shape_is_taken_out() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let sent = json!({"tools": tools, "temperature": 0.1, "prompt_cache_key": "k", "n": 2,
        "stream_options": {"include_usage": true}, "stop": ["x"], "response_format": {"type": "json_object"},
        "logprobs": true, "top_logprobs": 2, "prediction": {}, "audio": {}, "modalities": ["text"],
        "logit_bias": {}, "parallel_tool_calls": true, "store": true, "metadata": {"a": "b"}});
    let kept = json!({"model": "small", "tools": tools, "temperature": 0.1, "prompt_cache_key": "k",
        "max_completion_tokens": 400});
    assert_eq!(members("openai", sent), kept);
    for forced in [
        json!("required"),
        json!("auto"),
        json!({"type": "function"}),
    ] {
        let asked = members("openai", json!({"tools": tools, "tool_choice": forced}));
        assert_eq!(asked["tool_choice"], "none");
    }
    let asked = members(
        "openai",
        json!({"tool_choice": null, "function_call": "auto"}),
    );
    assert_eq!(
        (&asked["tool_choice"], &asked["function_call"]),
        (&Value::Null, &json!("none"))
    );
}

#[test]
fn thought_that_is_longer_than_the_answer_is_taken_out() {
    for (budget, kept) in [(200, true), (400, false), (16_000, false)] {
        let thinking = json!({"type": "enabled", "budget_tokens": budget});
        let asked = members("anthropic", json!({"thinking": thinking}));
        assert_eq!(asked.get("thinking").is_some(), kept, "{budget}");
    }
    let other = members("anthropic", json!({"thinking": {"type": "disabled"}}));
    assert!(other.get("thinking").is_some());
}

#[test]
fn the_limit_keeps_the_name_that_the_client_uses() {
    for (profile, sent, expected) in [
        ("openai", json!({}), json!({"max_completion_tokens": 400})),
        (
            "openai",
            json!({"max_tokens": 5}),
            json!({"max_tokens": 400}),
        ),
        ("template", json!({}), json!({"max_tokens": 400})),
        (
            "template",
            json!({"max_completion_tokens": 9_000}),
            json!({"max_completion_tokens": 400}),
        ),
        (
            "openai",
            json!({"max_tokens": null}),
            json!({"max_completion_tokens": 400}),
        ),
        (
            "deepseek",
            json!({"max_tokens": 1, "max_completion_tokens": 1}),
            json!({"max_completion_tokens": 400}),
        ),
    ] {
        let mut asked = members(profile, sent);
        asked.as_object_mut().unwrap().remove("model");
        assert_eq!(asked, expected, "{profile}");
    }
}

#[test]
fn nothing_is_asked_where_there_is_no_room_or_no_such_place() {
    let conversation = conversation();
    let begun = |own, room, boundary| {
        let due = SummaryRange { boundary, ..DUE };
        SummaryWork::begin_summary(
            &conversation,
            &Edits::default(),
            due,
            asked(own, "openai", room),
        )
        .is_some()
    };
    assert!(begun(true, 50_000, 7));
    assert!(!begun(true, 500, 7) && !begun(false, 1_000, 7));
    assert!(!begun(true, 50_000, 9) && !begun(true, 50_000, 400) && !begun(true, 50_000, 0));
    // In the middle of a step.
    assert!(!begun(true, 50_000, 8));
}

#[test]
fn an_own_model_without_room_for_the_conversation_reads_the_record() {
    let conversation = conversation();
    let (work, body) = SummaryWork::begin_summary(
        &conversation,
        &Edits::default(),
        DUE,
        asked(true, "openai", 3_500),
    )
    .unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert!(work.remaining_requests() > 0 && body["messages"].as_array().unwrap().len() == 1);
}
