use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::{
    format::{chat::index_body, messages},
    json::text,
};

/// The messages after the edits, and how many records were left out.
fn put(answer: &str, records: &[InjectionContent]) -> (Vec<Value>, usize) {
    let body = format!(r#"{{"messages":[{answer}]}}"#);
    let conversation = index_body(Bytes::from(body)).unwrap();
    let records: Vec<&InjectionContent> = records.iter().collect();
    let echo = edit_echo(
        &conversation,
        0,
        &records,
        Some(&[]),
        false,
        &Weights::for_unknown_model(),
    );
    let body = echo.edits.apply(&conversation.body).to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let messages = body["messages"].as_array().unwrap().clone();
    assert_eq!(messages.len(), 1 + echo.results as usize);
    (messages, echo.left_out)
}

fn check(content: &str, records: &[InjectionContent], expected: &Value) {
    let answer = format!(r#"{{"role":"assistant","content":{content}}}"#);
    let (messages, left_out) = put(&answer, records);
    assert_eq!(
        (&messages[0]["content"], left_out),
        (expected, 0),
        "{content}"
    );
}

fn left_out(answer: &str, record: InjectionContent) {
    let (messages, left_out) = put(answer, &[record]);
    let before: Value = serde_json::from_str(answer).unwrap();
    assert_eq!((&messages[0], left_out), (&before, 1), "{answer}");
}

fn text(before_chars: u32, text: &str) -> InjectionContent {
    InjectionContent::Text {
        before_chars,
        text: text.into(),
    }
}

fn spoken(raw: &str, chars: u32) -> InjectionContent {
    InjectionContent::Spoken {
        chars,
        digest: text::digest_text(raw.as_bytes()),
    }
}

fn calls(client_calls: u32, before: &[u32]) -> InjectionContent {
    let call = |at: &u32| {
        InjectedCall {
        before: *at,
        json: format!(r#"{{"id":"own{at}","type":"function","function":{{"name":"add_reminder","arguments":"{{}}"}}}}"#).into(),
    }
    };
    let result =
        |at: &u32| format!(r#"{{"role":"tool","tool_call_id":"own{at}","content":"ok"}}"#).into();
    InjectionContent::Calls {
        client_calls,
        calls: before.iter().map(call).collect(),
        results: before.iter().map(result).collect(),
    }
}

fn calling(content: &str, ids: &[&str]) -> String {
    let call = |id| json!({"id": id, "function": {"name": "f", "arguments": ""}}).to_string();
    let calls = ids.iter().map(call).collect::<Vec<_>>().join(" , ");
    format!(r#"{{"role":"assistant","content":{content},"tool_calls":[ {calls} ]}}"#)
}

#[test]
fn text_returns_to_its_place() {
    let package = "<continuation_package>\n\"x\"</continuation_package>";
    for (content, before, expected) in [
        (r#""abcd""#, 2, json!(format!("ab{package}cd"))),
        (r#""abcd""#, 0, json!(format!("{package}abcd"))),
        (r#""abcd""#, 4, json!(format!("abcd{package}"))),
        (r#""abcd""#, 90, json!(format!("abcd{package}"))),
        (r#""""#, 0, json!(package)),
        (
            r#""a\u4e2d\n\ud83d\ude00b""#,
            4,
            json!(format!("a中\n😀{package}b")),
        ),
        ("null", 3, json!(package)),
        (
            r#"[{"type":"text","text":"ab"},{"type":"text","text":"cd"}]"#,
            2,
            json!([{"type": "text", "text": format!("ab{package}")}, {"type": "text", "text": "cd"}]),
        ),
        (
            r#"[{"type":"text","text":"ab"},{"type":"text","text":"cd"}]"#,
            3,
            json!([{"type": "text", "text": "ab"}, {"type": "text", "text": format!("c{package}d")}]),
        ),
        (
            r#"[{"type":"text","text":"ab"},{"type":"text","text":"cd"}]"#,
            9,
            json!([{"type": "text", "text": "ab"}, {"type": "text", "text": format!("cd{package}")}]),
        ),
    ] {
        check(content, &[text(before, package)], &expected);
    }
}

#[test]
fn text_is_left_out_where_the_answer_cannot_be_edited() {
    for content in [
        r#""a\ud800b""#,
        "[]",
        r#"[{"type":"refusal","refusal":"no"}]"#,
        "7",
    ] {
        let answer = format!(r#"{{"role":"assistant","content":{content}}}"#);
        let body = format!(r#"{{"messages":[{answer}]}}"#);
        let conversation = index_body(Bytes::from(body)).unwrap();
        let record = text(0, "x");
        let echo = edit_echo(
            &conversation,
            0,
            &[&record],
            Some(&[]),
            false,
            &Weights::for_unknown_model(),
        );
        assert!(echo.edits.is_empty() && echo.left_out == 1, "{content}");
    }
    left_out(r#"{"role":"assistant"}"#, text(0, "x"));
}

#[test]
fn text_of_a_round_is_not_repeated_in_the_answer() {
    for (content, expected) in [
        (r#""abcd""#, json!("cd")),
        (r#""\u0061bcd""#, json!("cd")),
        (
            r#"[{"type":"text","text":"abcd"}]"#,
            json!([{"type": "text", "text": "cd"}]),
        ),
        (
            r#"[{"type":"text","text":"a"} , {"type":"text","text":"bcd"}]"#,
            json!([{"type": "text", "text": "cd"}]),
        ),
        (
            r#"[{"type":"text","text":"ab"} , {"type":"text","text":"cd"}]"#,
            json!([{"type": "text", "text": "cd"}]),
        ),
        (
            r#"[{"type":"text","text":"ab"},{"type":"refusal","refusal":"no"}]"#,
            json!([{"type": "refusal", "refusal": "no"}]),
        ),
    ] {
        check(content, &[spoken("ab", 2)], &expected);
    }
}

#[test]
fn text_stays_where_it_differs_from_the_round_or_nothing_would_be_left() {
    for content in [
        r#""abcd""#,
        r#""x""#,
        r#""""#,
        "null",
        r#""xy""#,
        r#""xy \n""#,
        r#"[{"type":"text","text":"xy"}]"#,
        r#"[{"type":"refusal","refusal":"no"},{"type":"text","text":"xy"}]"#,
        r#"[{"type":"text","text":"x","cache_control":{}},{"type":"text","text":"yz"}]"#,
    ] {
        let answer = format!(r#"{{"role":"assistant","content":{content}}}"#);
        left_out(&answer, spoken("xy", 2));
    }
    left_out(r#"{"role":"assistant"}"#, spoken("xy", 2));
    let answer = r#"{"role":"assistant","content":"xyz"}"#;
    let body = format!(r#"{{"messages":[{answer}]}}"#);
    let conversation = index_body(Bytes::from(body)).unwrap();
    let record = spoken("xy", 2);
    // Its round is not sent, so the text stands only here.
    let echo = edit_echo(
        &conversation,
        0,
        &[&record],
        None,
        false,
        &Weights::for_unknown_model(),
    );
    assert!(echo.edits.is_empty() && echo.left_out == 1);
}

#[test]
fn an_answer_left_with_calls_alone_has_null_content() {
    for content in [r#""xy""#, r#""xy\n\n""#, r#"[{"type":"text","text":"xy"}]"#] {
        let (messages, left_out) = put(&calling(content, &["a"]), &[spoken("xy", 2)]);
        assert_eq!((&messages[0]["content"], left_out), (&Value::Null, 0));
        assert_eq!(messages[0]["tool_calls"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn text_is_inserted_beside_removed_text() {
    for (content, expected) in [
        (r#""xy""#, json!("P")),
        (r#""xyz""#, json!("Pz")),
        (
            r#"[{"type":"text","text":"xy"}]"#,
            json!([{"type": "text", "text": "P"}]),
        ),
        (
            r#"[{"type":"text","text":"x"},{"type":"text","text":"y"}]"#,
            json!([{"type": "text", "text": "P"}]),
        ),
        (
            r#"[{"type":"text","text":"xy"},{"type":"text","text":"z"}]"#,
            json!([{"type": "text", "text": "Pz"}]),
        ),
    ] {
        for before in 0..=2 {
            check(content, &[spoken("xy", 2), text(before, "P")], &expected);
            check(content, &[text(before, "P"), spoken("xy", 2)], &expected);
        }
    }
    check(r#""xyz""#, &[spoken("xy", 2), text(3, "P")], &json!("zP"));
}

#[test]
fn injected_calls_return_to_their_order_among_the_client_s() {
    for (before, order, left_out) in [
        (vec![0], "own0 a b", 0),
        (vec![1], "a own1 b", 0),
        (vec![2], "a b own2", 0),
        (vec![9], "a b own9", 0),
        (vec![0, 1, 2], "own0 a own1 b own2", 0),
    ] {
        for content in ["null", r#""text""#, r#"[{"type":"text","text":"t"}]"#] {
            let (messages, left) = put(&calling(content, &["a", "b"]), &[calls(2, &before)]);
            let ids = messages[0]["tool_calls"].as_array().unwrap().iter();
            let ids: Vec<_> = ids.map(|call| call["id"].as_str().unwrap()).collect();
            assert_eq!((ids.join(" ").as_str(), left), (order, left_out));
            for (result, at) in messages[1..].iter().zip(&before) {
                assert_eq!(result["tool_call_id"], format!("own{at}"));
            }
        }
    }
}

#[test]
fn calls_are_left_out_where_the_echo_has_other_calls() {
    let legacy =
        r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}}"#;
    for answer in [
        calling("null", &["a"]),
        calling("null", &["a", "b", "c"]),
        legacy.to_owned(),
        r#"{"role":"assistant","content":"none"}"#.to_owned(),
    ] {
        left_out(&answer, calls(2, &[1]));
        left_out(&answer, calls(0, &[0]));
    }
    left_out(legacy, calls(1, &[0]));
    // A call without a result, a result without a call, a result that is no message, two calls in one.
    let InjectionContent::Calls { calls, results, .. } = calls(1, &[0, 1]) else {
        unreachable!()
    };
    let broken = |calls: &[InjectedCall], results: &[Box<str>]| InjectionContent::Calls {
        client_calls: 1,
        calls: calls.to_vec(),
        results: results.to_vec(),
    };
    let both = InjectedCall {
        before: 0,
        json: format!("{},{}", calls[0].json, calls[1].json).into(),
    };
    let answer = calling("null", &["a"]);
    left_out(&answer, broken(&calls, &results[..1]));
    left_out(&answer, broken(&calls[..1], &results));
    left_out(&answer, broken(&calls[..1], &["7".into()]));
    left_out(&answer, broken(&[both], &results));
}

/// What stands beside it is taken out, with the comma between.
#[test]
fn a_call_returns_beside_reasoning_that_is_left_out() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let spoken = json!({"type": "text", "text": "so"});
    let client_call = json!({"type": "tool_use", "id": "b", "name": "f", "input": {}});
    let hidden = json!({"type": "tool_use", "id": "a", "name": "recall", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "b", "content": "x"});
    let answers = [
        json!([spoken, thinking, client_call]),
        json!([thinking, spoken, thinking, client_call]),
        json!([thinking, client_call]),
    ];
    for answer in answers {
        for behind in 1..=answer.as_array().unwrap().len() as u32 {
            let body = json!({"messages": [
                {"role": "assistant", "content": answer},
                {"role": "user", "content": [result]},
            ]});
            let conversation = messages::index_body(Bytes::from(body.to_string())).unwrap();
            let record = InjectionContent::Calls {
                client_calls: 1,
                calls: vec![InjectedCall {
                    before: 0,
                    json: hidden.to_string().into(),
                }],
                results: vec![
                    json!({"type": "tool_result", "tool_use_id": "a", "content": "y"})
                        .to_string()
                        .into(),
                ],
            };
            let places = InjectionContent::HiddenPlaces(HiddenPlaces {
                calls: vec![behind],
                ..HiddenPlaces::default()
            });
            let weights = Weights::for_unknown_model();
            let records = [&places, &record];
            let echo = edit_echo(&conversation, 0, &records, None, true, &weights);
            let sent = echo.edits.apply(&conversation.body).to_bytes();
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            let blocks = sent["messages"][0]["content"].as_array().unwrap();
            assert!(blocks.contains(&hidden), "{behind} behind it: {sent}");
            assert!(!blocks.contains(&thinking), "{sent}");
        }
    }
}

/// The place of the call is the start of a text that goes, with another one before it.
#[test]
fn a_call_returns_between_texts_that_go() {
    let client_call = json!({"type": "tool_use", "id": "b", "name": "f", "input": {}});
    let hidden = json!({"type": "tool_use", "id": "a", "name": "recall", "input": {}});
    let text = |text: &str| json!({"type": "text", "text": text});
    let body = json!({"messages": [
        {"role": "assistant", "content": [text("x"), text("y"), client_call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "z"}]},
    ]});
    let conversation = messages::index_body(Bytes::from(body.to_string())).unwrap();
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "y"});
    let calls = InjectionContent::Calls {
        client_calls: 1,
        calls: vec![InjectedCall {
            before: 0,
            json: hidden.to_string().into(),
        }],
        results: vec![result.to_string().into()],
    };
    let places = InjectionContent::HiddenPlaces(HiddenPlaces {
        calls: vec![2],
        ..HiddenPlaces::default()
    });
    let said = spoken("xy", 2);
    let weights = Weights::for_unknown_model();
    let records = [&places, &calls, &said];
    let echo = edit_echo(&conversation, 0, &records, Some(&[]), false, &weights);
    let sent = echo.edits.apply(&conversation.body).to_bytes();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(
        sent["messages"][0]["content"],
        json!([hidden, client_call]),
        "{sent}"
    );
    let results = sent["messages"][1]["content"].as_array().unwrap();
    assert!(results.contains(&result), "{sent}");
}
