//! Which conversations are taken, and what is said about the others.

use serde_json::json;

use super::*;

fn refusal(list: Value) -> Option<Refusal> {
    let body = json!({"messages": list});
    messages(body.as_object().unwrap()).err()
}

/// `expected` is a piece of the message; empty: the conversation is taken.
fn check(list: Value, expected: &str) {
    match refusal(list.clone()) {
        None => assert_eq!(expected, "", "taken: {list}"),
        Some(refusal) => {
            assert!(!expected.is_empty(), "refused: {list}: {refusal}");
            assert!(refusal.message.contains(expected), "{refusal}");
            assert_eq!(refusal.status, 400);
        }
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn calls(ids: &[&str]) -> Value {
    let calls: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn tool(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "done"})
}

const ORPHAN: &str = "messages with role 'tool' must be a response to a preceding message";
const UNANSWERED: &str = "must be followed by tool messages responding to each 'tool_call_id'";

#[test]
fn valid_conversations_are_taken() {
    check(json!([user("hi")]), "");
    check(
        json!([user("a"), user("b"), {"role": "system", "content": "late"}]),
        "",
    );
    check(
        json!([
            user("a"),
            calls(&["1", "2"]),
            tool("2"),
            tool("1"),
            user("b")
        ]),
        "",
    );
    let mut empty = calls(&["1"]);
    empty["content"] = json!([]);
    check(json!([user("a"), empty, tool("1")]), "");
    // The same id again in a later step, and twice in one step.
    check(
        json!([
            user("a"),
            calls(&["1"]),
            tool("1"),
            calls(&["1"]),
            tool("1")
        ]),
        "",
    );
    check(
        json!([user("a"), calls(&["1", "1"]), tool("1"), tool("1")]),
        "",
    );
    check(
        json!([user("a"), {"role": "assistant", "content": null, "refusal": "no"}]),
        "",
    );
    check(
        json!([user("a"),
            {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": null}]),
        "",
    );
    check(
        json!([{"role": "user", "content": [{"type": "text", "text": "x"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            {"type": "input_audio", "input_audio": {}}, {"type": "file", "file": {}}]}]),
        "",
    );
}

#[test]
fn calls_and_answers_are_paired_by_position() {
    check(json!([user("a"), tool("1")]), ORPHAN);
    check(json!([user("a"), calls(&["1"]), tool("2")]), ORPHAN);
    check(
        json!([user("a"), calls(&["1"]), tool("1"), tool("1")]),
        ORPHAN,
    );
    check(
        json!([user("a"), calls(&["1"]), tool("1"), user("b"), tool("1")]),
        ORPHAN,
    );
    check(json!([user("a"), calls(&["1"])]), UNANSWERED);
    check(
        json!([user("a"), calls(&["1", "2"]), tool("1"), user("b")]),
        UNANSWERED,
    );
    let refusal = refusal(json!([user("a"), calls(&["x1", "x2"]), user("b")])).unwrap();
    assert!(refusal.message.ends_with("response messages: x1, x2"));
    assert_eq!(refusal.param.as_deref(), Some("messages.[2].role"));
}

#[test]
fn shapes_are_checked() {
    check(json!([]), "Invalid 'messages': empty array.");
    check(
        json!("hi"),
        "expected an array of objects, but got a string instead",
    );
    check(
        json!([1]),
        "Invalid type for 'messages[0]': expected an object, but got an integer",
    );
    check(
        json!([{"content": "x"}]),
        "Missing required parameter: 'messages[0].role'.",
    );
    check(
        json!([{"role": "robot", "content": "x"}]),
        "Invalid value: 'robot'.",
    );
    check(
        json!([{"role": "user"}]),
        "Missing required parameter: 'messages[0].content'.",
    );
    check(
        json!([{"role": "user", "content": null}]),
        "expected a string, got null",
    );
    check(
        json!([{"role": "user", "content": 1.5}]),
        "but got a decimal instead",
    );
    check(
        json!([{"role": "user", "content": []}]),
        "'messages[0].content': empty array",
    );
    check(
        json!([user("a"), {"role": "assistant"}]),
        "expected a string, got null",
    );
    check(
        json!([user("a"), {"role": "tool", "content": "x"}]),
        "'messages[1].tool_call_id'",
    );
    check(
        json!([user("a"), {"role": "function", "content": "x"}]),
        "'messages[1].name'",
    );
    assert_eq!(
        messages(json!({}).as_object().unwrap()).unwrap_err(),
        Refusal::missing("messages")
    );
}

#[test]
fn calls_and_parts_are_checked() {
    let assistant = |calls: Value| json!([user("a"), {"role": "assistant", "content": "", "tool_calls": calls}]);
    check(
        assistant(json!([])),
        "'messages[1].tool_calls': empty array",
    );
    check(assistant(json!({})), "expected an array of objects");
    check(
        assistant(json!([{"type": "function"}])),
        "'messages[1].tool_calls[0].id'",
    );
    check(
        assistant(json!([{"id": "1"}])),
        "'messages[1].tool_calls[0].type'",
    );
    check(
        assistant(json!([{"id": "1", "type": "x"}])),
        "Invalid value: 'x'",
    );
    check(
        assistant(json!([{"id": "1", "type": "function"}])),
        "tool_calls[0].function'",
    );
    check(
        assistant(
            json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}}]),
        ),
        "tool_calls[0].function.arguments': expected a string, but got an object",
    );
    let parts = |part: Value| json!([{"role": "user", "content": [part]}]);
    check(
        parts(json!("x")),
        "'messages[0].content[0]': expected an object",
    );
    check(parts(json!({"text": "x"})), "'messages[0].content[0].type'");
    check(parts(json!({"type": "video"})), "Invalid value: 'video'.");
    check(
        parts(json!({"type": "text"})),
        "'messages[0].content[0].text'",
    );
    check(
        parts(json!({"type": "image_url", "image_url": "u"})),
        "expected an object",
    );
    check(
        json!([{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]),
        "Image URLs are only allowed for messages with role 'user'",
    );
}
