//! What is written into a request.

use super::*;

#[test]
fn what_is_written_is_read_back() {
    let format = Format::Responses;
    let tool_call = ProxyToolCall {
        id: "c9".into(),
        name: "recall".into(),
        json: call("c9").to_string().into(),
        ..Default::default()
    };
    let result = format.result_item(&tool_call, "a \"quoted\" text");
    let step = format.calls_item(&[&tool_call.json]);
    let (user, developer) = (
        format.text_item(Author::User, "u"),
        format.text_item(Author::System, "d"),
    );
    let answer = format.text_item(Author::Model, "a");
    let found = format
        .index_items(&[&user, &developer, &step, &result, &answer])
        .unwrap();
    assert_eq!(
        authors(&found),
        [
            Author::User,
            Author::System,
            Author::Model,
            Author::Tool,
            Author::Model
        ]
    );
    assert_eq!(unit_lengths(&found), [-1, -1, 2, 1]);
    assert!(!String::from_utf8_lossy(&found.body).contains(r#""id""#));
    let overlong = ProxyToolCall {
        overlong: true,
        ..tool_call
    };
    let written = format.write_call(&overlong, 10);
    assert!(
        format
            .index_items(&[&written, &result])
            .is_some_and(|it| units::split_units(&it)[0].is_removable())
    );

    let tool = ToolForm::ResponsesTools.write_tool(&ToolSchema {
        name: "recall",
        description: "d",
        arguments: &[],
    });
    let tool: Value = serde_json::from_str(&tool).unwrap();
    assert_eq!(
        tool,
        json!({"type": "function", "name": "recall", "description": "d", "strict": false,
            "parameters": {"type": "object", "properties": {}}})
    );
}

#[test]
fn an_answer_that_is_too_long_keeps_its_reasoning_and_its_calls() {
    let format = Format::Responses;
    let message =
        [reasoning("rs_1"), answer(&"long ".repeat(500)), call("c")].map(|it| it.to_string());
    let turn = ModelAnswer {
        message: message.join(",").into(),
        proxy_calls: vec![ProxyToolCall {
            id: "c".into(),
            name: "read".into(),
            json: call("c").to_string().into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    assert_eq!(
        format.answer_item(&turn, 100_000, 1_000),
        Some(turn.message.clone())
    );
    let short = format.answer_item(&turn, 6_000, 1_000).unwrap();
    assert_eq!(*short, *[&*message[0], &*message[2]].join(","));
    assert_eq!(format.answer_item(&turn, 1_000, 1_000), None);
}

#[test]
fn a_summary_is_asked_for_without_the_shape_of_the_answer() {
    let limit = AnswerLimit {
        tokens: 400,
        names_completion_cap: true,
    };
    let ask = |members: Value| {
        let conversation = index(&members);
        let mut edits = Edits::default();
        conversation.ask_for_text("small", limit, &mut edits);
        let body = edits.apply(&conversation.body).to_bytes();
        serde_json::from_slice::<Value>(&body).unwrap()
    };
    let asked = ask(
        json!({"model": "m", "input": [user("u")], "stream": true, "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "json_object"}}, "tools": [{"type": "function", "name": "f"}], "tool_choice": "auto",
        "prompt_cache_key": "k", "max_output_tokens": 9_000}),
    );
    assert_eq!(
        asked,
        json!({"model": "small", "input": [user("u")], "stream": false, "tools": [{"type": "function", "name": "f"}],
            "tool_choice": "none", "prompt_cache_key": "k", "max_output_tokens": 400, "store": false})
    );
    let stored = ask(json!({"input": [], "store": true, "text": {"verbosity": "low"}}));
    assert_eq!(
        stored,
        json!({"input": [], "store": true, "text": {"verbosity": "low"}, "model": "small", "max_output_tokens": 400})
    );
    let request = Format::Responses.text_request(&TextRequest {
        model: "m",
        text: "t",
        limit,
    });
    let request: Value = serde_json::from_slice(&request).unwrap();
    assert_eq!(
        request,
        json!({"model": "m", "input": [user("t")], "max_output_tokens": 400, "store": false})
    );
}
