//! Which words are heard, what is noted, and what is summarised.

use serde_json::json;

use super::*;

const NOTICE: &str = "A note of the context guard: the window fills up. Please call add_reminder \
    for what must not be lost, then go on.";
const COUNTDOWN: &str = "Replies that remain before the new course, this reply included: 4. Call \
    add_reminder now; clear_mind begins it earlier.";
const ASK: &str = "Summarise the record.\n<summary key=\"ab12\">\n<done>…</done>";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn calling(name: &str, arguments: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": name, "arguments": arguments}}]})
}

fn result(text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": "c1", "content": text})
}

fn find(messages: &[Value], more: &Value) -> Option<Wanted> {
    let tools = ["read_file", ADD, UPDATE, CLEAR].map(|name| {
        json!({"type": "function", "function": {"name": name,
            "parameters": {"type": "object", "properties": {"note": {"type": "string"}}}}})
    });
    let mut body = json!({"model": "plimsoll-8k", "messages": messages, "tools": tools});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    find_wanted(&ChatRequest::parse(&body).unwrap())
}

/// The name of the call that is wanted.
fn find_call(messages: &[Value], more: &Value) -> Option<&'static str> {
    match find(messages, more) {
        Some(Wanted::Call(call)) => Some(call.name),
        Some(other) => panic!("{other:?}"),
        None => None,
    }
}

#[test]
fn a_notice_is_heard_wherever_it_stands_last() {
    let parts = json!({"role": "user", "content": [{"type": "text", "text": "Mend it"},
        {"type": "text", "text": NOTICE}]});
    let read = calling("read_file", "{}");
    for messages in [
        vec![user("Mend it"), user(NOTICE)],
        vec![user(&format!("Mend it\n\n{NOTICE}"))],
        vec![parts],
        vec![user("a"), read.clone(), result("text"), user(NOTICE)],
        vec![user("a"), read, result(&format!("text\n[{NOTICE}]"))],
    ] {
        assert_eq!(find_call(&messages, &json!({})), Some(ADD), "{messages:?}");
    }
    let required = json!({"tool_choice": "required"});
    assert_eq!(find_call(&[user(NOTICE)], &required), Some(ADD));
}

#[test]
fn what_was_answered_is_history_and_nothing_is_done_that_cannot_be_done() {
    let answered = [
        user(NOTICE),
        calling(ADD, "{}"),
        result("Noted. add_reminder"),
    ];
    assert_eq!(find(&answered, &json!({})), None);
    let said = json!({"role": "assistant", "content": "Aye"});
    assert_eq!(find(&[user(NOTICE), said, user("more")], &json!({})), None);
    assert_eq!(find(&[user("Mend it")], &json!({})), None);
    for choice in [
        json!("none"),
        json!({"type": "function", "function": {"name": "read_file"}}),
    ] {
        assert_eq!(find(&[user(NOTICE)], &json!({"tool_choice": choice})), None);
    }
    let other = json!([{"type": "function", "function": {"name": "read_file"}}]);
    assert_eq!(find(&[user(NOTICE)], &json!({"tools": other})), None);
}

#[test]
fn the_mind_is_cleared_when_few_answers_remain() {
    for (left, expected) in [("5", ADD), ("3", ADD), ("2", CLEAR), ("1", CLEAR)] {
        let english = COUNTDOWN.replace('4', left);
        let chinese = format!("还有回复（含本次）：{left} 次。请用 add_reminder 或 clear_mind。");
        for text in [english, chinese] {
            assert_eq!(
                find_call(&[user(&text)], &json!({})),
                Some(expected),
                "{text}"
            );
        }
    }
}

#[test]
fn many_notes_are_brought_up_to_date() {
    let saved: String = (1..=6)
        .map(|id| format!("<reminder id=\"r{id}\">x</reminder>"))
        .collect();
    let messages = [
        user("Mend it"),
        user(&saved),
        user("Saved as r1"),
        user(NOTICE),
    ];
    assert_eq!(find_note_ids(&messages).len(), 6);
    let Some(Wanted::Call(call)) = find(&messages, &json!({})) else {
        panic!("no call");
    };
    assert_eq!((call.name, &call.arguments["id"]), (UPDATE, &json!("r5")));
}

#[test]
fn without_tools_a_block_is_asked_for() {
    let asks = user("Please end your answer with <continuation_package>…</continuation_package>");
    let wanted = find(&[user("Mend it"), asks.clone()], &json!({"tools": null}));
    let Some(Wanted::Block(block)) = wanted else {
        panic!("{wanted:?}");
    };
    assert!(block.starts_with(PACKAGE[0]) && block.ends_with(PACKAGE[1]));
    let object = json!({"tools": null, "response_format": {"type": "json_object"}});
    assert_eq!(find(&[user("JSON"), asks], &object), None);
}

#[test]
fn notes_are_drawn_from_the_conversation_and_bounded() {
    let messages = [
        user("Repair the tide tables"),
        calling("run", r#"{"command": "cargo test"}"#),
        result("3 of 9 failed\nmore"),
        user(NOTICE),
    ];
    assert_eq!(
        write_notes(&messages),
        "First step: go on with Repair the tide tables\n\
         Pointers: {\"command\": \"cargo test\"}\nDetail: 3 of 9 failed"
    );
    let long = "x ".repeat(100_000);
    assert!(write_notes(&[user(&long), result(&long)]).len() < 500);
    assert!(write_notes(&[]).contains("Pointers: none"));
    let chinese = [user("请用 add_reminder 写下提醒项，然后继续工作。")];
    assert!(write_notes(&chinese).starts_with("第一步"));
}

#[test]
fn a_summary_has_the_key_and_every_section() {
    let said = [user("Mend the <lights>"), result("all good"), user(ASK)];
    assert_eq!(
        write_summary(&said).unwrap(),
        "<summary key=\"ab12\">\n<done>Worked on: Mend the  lights </done>\n\
         <to_do>Mend the  lights </to_do>\n<current_state>all good</current_state>\n\
         <key_context>none</key_context>\n<next_steps>Go on with: Mend the  lights </next_steps>\n\
         <cautions>none</cautions>\n</summary>"
    );
    let record = format!(
        "Between the <transcript> tags it is.\n\n<transcript key=\"abc\">\n[abc user]\nMend the \
         lights\n[abc tool result]\nall good\n</transcript>\n\n{ASK}"
    );
    let summary = write_summary(&[user(&record)]).unwrap();
    assert!(summary.contains("<to_do>Mend the lights<"), "{summary}");
    assert!(summary.contains("<current_state>all good<"), "{summary}");
    assert_eq!(write_summary(&said[..1]), None);
    assert_eq!(write_summary(&[]), None);
}
