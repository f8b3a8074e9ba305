use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    conversation::{
        Author, BlockKind, Content, Conversation, Format, IndexError, edit::Edits, units,
    },
    format::{AnswerLimit, ModelAnswer, ProxyToolCall, TextRequest, ToolForm, ToolSchema},
};

mod edits;
mod pairs;
mod request;

fn index(body: &Value) -> Conversation {
    Format::Responses
        .index_body(Bytes::from(body.to_string()))
        .unwrap()
}

fn index_list(entries: &[Value]) -> Conversation {
    index(&json!({"model": "m", "input": entries}))
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{\"path\":\"a\"}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "text of a file"})
}

fn reasoning(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "Z".repeat(4_000)})
}

fn answer(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn with(mut entry: Value, key: &str, value: Value) -> Value {
    entry[key] = value;
    entry
}

fn authors(conversation: &Conversation) -> Vec<Author> {
    conversation.items.iter().map(|item| item.author).collect()
}

/// The lengths of the units, in items; a unit that stays is negative.
fn unit_lengths(conversation: &Conversation) -> Vec<i64> {
    let units = units::split_units(conversation);
    let lengths = units.iter().map(|unit| {
        let length = unit.messages.len() as i64;
        if unit.is_pinned { -length } else { length }
    });
    lengths.collect()
}

#[test]
fn entries_of_one_answer_are_one_item() {
    let found = index(&json!({
        "input": [
            {"role": "developer", "content": "Be brief."},
            user("What is in a?"),
            reasoning("rs_1"),
            answer("I look."),
            call("c1"),
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
            call("c2"),
            output("c1"),
            output("c2"),
            answer("It is a boat."),
            user("Thanks"),
        ],
        "instructions": "You help.",
    }));
    use Author::{Model, System, Tool, User};
    assert_eq!(
        authors(&found),
        [System, System, User, Model, Tool, Tool, Model, User]
    );
    assert_eq!(unit_lengths(&found), [-1, -1, -1, 3, 1, 1]);
    let item = &found.items[3];
    let kinds: Vec<_> = found.blocks_of(item).iter().map(|it| it.kind).collect();
    assert!(matches!(
        kinds[..],
        [
            BlockKind::Reasoning(None),
            BlockKind::Text(_),
            BlockKind::Call,
            BlockKind::Opaque,
            BlockKind::Call
        ]
    ));
    assert_eq!(found.calls_of(item).len(), 2);
    let span = found.span_bytes(item.span);
    assert!(span.starts_with(b"{") && span.ends_with(b"}"));
    let entries: Vec<Value> = serde_json::from_slice(&[b"[", span, b"]"].concat()).unwrap();
    assert_eq!(entries.len(), 5);
    // Encrypted reasoning weighs as the text in it.
    assert!(
        (2_300..2_500).contains(&item.sizes.total_chars()),
        "{:?}",
        item.sizes
    );
}

#[test]
fn every_kind_of_call_is_paired_with_its_output() {
    let text = |output: &str| json!(output);
    for (call, output, editable, texts) in [
        (call("c"), output("c"), true, 1),
        (
            json!({"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin Patch"}),
            json!({"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]}),
            true,
            1,
        ),
        (
            json!({"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}}),
            json!({"type": "local_shell_call_output", "id": "lsh_1", "output": text("a b")}),
            true,
            1,
        ),
        (
            json!({"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}}),
            output("c"),
            true,
            1,
        ),
        (
            json!({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls", "pwd"]}}),
            json!({"type": "shell_call_output", "call_id": "c", "output": [
                {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                {"stdout": "b", "stderr": "e", "outcome": {"type": "exit", "exit_code": 1}}]}),
            true,
            4,
        ),
        (
            json!({"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}}),
            json!({"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}),
            true,
            0,
        ),
        (
            json!({"type": "computer_call", "call_id": "c", "actions": [{"type": "click"}], "pending_safety_checks": []}),
            json!({"type": "computer_call_output", "call_id": "c",
                "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,aGVsbG8"}}),
            false,
            0,
        ),
        (
            json!({"type": "program", "call_id": "c", "code": "go()", "fingerprint": "f"}),
            json!({"type": "program_output", "call_id": "c", "result": "1", "status": "completed"}),
            false,
            0,
        ),
        (
            json!({"type": "mcp_approval_request", "id": "c", "name": "drop", "arguments": "{}", "server_label": "s"}),
            json!({"type": "mcp_approval_response", "approval_request_id": "c", "approve": true}),
            false,
            0,
        ),
    ] {
        let found = index_list(&[user("go"), call.clone(), output.clone(), user("on")]);
        assert_eq!(unit_lengths(&found), [-1, 2, 1], "{call}");
        let (asked, result) = (&found.calls[0], &found.items[2]);
        assert_eq!(asked.editable_arguments().is_some(), editable, "{call}");
        assert!(asked.listed && asked.name.is_some(), "{call}");
        assert_eq!(found.texts_of(result).count(), texts, "{output}");
    }
}

#[test]
fn reasoning_of_earlier_turns_weighs_nothing_where_the_model_does_not_read_it() {
    let list = json!([
        user("u"),
        reasoning("rs_1"),
        call("a"),
        output("a"),
        user("v"),
        reasoning("rs_2"),
        call("b")
    ]);
    let index = |context: &str| {
        let body = json!({"input": list, "reasoning": {"context": context}});
        Format::Responses
            .index_body(body.to_string().into())
            .unwrap()
    };
    let (all, current) = (index("all_turns"), index("current_turn"));
    let chars = |found: &Conversation, at: usize| found.items[at].sizes.total_chars();
    assert!(chars(&all, 1) > 2_000);
    assert!(chars(&current, 1) < 200);
    assert_eq!(chars(&all, 4), chars(&current, 4));
    let reasoning = current.measure_reasoning(&current.items[1]).unwrap();
    assert_eq!(reasoning.total_chars(), 0);
    assert_eq!(all.items[1].digest, current.items[1].digest);
}

#[test]
fn digests_leave_out_ids_states_and_reasoning() {
    let digests = |entries: &[Value]| -> Vec<u128> {
        let found = index_list(entries);
        found.items.iter().map(|item| item.digest).collect()
    };
    let search = json!({"type": "web_search_call", "action": {"query": "q", "id": "1"}});
    let plain = [
        user("u"),
        json!({"role": "assistant", "content": "Well."}),
        search.clone(),
        call("c"),
        output("c"),
    ];
    let detailed = [
        json!({"content": "u", "role": "user"}),
        reasoning("rs_1"),
        answer("Well."),
        with(
            with(search.clone(), "id", json!("ws_1")),
            "status",
            json!("completed"),
        ),
        with(call("c"), "id", json!("fc_1")),
        with(
            with(output("c"), "id", json!("x")),
            "status",
            json!("completed"),
        ),
    ];
    assert_eq!(digests(&plain), digests(&detailed));
    for (at, changed) in [
        (0, user("v")),
        (1, answer("No.")),
        (
            2,
            json!({"type": "web_search_call", "action": {"query": "q", "id": "2"}}),
        ),
        (3, with(call("c"), "arguments", json!("{}"))),
        (4, with(output("c"), "output", json!("other"))),
    ] {
        let mut entries = plain.clone();
        entries[at] = changed;
        assert_ne!(digests(&plain), digests(&entries), "{at}");
    }
    let custom = |input: &str| {
        let call = json!({"type": "custom_tool_call", "call_id": "c", "name": "p", "input": input});
        digests(&[call, output("c")])
    };
    assert_ne!(custom("a"), custom("b"));
}

#[test]
fn an_input_that_is_a_string_is_one_message() {
    let found = index(&json!({"model": "m", "input": "Hello", "instructions": "Be brief."}));
    assert_eq!(authors(&found), [Author::System, Author::User]);
    assert!(matches!(found.items[1].content, Content::Text(_)));
    let listed = index_list(&[user("Hello")]);
    assert_eq!(found.items[1].digest, listed.items[0].digest);
    let mut edits = Edits::default();
    found.append_text(1, "more", &mut edits);
    let body = edits.apply(&found.body).to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["input"], "Hello\n\nmore");
}

#[test]
fn bodies_that_are_no_conversation_have_no_index() {
    let body = |text: &str| {
        Format::Responses
            .index_body(Bytes::from(text.to_owned()))
            .map(drop)
    };
    for text in [
        "{}",
        r#"{"input":7}"#,
        r#"{"input":["a"]}"#,
        r#"{"input":[],"input":[]}"#,
        r#"{"input":"a","input":[]}"#,
        r#"{"input":[{"type":"message","type":"reasoning"}]}"#,
        r#"{"input":[{"t\u0079pe":"message"}]}"#,
        r#"{"input":[{"role":"user","content":[{"text":"a","text":"b"}]}]}"#,
        "[]",
    ] {
        assert!(
            matches!(body(text), Err(IndexError::Unguardable(_))),
            "{text}"
        );
    }
    assert!(matches!(body(r#"{"input":["#), Err(IndexError::NotJson(_))));
    assert!(body("\u{feff}{\"input\":[]}").is_ok());
}

#[test]
fn annotations_belong_to_their_entry_or_part() {
    let note = json!({"name": "n", "priority": "low"});
    let part = json!({"type": "input_text", "text": "p", "plimsoll": note});
    let found = index(&json!({
        "input": [
            with(user("u"), "plimsoll", note.clone()),
            reasoning("rs_1"),
            with(answer("a"), "plimsoll", note.clone()),
            {"role": "user", "content": [{"type": "input_text", "text": "x"}, part]},
        ],
        "instructions": "i",
    }));
    let places: Vec<_> = found
        .annotations
        .iter()
        .map(|it| (it.message, it.part))
        .collect();
    assert_eq!(places, [(1, None), (2, Some(2)), (3, Some(4))]);
    let mut edits = Edits::default();
    found.take_out_annotations(&mut edits);
    let body = edits.apply(&found.body).to_bytes();
    assert!(serde_json::from_slice::<Value>(&body).is_ok());
    assert!(!String::from_utf8_lossy(&body).contains("plimsoll"));
}

#[test]
fn media_are_told_from_text() {
    let found = index_list(&[
        json!({"role": "user", "content": [
            {"type": "input_text", "text": "t", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8", "detail": "low"},
            {"type": "input_file", "file_id": "file_1"},
            {"type": "input_new"},
        ]}),
        answer("a"),
        json!({"type": "image_generation_call", "id": "ig_1", "result": "aGVsbG8="}),
    ]);
    let kinds: Vec<_> = found
        .blocks
        .iter()
        .map(|block| (block.kind, block.marked))
        .collect();
    assert!(matches!(
        kinds[..],
        [
            (BlockKind::Text(_), true),
            (
                BlockKind::Image {
                    url: Some(_),
                    low: true
                },
                false
            ),
            (BlockKind::Media, false),
            (BlockKind::Opaque, false),
            (BlockKind::Text(_), false),
            (
                BlockKind::Image {
                    url: Some(_),
                    low: false
                },
                true
            ),
        ]
    ));
}
