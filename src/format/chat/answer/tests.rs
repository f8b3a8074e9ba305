use super::{AnswerEvent, AnswerEvents, may_need_whole_event, read_answer};
use crate::{format::Finish, json::scan::Span};

#[test]
fn ids_texts_calls_and_usage_are_found() {
    let json = br#" {"id":"x","error":null,"choices":[{"index":1,"delta":{}},{"delta":
        {"content":[{"type":"text","text":"a"},{"type":"thinking","text":"t"},{"text":"b"},3],
         "tool_calls":[{"index":2,"id":"","function":{"name":"n","arguments":"{}"}},null],
         "function_call":null},"finish_reason":"stop","usage":{"completion_tokens":2.5}}],
        "usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},
        "x_groq":{"usage":null}} "#;
    let answer = read_answer(json).unwrap();
    let text = |span: Span| std::str::from_utf8(&json[span.range()]).unwrap();
    assert_eq!((answer.choices, answer.has_error()), (Some(2), false));
    assert_eq!(text(answer.id.unwrap().span), "x");
    assert_eq!(text(answer.find_finish().unwrap().reason.span), "stop");
    let texts: Vec<_> = answer.iter_texts().map(|found| text(found.span)).collect();
    assert_eq!(texts, ["a", "b"]);
    let calls: Vec<_> = answer.iter_calls().collect();
    let [call] = calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!(call.index.unwrap().0, 2);
    assert_eq!((call.id, text(call.name.unwrap().span)), (None, "n"));
    let message = answer.first.as_ref().unwrap();
    let legacy = message.find_member(json, b"function_call").unwrap();
    assert_eq!(text(legacy.value), "null");
    let reports = answer.events.iter().filter_map(|event| match event {
        AnswerEvent::Usage(report) => Some(report),
        _ => None,
    });
    let counts: Vec<_> = reports
        .map(|report| {
            let counts = report.counts.iter();
            counts.map(|count| text(count.span)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(counts, [vec![], vec!["1", "2", "3"]]);
}

#[test]
fn finish_and_usage_of_other_choices_are_read() {
    let json = br#"{"choices":[{"delta":{"content":"a","tool_calls":[{"id":"x"}]},"finish_reason":"stop","usage":{"prompt_tokens":1},"index":1}]}"#;
    let answer = read_answer(json).unwrap();
    assert!(!answer.has_message() && answer.find_finish().is_none());
    assert!(matches!(
        answer.events[..],
        [
            AnswerEvent::Finish(Finish { first: false, .. }),
            AnswerEvent::Usage(_)
        ]
    ));
}

#[test]
fn the_beginning_of_an_event_decides_whether_it_is_held() {
    for (beginning, end, usage) in [
        ("", true, true),
        ("id: 3\nda", true, true),
        ("data: [DO", true, true),
        ("data:\r\ndata: [DONE]\r\n", true, true),
        ("data: [DONE]\ndata: [DONE]", false, true),
        (": soon", false, true),
        ("data: {\"choices\" : [", false, true),
        ("data: {\"choices\":[]", false, true),
        ("data: {\"choices\" : [ {", false, false),
    ] {
        assert_eq!(
            may_need_whole_event(beginning.as_bytes(), false),
            end,
            "{beginning}"
        );
        assert_eq!(
            may_need_whole_event(beginning.as_bytes(), true),
            usage,
            "{beginning}"
        );
    }
}

#[test]
fn unexpected_shapes_are_skipped_and_broken_json_is_an_error() {
    for json in [
        r#"{"choices":null,"usage":7,"x_groq":[]}"#,
        r#"{"choices":[1,{"delta":null},{"delta":[]}]}"#,
        r#"{"choices":[{"delta":{"content":5,"tool_calls":{},"function_call":"x"}}]}"#,
        r#"{"choices":[{"delta":{"content":["x",{"text":null}],"tool_calls":[[]]}}]}"#,
    ] {
        assert!(read_answer(json.as_bytes()).is_ok(), "{json}");
    }
    for json in ["", "[]", "null", r#"{"a":1"#, r#"{"a":1} x"#] {
        assert!(read_answer(json.as_bytes()).is_err(), "{json}");
    }
}
