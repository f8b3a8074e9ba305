//! Requests and answers of a summary.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Summariser, SummaryProgress, SummaryWork};
use crate::{
    compaction::{SummaryRange, SummaryRejection},
    conversation::{Conversation, edit::Edits},
    format::chat::index_body,
    guard::{estimate::Weights, profile::find_profile},
    recovery::Language,
};

const KEY: &str = "0102030405060708";

fn summariser(may_repeat_conversation: bool, profile: &str, room: u32) -> Summariser {
    Summariser {
        may_repeat_conversation,
        model: "small".into(),
        profile: find_profile(profile).unwrap(),
        room,
        max_tokens: 400,
        thinking_tokens: 0,
        filling: crate::config::profile::AnswerFilling::ByName,
        language: Language::English,
        weights: Weights::for_unknown_model(),
        nonce: [1, 2, 3, 4, 5, 6, 7, 8],
    }
}

fn begin(
    conversation: &Conversation,
    range: SummaryRange,
    summariser: Summariser,
) -> Option<(SummaryWork, Bytes)> {
    SummaryWork::begin_summary(conversation, &Edits::default(), range, summariser)
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

const RANGE: SummaryRange = SummaryRange {
    boundary: 7,
    replaced: 5_000,
};

#[test]
fn the_conversations_model_gets_one_request_with_the_same_prefix() {
    let conversation = conversation();
    for profile in ["openai", "mistral"] {
        let summariser = summariser(true, profile, 50_000);
        let (mut work, body) = begin(&conversation, RANGE, summariser).unwrap();
        let end = conversation.items[7].span.end as usize;
        let start = conversation.list.start as usize;
        let shared = &conversation.body[start..end];
        assert!(memchr::memmem::find(&body, shared).is_some());
        let body: Value = serde_json::from_slice(&body).unwrap();
        // No user message follows a result in this conversation, so an answer stands between.
        assert_eq!(body["messages"].as_array().unwrap().len(), 10);
        assert_eq!(body["messages"][8]["role"], "assistant");
        assert_eq!(body["stream"], false);
        assert_eq!(body["model"], "small");
        assert_eq!(body["max_tokens"], 400);
        assert_eq!(body.get("n"), None);
        assert_eq!(body["tool_choice"], "none");
        let SummaryProgress::Done(summary) = work.read_answer(&answer(&summary("a"))).unwrap()
        else {
            panic!("not done");
        };
        assert_eq!(summary.boundary, 7);
        assert!(summary.text.starts_with("<summary>\n<done>a</done>"));
        assert!(!summary.text.contains(KEY));
    }
}

#[test]
fn a_small_model_gets_the_transcript_in_parts() {
    let summariser = summariser(false, "template", 3_500);
    let (mut work, mut body) = begin(&conversation(), RANGE, summariser).unwrap();
    let mut requests = 1;
    loop {
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(text.contains("summary of all before"), requests > 1);
        match work.read_answer(&answer(&summary("a"))).unwrap() {
            SummaryProgress::Ask(next) => body = next,
            SummaryProgress::Done(_) => break,
        }
        requests += 1;
    }
    assert!(requests > 1, "{requests}");
}

#[test]
fn a_summary_that_saves_too_little_is_rejected() {
    let range = SummaryRange {
        replaced: 60,
        ..RANGE
    };
    let summariser = summariser(true, "openai", 50_000);
    let (mut work, _) = begin(&conversation(), range, summariser).unwrap();
    let read = work.read_answer(&answer(&summary(&"word ".repeat(50))));
    assert_eq!(read.err(), Some(SummaryRejection::TooLittleSaved));
}

/// Fields of the request to the conversation's model, for a client's request with these fields.
fn request_fields(profile: &str, more: Value) -> Value {
    let messages = json!([
        {"role": "user", "content": "a", "plimsoll": {"name": "schema", "priority": "low"}},
        {"role": "assistant", "content": [{"type": "text", "text": "b", "plimsoll": {}}]},
        {"role": "user", "content": "c"},
    ]);
    let mut body = json!({"model": "big", "messages": messages});
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    let conversation = index_body(Bytes::from(body.to_string())).unwrap();
    let range = SummaryRange {
        boundary: 2,
        ..RANGE
    };
    let (_, body) = begin(&conversation, range, summariser(true, profile, 50_000)).unwrap();
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["messages"][0], json!({"role": "user", "content": "a"}));
    let block = &body["messages"][1]["content"][0];
    assert_eq!(*block, json!({"type": "text", "text": "b"}));
    body.as_object_mut().unwrap().remove("messages");
    body
}

#[test]
fn fields_that_change_the_shape_of_the_answer_are_removed() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let sent = json!({"tools": tools, "temperature": 0.1, "prompt_cache_key": "k", "n": 2,
        "stream_options": {"include_usage": true}, "stop": ["x"], "response_format": {"type": "json_object"},
        "logprobs": true, "top_logprobs": 2, "prediction": {}, "audio": {}, "modalities": ["text"],
        "logit_bias": {}, "parallel_tool_calls": true, "store": true, "metadata": {"a": "b"}});
    let kept = json!({"model": "small", "tools": tools, "temperature": 0.1, "prompt_cache_key": "k",
        "max_completion_tokens": 400});
    assert_eq!(request_fields("openai", sent), kept);
    for forced in [
        json!("required"),
        json!("auto"),
        json!({"type": "function"}),
    ] {
        let request = request_fields("openai", json!({"tools": tools, "tool_choice": forced}));
        assert_eq!(request["tool_choice"], "none");
    }
    let choices = json!({"tool_choice": null, "function_call": "auto"});
    let request = request_fields("openai", choices);
    assert_eq!(request["tool_choice"], Value::Null);
    assert_eq!(request["function_call"], "none");
}

#[test]
fn a_thinking_budget_beyond_the_answer_is_removed() {
    for (budget, kept) in [(200, true), (400, false), (16_000, false)] {
        let thinking = json!({"type": "enabled", "budget_tokens": budget});
        let request = request_fields("anthropic", json!({"thinking": thinking}));
        assert_eq!(request.get("thinking").is_some(), kept, "{budget}");
    }
    let other = request_fields("anthropic", json!({"thinking": {"type": "disabled"}}));
    assert!(other.get("thinking").is_some());
}

#[test]
fn the_answer_limit_keeps_the_clients_field_name() {
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
        let mut request = request_fields(profile, sent);
        request.as_object_mut().unwrap().remove("model");
        assert_eq!(request, expected, "{profile}");
    }
}

#[test]
fn no_request_without_room_or_with_a_wrong_boundary() {
    let conversation = conversation();
    let begins = |may_repeat_conversation, room, boundary| {
        let range = SummaryRange { boundary, ..RANGE };
        let summariser = summariser(may_repeat_conversation, "openai", room);
        begin(&conversation, range, summariser).is_some()
    };
    assert!(begins(true, 50_000, 7));
    assert!(!begins(true, 500, 7) && !begins(false, 1_000, 7));
    assert!(!begins(true, 50_000, 9) && !begins(true, 50_000, 400) && !begins(true, 50_000, 0));
    // In the middle of a step.
    assert!(!begins(true, 50_000, 8));
}

#[test]
fn a_conversations_model_without_room_gets_the_transcript() {
    let summariser = summariser(true, "openai", 3_500);
    let (work, body) = begin(&conversation(), RANGE, summariser).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert!(work.remaining_requests() > 0);
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
}
