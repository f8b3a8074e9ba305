use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    AnswerEvent, AnswerEvents, EventKind, MessagesAnswer, TokenCounts, error_event, is_ping,
    may_be_end, read_answer, read_event,
};
use crate::{
    format::{
        AnswerFilter, FinishKind,
        answer::usage::Usage,
        answer_rewriter::{BlockState, ParsedEvent},
        errors::error_body::ErrorBody,
    },
    wire::sse::SseMessage,
};

fn message(data: &str) -> SseMessage {
    SseMessage {
        name: Bytes::new(),
        data: Bytes::copy_from_slice(data.as_bytes()),
    }
}

fn read(data: &str) -> MessagesAnswer {
    read_answer(data.as_bytes()).unwrap()
}

#[test]
fn events_are_read_in_any_order_of_their_members() {
    let data =
        r#" {"delta":{"text":"a\n","type":"text_delta"},"index":3,"type":"content_block_delta"} "#;
    let answer = read(data);
    assert_eq!(answer.kind, EventKind::BlockDelta);
    let (index, span) = answer.index.unwrap();
    assert_eq!((index, &data[span.range()]), (3, "3"));
    let text = answer.iter_texts().next().unwrap();
    assert_eq!(&data[text.span.range()], r"a\n");
    // The name of the event is its type where the data has none.
    let named = SseMessage {
        name: "message_stop".into(),
        data: "{}".into(),
    };
    let stop = read_event(&named, &mut TokenCounts::default());
    assert!(matches!(stop.events[..], [AnswerEvent::End]));
    assert!(is_ping(&message(r#"{"type":"ping"}"#)) && !is_ping(&named));
    let error = SseMessage {
        name: "error".into(),
        data: "no json".into(),
    };
    assert!(read_event(&error, &mut TokenCounts::default()).has_error());
}

#[test]
fn only_texts_thoughts_and_client_side_calls_are_events() {
    let json = r#"{"type":"message","content":[{"type":"thinking","thinking":"t","signature":"s"},
        {"type":"text","text":"a"},{"type":"tool_use","id":"i","name":"n","input":{}},
        {"type":"server_tool_use","id":"j","name":"web_search","input":{}},
        {"type":"web_search_tool_result","text":"b"},null,7],"stop_reason":"tool_use"}"#;
    let answer = read(json);
    assert!(answer.has_message());
    assert!(matches!(
        answer.events[..],
        [
            AnswerEvent::Reasoning(_),
            AnswerEvent::Text(_),
            AnswerEvent::Call(_),
            AnswerEvent::Finish(_)
        ]
    ));
    for odd in [
        r#"{"type":"message","content":"text","usage":7}"#,
        r#"{"type":"content_block_start","content_block":[]}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":{}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":null}}"#,
    ] {
        assert!(read(odd).events.is_empty(), "{odd}");
    }
    for broken in ["", "[]", "null", r#"{"a":1"#, r#"{"a":1} x"#] {
        assert!(read_answer(broken.as_bytes()).is_err(), "{broken}");
    }
}

#[test]
fn every_stop_reason_has_a_kind() {
    for (reason, kind) in [
        ("end_turn", FinishKind::Other),
        ("stop_sequence", FinishKind::Other),
        ("tool_use", FinishKind::Calls),
        ("max_tokens", FinishKind::CutOff),
        ("pause_turn", FinishKind::CutOff),
        ("compaction", FinishKind::CutOff),
        ("refusal", FinishKind::CutOff),
        ("model_context_window_exceeded", FinishKind::WindowExceeded),
    ] {
        let data = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#);
        assert_eq!(read(&data).find_finish().unwrap().kind, kind, "{reason}");
    }
}

#[test]
fn reports_of_a_stream_are_merged() {
    let start = |usage: &str| {
        format!(r#"{{"type":"message_start","message":{{"id":"x","usage":{usage}}}}}"#)
    };
    let delta = |usage: &str| format!(r#"{{"type":"message_delta","usage":{usage}}}"#);
    let full = r#"{"input_tokens":5,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"output_tokens":1}"#;
    for (first, last, prompt, output) in [
        (full, r#"{"output_tokens":9}"#, 325, 9),
        (full, r#"{"input_tokens":6,"output_tokens":9}"#, 326, 9),
        (
            full,
            r#"{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":9}"#,
            325,
            9,
        ),
        (
            r#"{"input_tokens":0}"#,
            r#"{"input_tokens":7,"output_tokens":2}"#,
            7,
            2,
        ),
        ("{}", r#"{"input_tokens":7,"output_tokens":2.0}"#, 7, 2),
        (
            full,
            r#"{"input_tokens":1e9,"cache_read_input_tokens":-1,"output_tokens":9}"#,
            1_000_000_320,
            9,
        ),
        (
            full,
            r#"{"input_tokens":400,"output_tokens":9,"iterations":[{"type":"message","input_tokens":100},{"type":"message","input_tokens":50,"cache_read_input_tokens":1},{"type":"compaction","input_tokens":8}]}"#,
            51,
            9,
        ),
        (
            full,
            r#"{"input_tokens":400,"output_tokens":9,"iterations":[{"type":"message","input_tokens":100},{"type":"advisor_message","input_tokens":3},{"type":"fallback_message","input_tokens":70,"cache_read_input_tokens":2},{"type":"compaction","input_tokens":8}]}"#,
            72,
            9,
        ),
        (
            "{}",
            r#"{"input_tokens":7,"output_tokens":2,"iterations":[{"type":"compaction","input_tokens":900}]}"#,
            7,
            2,
        ),
    ] {
        let mut counts = TokenCounts::default();
        // Of an answer before.
        read_event(
            &message(&start(r#"{"input_tokens":77,"output_tokens":7}"#)),
            &mut counts,
        );
        read_event(&message(&start(first)), &mut counts);
        let last = read_event(&message(&delta(last)), &mut counts);
        let usage = last.iter_reports().next().unwrap().usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (prompt, Some(output))
        );
    }
    let report = read(&format!(r#"{{"type":"message","usage":{full}}}"#));
    assert_eq!(
        report.iter_reports().next().unwrap().usage,
        Some(Usage {
            prompt_tokens: 325,
            completion_tokens: Some(1),
            cached_tokens: Some(300),
            cache_written_tokens: Some(20),
        })
    );
    assert!(
        read(r#"{"usage":{"output_tokens":3}}"#)
            .iter_reports()
            .next()
            .unwrap()
            .usage
            .is_none()
    );
}

#[test]
fn only_the_beginning_of_the_end_is_held() {
    for (beginning, held) in [
        ("", true),
        ("eve", true),
        ("event: message_st", true),
        ("event: message_sta", false),
        ("event: message_stop\nda", true),
        (
            "id: 1\nevent:message_stop\r\ndata: {\"type\":\"message_stop\",\"x\":[1",
            true,
        ),
        ("event: ping\n", false),
        ("data: { \"type\" : \"message", true),
        ("data: {\"type\":\"message_stop\",\"amazon\":{", true),
        ("data: {\"type\":\"message_start", false),
        ("data: {\"index\"", false),
        ("data: [DONE]", false),
        (": soon", false),
    ] {
        assert_eq!(may_be_end(beginning.as_bytes()), held, "{beginning}");
    }
}

proptest! {
    #[test]
    fn every_shorter_beginning_is_held_too(beginning in r#"((event|data|id)?:? ?(message_st(op|a)|\{"type":"message_stop"\}|[a-z{" ]{0,6})?(\n|\r)?){0,4}"#) {
        let held: Vec<_> = (0..=beginning.len()).map(|at| may_be_end(&beginning.as_bytes()[..at])).collect();
        prop_assert!(held.is_sorted_by(|before, after| before >= after), "{held:?}");
    }
}

#[test]
fn errors_have_the_types_that_clients_know() {
    for (kind, expected) in [
        (Some("overloaded_error"), "overloaded_error"),
        (Some("provider_error"), "api_error"),
        (None, "api_error"),
    ] {
        let error = ErrorBody {
            message: "m\n".into(),
            kind: kind.map(str::to_owned),
            ..ErrorBody::default()
        };
        let event = String::from_utf8(error_event(&error).to_vec()).unwrap();
        let data = event.strip_prefix("event: error\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["error"], json!({"type": expected, "message": "m\n"}));
    }
}

/// The message that is assembled of these events of one block, which calls a tool of the proxy.
fn assembled(start: &str, deltas: &[&str]) -> (String, String) {
    let filter = AnswerFilter {
        tools: &["note"],
        package: false,
    };
    let mut state = BlockState::<MessagesAnswer>::new(filter, 0);
    let call = r#"{"type":"tool_use","id":"i","name":"note","input":{}}"#;
    let mut events = vec![
        format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#),
        format!(r#"{{"type":"content_block_start","index":1,"content_block":{call}}}"#),
    ];
    events.extend(
        deltas
            .iter()
            .map(|delta| format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#)),
    );
    for data in events {
        let answer = read(&data);
        let mut event = ParsedEvent::new(Bytes::new(), message(&data), answer);
        state.take_event(&mut event);
    }
    let (message, proxy_calls) = state.assemble();
    let content = message.strip_prefix(r#"{"role":"assistant","content":["#);
    let block = content
        .unwrap_or_default()
        .strip_suffix(&format!(",{call}]}}"));
    let first = proxy_calls.first().map(|call| call.arguments.to_string());
    (block.unwrap_or_default().into(), first.unwrap_or_default())
}

#[test]
fn blocks_are_assembled_byte_for_byte() {
    let block = |start: &str, deltas: &[&str]| assembled(start, deltas).0;
    assert_eq!(
        block(
            r#"{ "type":"thinking", "thinking":"", "signature":"", "x":1.50 }"#,
            &[
                r#"{"type":"thinking_delta","thinking":"\u0041 é\ud83d"}"#,
                r#"{"type":"thinking_delta","thinking":"\ude00\n"}"#,
                r#"{"type":"signature_delta","signature":"a\/b=="}"#,
            ],
        ),
        r#"{ "type":"thinking", "thinking":"\u0041 é\ud83d\ude00\n", "signature":"a\/b==", "x":1.50 }"#
    );
    assert_eq!(
        block(
            r#"{"type":"text","text":"a","citations":null}"#,
            &[
                r#"{"type":"text_delta","text":"b\ud83d"}"#,
                r#"{"type":"citations_delta","citation":{"b":1,"a":2}}"#,
                r#"{"type":"citations_delta","citation":{}}"#,
            ],
        ),
        r#"{"type":"text","text":"ab\ufffd","citations":[{"b":1,"a":2},{}]}"#
    );
    assert_eq!(
        block(
            r#"{"type":"server_tool_use","id":"s","name":"note","input":{}}"#,
            &[
                r#"{"type":"input_json_delta","partial_json":"{\"b\": 1.0,"}"#,
                r#"{"type":"input_json_delta","partial_json":"\"a\":\"\\u00e9\"}"}"#
            ],
        ),
        r#"{"type":"server_tool_use","id":"s","name":"note","input":{"b": 1.0,"a":"\u00e9"}}"#
    );
    assert_eq!(
        block(
            r#"{"type":"compaction"}"#,
            &[r#"{"type":"compaction_delta","content":"c","encrypted_content":null}"#]
        ),
        r#"{"type":"compaction","content":"c","encrypted_content":null}"#
    );
    // An empty text would be refused.
    assert_eq!(block(r#"{"type":"text","text":""}"#, &[]), "");
}

#[test]
fn arguments_are_kept_as_the_model_wrote_them() {
    let call = r#"{"type":"tool_use","id":"i","name":"note","input":{}}"#;
    let piece = |raw: &str| format!(r#"{{"type":"input_json_delta","partial_json":"{raw}"}}"#);
    for (raw, arguments, block) in [
        ("", "{}", "{}"),
        (r#"{\"a\":1"#, "{\"a\":1", "{}"),
        ("[1]", "[1]", "{}"),
        (
            r#"{\"a\":\"\\ud83d\"}"#,
            r#"{"a":"\ud83d"}"#,
            r#"{"a":"\ufffd"}"#,
        ),
    ] {
        let (found, first) = assembled(call, &[&piece(raw)]);
        assert_eq!(first, arguments);
        assert_eq!(found, call.replace("{}", block), "{raw}");
    }
    let long = piece(&"x".repeat(2 << 20));
    assert_eq!(assembled(call, &[&long]), (String::new(), String::new()));
}
