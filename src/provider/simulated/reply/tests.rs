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
    let ask = Ask::of(&body).unwrap();
    let prompt = Prompt::of(0, &ask.schemas, ask.messages);
    all(&ask, &prompt)
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
    ])
}

#[test]
fn text_without_tools_and_the_same_every_time() {
    let reply = only(json!({}));
    assert_eq!(reply, only(json!({"stream": true})));
    assert_ne!(reply, only(json!({"seed": 4})));
    assert!(reply.content.as_ref().unwrap().contains("harbours"));
    assert_eq!((reply.finish, reply.calls.len()), (Finish::Stop, 0));
    assert_eq!(reply.tokens, count::text(reply.content.as_ref().unwrap()));
    let three = replies(json!({"n": 3}));
    assert!(three.len() == 3 && three[0] != three[1] && three[1] != three[2]);
}

#[test]
fn limits_and_stops_end_an_answer() {
    let short = only(json!({"max_tokens": 5}));
    assert_eq!((short.finish, short.tokens), (Finish::Length, 5));
    let whole = only(json!({})).content.unwrap();
    let stopped = only(json!({"stop": [" and", "harbours"]}));
    assert_eq!(stopped.finish, Finish::Stop);
    let content = stopped.content.unwrap();
    assert!(whole.starts_with(&content) && !content.contains("harbours"));
    let call = only(json!({"tools": tools(), "tool_choice": "required", "max_tokens": 1}));
    assert_eq!((call.finish, call.calls.len()), (Finish::Length, 0));
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
    for seed in 0..40 {
        let with =
            |choice: Value| only(json!({"tools": tools(), "tool_choice": choice, "seed": seed}));
        assert!(with(json!("none")).calls.is_empty());
        let required = with(json!("required"));
        assert!(!required.calls.is_empty() && required.finish == Finish::ToolCalls);
        let named = with(json!({"type": "function", "function": {"name": "read_file"}}));
        assert_eq!((named.calls.len(), named.finish), (1, Finish::Stop));
        let arguments: Value = serde_json::from_str(&named.calls[0].input).unwrap();
        assert!(arguments["path"].is_string());
        let serial = only(json!({"tools": tools(), "tool_choice": "required",
            "parallel_tool_calls": false, "seed": seed}));
        assert_eq!(serial.calls.len(), 1);
    }
    let parallel = (0..100).filter(|seed| {
        only(json!({"tools": tools(), "tool_choice": "required", "seed": seed}))
            .calls
            .len()
            > 1
    });
    assert!((5..50).contains(&parallel.count()));
}

#[test]
fn legacy_functions_and_custom_tools_are_called_in_their_way() {
    let function = json!({"name": "look", "parameters": {"type": "object",
        "properties": {"place": {"type": "string"}}, "required": ["place"]}});
    let calls = (0..20).filter(|seed| {
        let reply = only(json!({"functions": [function], "seed": seed}));
        reply.finish == Finish::FunctionCall && reply.calls[0].kind == Kind::Legacy
    });
    assert!(calls.count() > 10);
    let named = only(json!({"functions": [function], "function_call": {"name": "look"}}));
    assert_eq!((named.finish, named.calls.len()), (Finish::Stop, 1));
    let custom = only(
        json!({"tools": [{"type": "custom", "custom": {"name": "shell"}}],
        "tool_choice": "required"}),
    );
    assert_eq!(custom.calls[0].kind, Kind::Custom);
}

#[test]
fn a_tool_loop_ends_after_a_few_rounds() {
    let mut lengths = Vec::new();
    for turn in 0..60 {
        let mut messages = vec![json!({"role": "user", "content": format!("Mend leak {turn}")})];
        let mut rounds = 0;
        loop {
            let reply = only(json!({"messages": messages, "tools": tools()}));
            if reply.calls.is_empty() {
                assert!(!reply.content.unwrap().is_empty());
                break;
            }
            rounds += 1;
            let calls: Vec<Value> = reply
                .calls
                .iter()
                .map(|call| {
                    json!({"id": call.id,
                "type": "function", "function": {"name": call.name, "arguments": call.input}})
                })
                .collect();
            messages
                .push(json!({"role": "assistant", "content": reply.content, "tool_calls": calls}));
            let results = reply
                .calls
                .iter()
                .map(|call| json!({"role": "tool", "tool_call_id": call.id, "content": "ok"}));
            messages.extend(results);
        }
        lengths.push(rounds);
    }
    lengths.sort_unstable();
    assert!(lengths[59] <= ROUNDS, "{lengths:?}");
    assert!((2..=4).contains(&lengths[30]), "{lengths:?}");
}

