//! The items that are kept for a request that continues the answer.

use bytes::Bytes;

use super::{ResponsesAnswer, message, read};
use crate::format::{
    AnswerFilter,
    answer_rewriter::{BlockState, ParsedEvent},
};

/// The items that are assembled of these ends of items, and the arguments of the first call of a tool of the proxy.
fn assembled(events: &[(&str, &str)], more: &str) -> (String, Option<String>) {
    let filter = AnswerFilter {
        tools: &["note"],
        package: false,
    };
    let mut state = BlockState::<ResponsesAnswer>::new(filter, 0);
    let begun = format!(r#"{{"type":"response.created","response":{{"id":"r"{more}}}}}"#);
    let events = events.iter().enumerate();
    let events =
        events.flat_map(|(at, (begun, ended))| {
            [("added", begun), ("done", ended)].map(|(name, item)| if item.is_empty() {
                String::from("{}")
            } else {
                format!(
                r#"{{"type":"response.output_item.{name}","output_index":{at},"item":{item}}}"#
            )
            })
        });
    for data in std::iter::once(begun).chain(events) {
        let mut event = ParsedEvent::new(Bytes::new(), message("", &data), read(&data));
        state.take_event(&mut event);
    }
    let (message, proxy_calls) = state.assemble();
    let first = proxy_calls.first().map(|call| call.arguments.to_string());
    (message, first)
}

#[test]
fn items_are_kept_byte_for_byte() {
    let begun = r#"{"type":"reasoning","id":"rs","encrypted_content":"half"}"#;
    let thought = r#"{ "type":"reasoning", "id":"rs", "encrypted_content":"wh\/ole","x":1.50 }"#;
    let called = r#"{"type":"function_call","id":"fc","call_id":"c","name":"note","arguments":""}"#;
    let call = called.replace(r#""arguments":"""#, r#""arguments":"{\"a\": \"\u00e9\"}""#);
    let (items, arguments) = assembled(&[(begun, thought), (called, &call)], "");
    assert_eq!(items, format!("{thought},{call}"));
    assert_eq!(arguments.unwrap(), "{\"a\": \"\u{e9}\"}");
    // An item that never ends is not known.
    for events in [
        [(called, &*call), (called, "")],
        [(called, ""), (called, &call)],
    ] {
        assert_eq!(assembled(&events, "").0, "");
    }
    let long = call.replace("{\\\"a", &"x".repeat(2 << 20));
    assert_eq!(assembled(&[(called, &long)], "").0, "");
}

#[test]
fn ids_go_with_the_reasoning_that_nobody_keeps() {
    let call = r#"{"type":"function_call","call_id":"c","name":"note","arguments":"{}"}"#;
    for (lost, unstored, thought) in [
        (
            true,
            r#","store":false"#,
            r#"{"type":"reasoning","id":"rs","summary":[]}"#,
        ),
        (
            true,
            r#","store":false"#,
            r#"{"type":"reasoning","encrypted_content":null}"#,
        ),
        (
            true,
            r#","store":false"#,
            r#"{"type":"reasoning","encrypted_content":""}"#,
        ),
        (
            false,
            r#","store":false"#,
            r#"{"type":"reasoning","id":"rs","encrypted_content":"e"}"#,
        ),
        (
            false,
            r#","store":true"#,
            r#"{"type":"reasoning","id":"rs"}"#,
        ),
        (false, "", r#"{"type":"reasoning","id":"rs"}"#),
    ] {
        for (spelt, without) in [
            (r#"{"id":"fc","type":"x_call"}"#, r#"{"type":"x_call"}"#),
            (
                r#"{"type":"x_call" , "id" : "fc" }"#,
                r#"{"type":"x_call" }"#,
            ),
            (
                r#"{"type":"x_call", "id":null, "a":1}"#,
                r#"{"type":"x_call",  "a":1}"#,
            ),
            (r#"{"id":"fc"}"#, "{}"),
        ] {
            let (items, _) = assembled(
                &[(thought, thought), (call, call), (spelt, spelt)],
                unstored,
            );
            let expected = if lost {
                format!("{call},{without}")
            } else {
                format!("{thought},{call},{spelt}")
            };
            assert_eq!(items, expected);
        }
    }
}
