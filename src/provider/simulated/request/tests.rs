//! What the request parameters may be.

use serde_json::json;

use super::*;

/// A small valid request with these members added or replaced.
fn request(more: &Value) -> Value {
    let mut body = json!({
        "model": "plimsoll-8k",
        "messages": [{"role": "user", "content": "hi, in JSON please"}],
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// `expected` is a piece of the refusal; empty: the request is taken.
fn check(more: Value, expected: &str) {
    match ChatRequest::parse(&request(&more)) {
        Ok(_) => assert_eq!(expected, "", "taken: {more}"),
        Err(refusal) => assert!(
            !expected.is_empty() && refusal.message.contains(expected),
            "{more}: {refusal}"
        ),
    }
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

#[test]
fn models_are_known_by_name() {
    check(json!({}), "");
    check(
        json!({"model": "gpt-4o"}),
        "The model `gpt-4o` does not exist",
    );
    check(json!({"model": null}), "you must provide a model parameter");
    check(json!({"model": 3}), "Invalid type for 'model'");
    let body = request(&json!({"model": "nothing"}));
    let refusal = ChatRequest::parse(&body).unwrap_err();
    assert_eq!(
        (refusal.status.as_u16(), refusal.code),
        (404, Some("model_not_found"))
    );
    assert!(
        ChatRequest::parse(&json!([]))
            .unwrap_err()
            .message
            .contains("could not parse")
    );
}

#[test]
fn tools_and_their_choice() {
    check(
        json!({"tools": [tool("a")], "tool_choice": "required", "parallel_tool_calls": false}),
        "",
    );
    check(
        json!({"tools": [tool("a")], "tool_choice": {"type": "function", "function": {"name": "a"}}}),
        "",
    );
    check(
        json!({"tools": [tool("a")], "tool_choice": {"type": "function", "function": {"name": "b"}}}),
        "'b' was not found",
    );
    check(json!({"tools": []}), "'tools': empty array");
    check(json!({"tools": {}}), "an array of objects");
    check(json!({"tools": [1]}), "'tools[0]': expected an object");
    check(
        json!({"tools": [{"type": "search"}]}),
        "Invalid value: 'search'",
    );
    check(
        json!({"tools": [{"type": "function", "function": {}}]}),
        "'tools[0].function.name'",
    );
    check(
        json!({"tools": [{"type": "custom", "custom": {"name": "shell"}}]}),
        "",
    );
    check(
        json!({"tool_choice": "auto"}),
        "only allowed when 'tools' are specified",
    );
    check(json!({"tool_choice": "none"}), "");
    check(
        json!({"parallel_tool_calls": true}),
        "only allowed when 'tools' are specified",
    );
}

#[test]
fn limits_and_numbers() {
    check(json!({"n": 0}), "Expected a value >= 1, but got 0 instead");
    check(json!({"n": 129}), "Expected a value <= 128");
    check(json!({"max_tokens": -1}), "integer below minimum value");
    check(
        json!({"max_tokens": 5, "max_completion_tokens": 5}),
        "at the same time",
    );
    check(json!({"max_tokens": null, "max_completion_tokens": 5}), "");
    let body = request(&json!({"max_completion_tokens": 7, "n": 2}));
    let request = ChatRequest::parse(&body).unwrap();
    assert_eq!((request.limit, request.n), (Some(7), 2));
}

#[test]
fn streams_and_formats() {
    check(
        json!({"stream_options": {"include_usage": true}}),
        "only allowed when 'stream' is enabled",
    );
    check(
        json!({"stream": true, "stream_options": {"include_usage": true}}),
        "",
    );
    check(json!({"response_format": {"type": "json_object"}}), "");
    check(
        json!({"response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "x"}]}),
        "must contain the word 'json'",
    );
    check(
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}}),
        "",
    );
}
