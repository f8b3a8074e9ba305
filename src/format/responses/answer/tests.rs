use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::{
    AnswerEvent, AnswerEvents, EventKind, ResponsesAnswer, is_keepalive, may_be_end, read_answer,
    read_event,
};
use crate::wire::sse::SseMessage;

mod assembled;
mod whole;
mod written;

fn message(name: &str, data: &str) -> SseMessage {
    SseMessage {
        name: Bytes::copy_from_slice(name.as_bytes()),
        data: Bytes::copy_from_slice(data.as_bytes()),
    }
}

fn read(data: &str) -> ResponsesAnswer {
    read_answer(data.as_bytes()).unwrap()
}

/// The events in short.
fn found(answer: &ResponsesAnswer, data: &str) -> Vec<String> {
    let events = answer.events.iter().map(|event| match event {
        AnswerEvent::Id(id) => format!("id {}", &data[id.span.range()]),
        AnswerEvent::Text(text) => format!("text {}", &data[text.span.range()]),
        AnswerEvent::Reasoning(text) => format!("reasoning {}", &data[text.span.range()]),
        AnswerEvent::Call(call) => {
            let text = |text: Option<crate::json::scan::JsonString>| {
                text.map_or("", |text| &data[text.span.range()])
            };
            format!("call {} {}", text(call.id), text(call.name))
        }
        AnswerEvent::Usage(_) => "usage".into(),
        AnswerEvent::Cleared(tokens) => format!("{tokens} cleared"),
        AnswerEvent::InputChanges(changes) => format!("{} dropped", changes.count_dropped()),
        AnswerEvent::Finish(finish) => format!("finish {:?}", finish.kind),
        AnswerEvent::Error => "error".into(),
        AnswerEvent::End => "end".into(),
    });
    events.collect()
}

