//! Which words are heard, and which are not.

use serde_json::json;

use super::*;

const NOTICE: &str = "A note of the context guard: the window fills up. Please call add_reminder \
    for what must not be lost, then go on.";
const COUNTDOWN: &str = "A note of the context guard. 4 generations remain before the context is \
    cleared. Call add_reminder now; clear_mind clears it earlier.";

fn tools(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"type": "function", "function": {"name": name}});
    names.iter().map(tool).collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn calling(name: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": name, "arguments": "{}"}}]})
}

fn result(text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": "c1", "content": text})
}

#[track_caller]
fn check(messages: &[Value], more: Value, expected: Option<Wanted>) {
    let mut body = json!({"model": "plimsoll-8k", "messages": messages,
        "tools": tools(&["read_file", ADD, CLEAR])});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    assert_eq!(wanted(&Ask::of(&body).unwrap()), expected, "{body}");
}

#[test]
fn a_notice_is_heard_wherever_it_stands_last() {
    let notes = Some(Wanted::Notes);
    check(&[user("Mend it"), user(NOTICE)], json!({}), notes);
    check(&[user(&format!("Mend it\n\n{NOTICE}"))], json!({}), notes);
    let parts = json!({"role": "user", "content": [{"type": "text", "text": "Mend it"},
        {"type": "text", "text": NOTICE}]});
    check(&[parts], json!({}), notes);
    let read = calling("read_file");
    check(
        &[user("a"), read.clone(), result("text"), user(NOTICE)],
        json!({}),
        notes,
    );
    check(
        &[user("a"), read, result(&format!("text\n[{NOTICE}]"))],
        json!({}),
        notes,
    );
    check(&[user(NOTICE)], json!({"tool_choice": "required"}), notes);
}

#[test]
fn what_was_answered_is_history() {
    let answered = [
        user(NOTICE),
        calling(ADD),
        result("Noted. update_reminder or add_reminder"),
    ];
    check(&answered, json!({}), None);
    let gone_on = [
        user(NOTICE),
        json!({"role": "assistant", "content": "Aye"}),
        user("more"),
    ];
    check(&gone_on, json!({}), None);
    // The result of another tool is new all the same.
    check(
        &[user("a"), calling("read_file"), result(NOTICE)],
        json!({}),
        Some(Wanted::Notes),
    );
}

#[test]
fn nothing_is_done_that_cannot_be_done() {
    check(&[user("Mend it")], json!({}), None);
    check(
        &[user(NOTICE)],
        json!({"tools": tools(&["read_file"])}),
        None,
    );
    check(&[user(NOTICE)], json!({"tool_choice": "none"}), None);
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "read_file"}}});
    check(&[user(NOTICE)], named, None);
}

#[test]
fn the_mind_is_cleared_when_few_generations_are_left() {
    let said = |text: String, expected| check(&[user(&text)], json!({}), Some(expected));
    for (left, expected) in [
        ("5", Wanted::Notes),
        ("3", Wanted::Notes),
        ("2", Wanted::Clear),
        ("1", Wanted::Clear),
    ] {
        said(COUNTDOWN.replace('4', left), expected);
        let after = format!("Generations left: {left}. Use add_reminder or clear_mind.");
        said(after, expected);
        said(
            format!("还剩 {left} 次生成。请调用 add_reminder 或 clear_mind。"),
            expected,
        );
    }
    said(
        "The last generation: add_reminder, clear_mind".to_owned(),
        Wanted::Clear,
    );
    said(
        "Only one generation remains. add_reminder, clear_mind".to_owned(),
        Wanted::Clear,
    );
    said(
        "2 ways: add_reminder. Nothing is left out by clear_mind".to_owned(),
        Wanted::Notes,
    );
    let without = json!({"tools": tools(&[ADD])});
    check(
        &[user(&COUNTDOWN.replace('4', "1"))],
        without,
        Some(Wanted::Notes),
    );
}

#[test]
fn without_tools_a_block_is_asked_for() {
    let asks = user("Please end your answer with <continuation_package>…</continuation_package>");
    let body = |more: Value| {
        let mut body = json!({"model": "plimsoll-8k", "messages": [user("a"), asks.clone()]});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    };
    let wanted_of = |body: Value| wanted(&Ask::of(&body).unwrap());
    assert_eq!(wanted_of(body(json!({}))), Some(Wanted::Block));
    let object = json!({"response_format": {"type": "json_object"}, "messages": [user("JSON"), asks.clone()]});
    assert_eq!(wanted_of(body(object)), None);
}
