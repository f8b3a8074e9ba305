//! Changes that clients make to the answers that they echo.

use serde_json::{Value, json};

use super::{continued, generate, sessions};
use crate::session::tests::fixture::{assistant, call, result, system, user};

/// The next request must find its state although the client changed the echoed answer.
async fn check_echo(given: Value, echoed: Value) {
    let sessions = sessions();
    let messages = [system("s"), user("task")];
    let state = generate(&sessions, &messages, &given).await;
    let next = [&messages[..], &[echoed.clone(), result("c1", "out")]].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state), "{echoed}");
    // Later requests continue the chain with the echo in it.
    let state = generate(&sessions, &next, &assistant("done")).await;
    let last = [&next[..], &[assistant("done"), user("more")]].concat();
    assert_eq!(continued(&sessions, &last).await, Some(state), "{echoed}");
}

#[tokio::test]
async fn echoed_answers_may_change_their_form() {
    let given = call("c1", r#"{"path":"a","line":1}"#);
    check_echo(given.clone(), call("c1", r#"{ "line": 1, "path": "a" }"#)).await;
    let mut parts = assistant("text");
    parts["content"] = json!([{ "type": "text", "text": "text" }]);
    check_echo(assistant("text"), parts).await;
    let mut reasoned = given.clone();
    reasoned["reasoning_content"] = json!("hm");
    reasoned["content"] = json!("");
    check_echo(given.clone(), reasoned).await;
    // Trimmed text or a new call id: only the bare key matches.
    check_echo(assistant(" text\n"), assistant("text")).await;
    check_echo(given, call("fc_1", r#"{"path":"a","line":1}"#)).await;
}

#[tokio::test]
async fn a_split_answer_is_found() {
    let sessions = sessions();
    let messages = [user("task")];
    let mut given = call("c1", "{}");
    given["content"] = json!("I look.");
    let state = generate(&sessions, &messages, &given).await;
    let echoed = [assistant("I look."), call("c1", "{}"), result("c1", "out")];
    let next = [&messages[..], &echoed].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state));
}

#[tokio::test]
async fn a_prefilled_answer_is_found() {
    let sessions = sessions();
    let messages = [user("task"), assistant("It is")];
    let state = generate(&sessions, &messages, &assistant(" done.")).await;
    let next = [&messages[..], &[assistant(" done."), user("more")]].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state));
}

#[tokio::test]
async fn remarks_may_be_added_and_removed() {
    let sessions = sessions();
    let mut messages = vec![user("task")];
    for step in 0..6 {
        let answer = call(&format!("c{step}"), "{}");
        let remarked = [&messages[..], &[user(&format!("reminder: step {step}"))]].concat();
        // The first request has no answer, so no gap key skips a remark.
        let sent = if step == 0 { &messages } else { &remarked };
        let state = generate(&sessions, sent, &answer).await;
        assert_eq!(state.generations, step + 1);
        messages.extend([answer, result(&format!("c{step}"), "out")]);
    }
    // A remark inside the last message itself.
    let mut inside = messages.clone();
    inside.last_mut().unwrap()["content"] = json!("out\n<reminder>hurry</reminder>");
    let state = generate(&sessions, &inside, &assistant("done")).await;
    messages.extend([assistant("done"), user("next")]);
    assert_eq!(continued(&sessions, &messages).await, Some(state));
}

#[tokio::test]
async fn system_messages_cache_marks_and_reasoning_are_not_in_the_key() {
    let sessions = sessions();
    let messages = [system("It is 10:00."), user("task")];
    let answer = assistant("ok");
    let state = generate(&sessions, &messages, &answer).await;
    let marked = json!({
        "content": [{ "text": "task", "type": "text", "cache_control": { "type": "ephemeral" } }],
        "role": "user",
    });
    let mut reasoned = answer;
    reasoned["reasoning_content"] = json!("thinking");
    let developer = json!({ "role": "developer", "content": "be brief" });
    for start in [
        vec![system("It is 10:05.")],
        vec![],
        vec![system("a"), developer],
    ] {
        let next = [&start[..], &[marked.clone(), reasoned.clone(), user("2")]].concat();
        assert_eq!(continued(&sessions, &next).await.as_ref(), Some(&state));
    }
}