#[test]
fn every_type_of_event_is_read() {
    use EventKind::{Begin, End, ItemBegin, ItemEnd, ItemPart, Keepalive, Other};
    let item = r#""output_index":1,"item_id":"x","#;
    let call = r#""output_index":1,"item":{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}"#;
    let custom = r#""output_index":1,"item":{"type":"custom_tool_call","call_id":"c","name":"n","input":"t"}"#;
    let approval = r#""output_index":1,"item":{"type":"mcp_approval_request","id":"i","name":"n","call_id":"no"}"#;
    let served = r#""output_index":1,"item":{"type":"web_search_call","id":"i"}"#;
    let text = r#""output_index":1,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}"#;
    let delta = format!(r#"{item}"content_index":0,"delta":"a\n""#);
    let done = format!(r#"{item}"content_index":0,"text":"a\n""#);
    let part = format!(r#"{item}"content_index":0,"part":{{"type":"output_text","text":"a"}}"#);
    let begun =
        r#""response":{"id":"r","status":"in_progress","output":[],"usage":null,"error":null}"#;
    let ended =
        r#""response":{"status":"completed","output":[],"usage":{"input_tokens":1},"error":null}"#;
    let called = r#""response":{"status":"completed","output":[{"type":"function_call"}]}"#;
    let cut =
        r#""response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#;
    let failed = r#""response":{"status":"failed","error":{"code":"context_length_exceeded","message":"m"}}"#;
    let cases: &[(&str, &str, EventKind, &[&str])] = &[
        ("response.created", begun, Begin, &[]),
        ("response.in_progress", begun, Begin, &[]),
        ("response.queued", begun, Begin, &[]),
        ("response.output_item.added", call, ItemBegin, &["call c n"]),
        ("response.output_item.done", call, ItemEnd, &["call c n"]),
        (
            "response.output_item.added",
            custom,
            ItemBegin,
            &["call c n"],
        ),
        (
            "response.output_item.done",
            approval,
            ItemEnd,
            &["call i n"],
        ),
        ("response.output_item.done", served, ItemEnd, &[]),
        ("response.output_item.done", text, ItemEnd, &[]),
        (
            "response.output_text.delta",
            &delta,
            ItemPart,
            &[r"text a\n"],
        ),
        (
            "response.reasoning_summary_text.delta",
            &delta,
            ItemPart,
            &[r"reasoning a\n"],
        ),
        (
            "response.reasoning_text.delta",
            &delta,
            ItemPart,
            &[r"reasoning a\n"],
        ),
        (
            "response.function_call_arguments.delta",
            &delta,
            ItemPart,
            &[],
        ),
        (
            "response.custom_tool_call_input.delta",
            &delta,
            ItemPart,
            &[],
        ),
        ("response.mcp_call_arguments.delta", &delta, ItemPart, &[]),
        ("response.refusal.delta", &delta, ItemPart, &[]),
        ("response.output_text.done", &done, ItemPart, &[]),
        ("response.content_part.done", &part, ItemPart, &[]),
        ("response.content_part.added", &part, ItemPart, &[]),
        (
            "response.output_text.annotation.added",
            item.trim_end_matches(','),
            ItemPart,
            &[],
        ),
        (
            "response.reasoning_summary_part.added",
            &part,
            ItemPart,
            &[],
        ),
        (
            "response.web_search_call.searching",
            item.trim_end_matches(','),
            ItemPart,
            &[],
        ),
        (
            "response.image_generation_call.partial_image",
            &delta,
            ItemPart,
            &[],
        ),
        (
            "response.compaction.compacting",
            item.trim_end_matches(','),
            ItemPart,
            &[],
        ),
        ("response.audio.delta", r#""delta":"a""#, Other, &[]),
        (
            "response.completed",
            ended,
            End,
            &["usage", "finish Other", "end"],
        ),
        ("response.completed", called, End, &["finish Calls", "end"]),
        ("response.incomplete", cut, End, &["finish CutOff", "end"]),
        ("response.failed", failed, End, &["error", "end"]),
        (
            "error",
            r#""code":"c","message":"m","param":null"#,
            Other,
            &["error"],
        ),
        (
            "error",
            r#""error":{"type":"t","code":"c","message":"m"}"#,
            Other,
            &["error"],
        ),
        ("keepalive", r#""x":1"#, Keepalive, &[]),
    ];
    for (kind, members, expected, events) in cases {
        // The type stands last, and the name of the event is its type where the data has none.
        let typed = format!(r#" {{"sequence_number":4,{members},"type":"{kind}"}} "#);
        let named = format!(r#"{{"sequence_number":4,{members}}}"#);
        for (answer, data) in [
            (read(&typed), &typed),
            (read_event(&message("", &typed)), &typed),
            (read_event(&message(kind, &named)), &named),
        ] {
            assert_eq!(answer.kind, *expected, "{data}");
            assert_eq!(found(&answer, data), *events, "{data}");
            assert_eq!(answer.is_end(), *expected == End);
            let (number, span) = answer.sequence_number.unwrap();
            assert_eq!((number, &data[span.range()]), (4, "4"));
            let index = answer.output_index.map(|(index, _)| index);
            assert_eq!(index, members.contains("output_index").then_some(1));
        }
    }
}

#[test]
fn only_texts_of_messages_are_repeated() {
    let part = |kind: &str, name: &str| {
        format!(
            r#"{{"type":"response.{name}","output_index":0,"text":"b","part":{{"type":"{kind}","text":"a"}}}}"#
        )
    };
    for (kind, name, expected) in [
        ("output_text", "content_part.done", Some("a")),
        ("reasoning_text", "content_part.done", None),
        ("refusal", "content_part.done", None),
        ("output_text", "content_part.added", None),
        ("summary_text", "reasoning_summary_part.done", None),
    ] {
        let data = part(kind, name);
        let repeated = read(&data).repeated_text;
        let repeated = repeated.map(|text| &data[text.span.range()]);
        assert_eq!(repeated, expected, "{data}");
    }
    let done = r#"{"type":"response.output_text.done","output_index":0,"text":"b"}"#;
    let span = read(done).repeated_text.unwrap().span;
    assert_eq!(&done[span.range()], "b");
}

#[test]
fn odd_shapes_are_passed_over() {
    for odd in [
        "{}",
        r#"{"output":"text","usage":7}"#,
        r#"{"type":"response.output_item.added","item":[]}"#,
        r#"{"type":"response.output_item.done","output_index":1.5,"item":{"type":{}}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"delta":{}}"#,
        r#"{"type":"response.created","response":"x"}"#,
        r#"{"type":null,"sequence_number":-1}"#,
    ] {
        assert!(read(odd).events.is_empty(), "{odd}");
    }
    let odd = r#"{"output":[null,[],{"type":7,"content":{}},{"content":[null,{"type":"output_text","text":1}]}]}"#;
    assert_eq!(read(odd).response.output.unwrap().1.len(), 4);
    for broken in ["", "[]", "null", r#"{"a":1"#, r#"{"a":1} x"#] {
        assert!(read_answer(broken.as_bytes()).is_err(), "{broken}");
        assert!(
            read_event(&message("response.completed", broken))
                .events
                .is_empty()
        );
        assert!(read_event(&message("error", broken)).has_error());
    }
}

#[test]
fn keepalives_say_nothing() {
    let begun = r#"{"type":"response.in_progress","response":{"status":"in_progress"}}"#;
    for (name, data, expected) in [
        ("response.in_progress", begun, true),
        ("", begun, true),
        ("response.queued", "{}", true),
        (
            "keepalive",
            r#"{"type":"keepalive","sequence_number":2}"#,
            true,
        ),
        ("ping", "{}", true),
        ("", r#"{"type":"keepalive"}"#, true),
        ("error", "{}", false),
        ("", r#"{"type":"response.failed","response":{}}"#, false),
        ("ping", r#"{"error":{"message":"m"}}"#, false),
        (
            "response.output_item.added",
            r#"{"output_index":0,"item":{}}"#,
            false,
        ),
    ] {
        assert_eq!(
            is_keepalive(&message(name, data)),
            expected,
            "{name} {data}"
        );
    }
}

#[test]
fn only_the_beginning_of_the_end_is_held() {
    for (beginning, held) in [
        ("", true),
        ("event: response.", true),
        ("event: response.com", true),
        ("event: response.inc", true),
        ("event: response.in_", false),
        ("event: response.created", false),
        ("event: response.output_", false),
        ("event: response.failed\nda", true),
        (
            "event:response.completed\r\ndata: {\"response\":{\"id\":[1",
            true,
        ),
        ("event: error\n", false),
        ("data: {\"type\":\"response.completed\",\"x\":{", true),
        ("data: {\"type\":\"response.output", false),
        ("data: {\"response\"", false),
        (": soon", false),
    ] {
        assert_eq!(may_be_end(beginning.as_bytes()), held, "{beginning}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let texts = [
        "message",
        "function_call",
        "reasoning",
        "output_text",
        "completed",
        "failed",
        "note",
        "response.completed",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.created",
        "error",
        "",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(texts.to_vec()).prop_map(Value::from),
    ];
    let keys = [
        "type",
        "response",
        "output",
        "item",
        "content",
        "summary",
        "id",
        "call_id",
        "name",
        "arguments",
        "text",
        "delta",
        "part",
        "status",
        "usage",
        "input_tokens",
        "output_index",
        "sequence_number",
        "error",
        "store",
        "incomplete_details",
        "encrypted_content",
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        let key = prop::sample::select(keys.to_vec());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..7).prop_map(|members| {
                let members = members
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value));
                Value::Object(members.collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_shorter_beginning_is_held_too(beginning in r#"((event|data|id)?:? ?(response\.(completed|in|fail)|\{"type":"response.failed"\}|[a-z{" ]{0,6})?(\n|\r)?){0,4}"#) {
        let held: Vec<_> = (0..=beginning.len()).map(|at| may_be_end(&beginning.as_bytes()[..at])).collect();
        prop_assert!(held.is_sorted_by(|before, after| before >= after), "{held:?}");
    }

    #[test]
    fn any_json_is_read(json in any_json(), name in prop_oneof![Just(""), Just("response.failed"), Just("error")]) {
        let data = json.to_string();
        let answer = read_event(&message(name, &data));
        prop_assert_eq!(read_answer(data.as_bytes()).is_ok(), json.is_object());
        for text in answer.iter_texts() {
            prop_assert!(serde_json::from_str::<Value>(&data[text.quoted_span().range()]).is_ok());
        }
        for item in answer.response.output.iter().flat_map(|(_, items)| items).chain(&answer.item) {
            let element: Value = serde_json::from_str(&data[item.span.range()]).unwrap();
            prop_assert!(item.id_member.is_none() || element.get("id").is_some());
        }
    }
}