fn reminding() -> Value {
    let note = |name: &str, property: &str, required: Value| {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object",
            "properties": {property: {"type": "string"}}, "required": required}}})
    };
    let mut tools = tools();
    let own = [
        note("add_reminder", "content", json!(["content"])),
        note("clear_mind", "reminder_content", json!([])),
    ];
    tools.as_array_mut().unwrap().extend(own);
    tools
}

#[test]
fn notes_are_written_when_asked_for_and_never_before() {
    let name = |reply: &Reply| -> Vec<String> {
        reply.calls.iter().map(|call| call.name.clone()).collect()
    };
    let (mut several, mut before, mut after) = (0, 0, 0);
    for seed in 0..200 {
        let unasked = only(json!({"tools": reminding(), "seed": seed}));
        assert!(!name(&unasked).contains(&"add_reminder".to_owned()));
        let notice = json!({"role": "user", "content": "The window fills up: call add_reminder."});
        let task = json!({"role": "user", "content": "Please list the harbours"});
        let asked = only(json!({"tools": reminding(), "seed": seed, "messages": [task, notice]}));
        assert_eq!(asked.finish, Finish::ToolCalls);
        let names = name(&asked);
        let own = names.iter().filter(|name| *name == "add_reminder").count();
        assert!(own == 1 || own == 4, "{names:?}");
        several += usize::from(own == 4);
        before += usize::from(names[0] != "add_reminder");
        after += usize::from(names[0] == "add_reminder" && names.len() > own);
        let first = asked.calls.iter().find(|call| call.name == "add_reminder");
        let note: Value = serde_json::from_str(&first.unwrap().input).unwrap();
        assert!(
            note["content"].as_str().unwrap().contains("First step"),
            "{note}"
        );
    }
    assert!(
        several > 20 && before > 10 && after > 10,
        "{several} {before} {after}"
    );
}

#[test]
fn where_there_are_many_notes_one_is_brought_up_to_date() {
    let mut tools = reminding();
    let properties = json!({"id": {"type": "string"}, "content": {"type": "string"}});
    let update = json!({"type": "function", "function": {"name": "update_reminder",
        "parameters": {"type": "object", "properties": properties, "required": ["id", "content"]}}});
    tools.as_array_mut().unwrap().push(update);
    let told = |notes: usize, notice: &str| {
        let mut kept: Vec<String> = (1..notes)
            .map(|id| format!("<reminder id=\"r{id}\">\nx\n</reminder>"))
            .collect();
        kept.push(format!(
            "Saved as r{notes}. Saved as r1. <reminder id=\"r?\">"
        ));
        let messages = json!([{"role": "user", "content": kept.join("\n")},
            {"role": "user", "content": notice}]);
        let reply = only(json!({"tools": tools, "messages": messages,
            "parallel_tool_calls": false}));
        let call = reply.calls.into_iter().next().unwrap();
        (call.name, call.input)
    };
    assert_eq!(told(5, "Call add_reminder.").0, "add_reminder");
    let (name, input) = told(6, "Call add_reminder.");
    let input: Value = serde_json::from_str(&input).unwrap();
    assert_eq!(name, "update_reminder");
    assert!(input["id"].as_str().unwrap().starts_with('r'), "{input}");
    assert!(input["content"].as_str().unwrap().starts_with("First step"));
    let few = "2 generations remain: add_reminder, or clear_mind";
    assert_eq!(told(6, few), ("clear_mind".to_owned(), "{}".to_owned()));
}

#[test]
fn the_mind_is_cleared_with_a_last_note() {
    let notice = "2 generations remain before the context is cleared: add_reminder, or clear_mind";
    let messages = json!([{"role": "user", "content": notice}]);
    let reply = only(json!({"tools": reminding(), "messages": messages,
        "parallel_tool_calls": false}));
    assert_eq!(
        (reply.calls.len(), reply.calls[0].name.as_str()),
        (1, "clear_mind")
    );
    assert!(
        reply.calls[0]
            .input
            .starts_with("{\"reminder_content\":\"First step")
    );
}

#[test]
fn a_block_stands_at_the_end_of_an_answer() {
    let messages = json!([{"role": "user", "content": "Please list the harbours"},
        {"role": "user", "content": "End with <continuation_package>…</continuation_package>."}]);
    let content = only(json!({"messages": messages})).content.unwrap();
    let (said, block) = content.split_once("\n\n<continuation_package>\n").unwrap();
    assert!(said.contains("harbours") && block.ends_with("\n</continuation_package>"));
    assert!(block.contains("First step: go on with Please list harbours"));
}
