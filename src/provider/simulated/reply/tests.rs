//! What is answered to which request.

use super::*;

fn replies(more: Value) -> Vec<Reply> {
    let mut body = json!({
        "model": "plimsoll-8k",
        "messages": [{"role": "user", "content": "Please list the harbours as JSON"}],
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let request = ChatRequest::parse(&body).unwrap();
    let prompt = Prompt::count(0, &request.schemas, request.messages);
    make_replies(&request, &prompt)
}

fn only(more: Value) -> Reply {
    let mut replies = replies(more);
    assert_eq!(replies.len(), 1);
    replies.pop().unwrap()
}

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object",
            "properties": {"path": {"type": "string"}}, "required": ["path"]}}},
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "add_reminder", "parameters": {"type": "object",
            "properties": {"content": {"type": "string"}}, "required": ["content"]}}},
    ])
}

#[test]
fn text_without_tools_and_the_same_every_time() {
    let reply = only(json!({}));
    assert_eq!(reply, only(json!({"stream": true})));
    assert_eq!((reply.finish, reply.calls.len()), ("stop", 0));
    assert_eq!(reply.tokens, count_tokens(reply.content.as_ref().unwrap()));
    let three = replies(json!({"n": 3}));
    assert!(three.len() == 3 && three[0] != three[1] && three[1] != three[2]);
    let chinese = json!([{"role": "user", "content": "请看一下这个文件有什么问题"}]);
    assert!(
        only(json!({"messages": chinese}))
            .content
            .unwrap()
            .contains('。')
    );
}

#[test]
fn a_limit_ends_an_answer() {
    let short = only(json!({"max_tokens": 5}));
    assert_eq!((short.finish, short.tokens), ("length", 5));
    let call = only(json!({"tools": tools(), "tool_choice": "required", "max_tokens": 1}));
    assert_eq!((call.finish, call.calls.len()), ("length", 0));
}

#[test]
fn formats_are_answered_with_json() {
    let object = only(json!({"response_format": {"type": "json_object"}}));
    let value: Value = serde_json::from_str(&object.content.unwrap()).unwrap();
    assert!(value["answer"].is_string());
    let schema = json!({"type": "object", "required": ["harbours"], "properties":
        {"harbours": {"type": "array", "items": {"type": "object", "required": ["name", "depth"],
            "properties": {"name": {"type": "string"}, "depth": {"type": "number"}}}}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "h", "strict": true, "schema": schema}});
    let structured = only(json!({"response_format": format}));
    let value: Value = serde_json::from_str(&structured.content.unwrap()).unwrap();
    assert!(value["harbours"][0]["depth"].is_number());
}

#[test]
fn the_choice_of_tools_is_obeyed() {
    let mut parallel = 0;
    for nth in 0..40 {
        let messages = json!([{"role": "user", "content": format!("Mend leak {nth}")}]);
        let with = |choice: Value, parallel: bool| {
            only(
                json!({"messages": messages, "tools": tools(), "tool_choice": choice,
                "parallel_tool_calls": parallel}),
            )
        };
        assert!(with(json!("none"), true).calls.is_empty());
        let required = with(json!("required"), true);
        assert!(!required.calls.is_empty() && required.finish == "tool_calls");
        assert!(
            required
                .calls
                .iter()
                .all(|call| call.name != "add_reminder")
        );
        parallel += usize::from(required.calls.len() > 1);
        let named = json!({"type": "function", "function": {"name": "read_file"}});
        let named = with(named, true);
        assert_eq!((named.calls.len(), named.finish), (1, "stop"));
        let arguments: Value = serde_json::from_str(&named.calls[0].arguments).unwrap();
        assert!(arguments["path"].is_string());
        assert_eq!(with(json!("required"), false).calls.len(), 1);
    }
    assert!((1..20).contains(&parallel), "{parallel}");
}

#[test]
fn a_tool_loop_ends_after_a_few_rounds() {
    let mut messages = vec![json!({"role": "system", "content": "You mend ships."})];
    for turn in 0..20 {
        messages.push(json!({"role": "user", "content": format!("Mend leak {turn}")}));
        let mut rounds = 0;
        loop {
            let reply = only(json!({"messages": messages, "tools": tools()}));
            let calls = reply.calls.iter().map(|call| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments}})
            });
            let calls: Vec<Value> = calls.collect();
            let mut message = json!({"role": "assistant", "content": reply.content});
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            messages.push(message);
            if reply.calls.is_empty() {
                assert!(!reply.content.unwrap().is_empty());
                break;
            }
            rounds += 1;
            let results = reply.calls.iter();
            messages.extend(
                results
                    .map(|call| json!({"role": "tool", "tool_call_id": call.id, "content": "ok"})),
            );
        }
        assert!((1..=MOST_ROUNDS).contains(&rounds), "{rounds}");
    }
}

#[test]
fn what_a_notice_asks_for_comes_first() {
    let task = json!({"role": "user", "content": "Please list the harbours"});
    let notice = json!({"role": "user", "content": "The window fills up: call add_reminder."});
    let asked = only(json!({"tools": tools(), "messages": [task, notice]}));
    assert_eq!((asked.calls.len(), asked.finish), (1, "tool_calls"));
    let note: Value = serde_json::from_str(&asked.calls[0].arguments).unwrap();
    assert!(note["content"].as_str().unwrap().starts_with("First step"));
    let notice = json!({"role": "user",
        "content": "End with <continuation_package>…</continuation_package>."});
    let content = only(json!({"messages": [task, notice]})).content.unwrap();
    let (said, block) = content.split_once("\n\n<continuation_package>\n").unwrap();
    assert!(!said.is_empty() && block.ends_with("\n</continuation_package>"));
}
