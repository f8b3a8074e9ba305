//! What clients do to what they send back.

use serde_json::{Value, json};

use super::{continued, generate, sessions};
use crate::session::tests::fixture::{assistant, call, result, system, user};

/// What clients do to what they echo; the next request must find its state all the same.
async fn check_echo(given: Value, echoed: Value) {
    let sessions = sessions();
    let said = [system("s"), user("task")];
    let state = generate(&sessions, &said, &given).await;
    let next = [&said[..], &[echoed.clone(), result("c1", "out")]].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state), "{echoed}");
    // The chain of all that follows holds the echo, and stays sound.
    let state = generate(&sessions, &next, &assistant("done")).await;
    let last = [&next[..], &[assistant("done"), user("more")]].concat();
    assert_eq!(continued(&sessions, &last).await, Some(state), "{echoed}");
}

#[tokio::test]
async fn echoed_answers_may_be_spelt_otherwise() {
    let given = call("c1", r#"{"path":"a","line":1}"#);
    check_echo(given.clone(), call("c1", r#"{ "line": 1, "path": "a" }"#)).await;
    let mut parts = assistant("text");
    parts["content"] = json!([{ "type": "text", "text": "text" }]);
    check_echo(assistant("text"), parts).await;
    let mut reasoned = given.clone();
    reasoned["reasoning_content"] = json!("hm");
    reasoned["content"] = json!("");
    check_echo(given.clone(), reasoned).await;
    // Text that was trimmed, a call id that was made anew: only the key without the answer helps.
    check_echo(assistant(" text\n"), assistant("text")).await;
    check_echo(given, call("fc_1", r#"{"path":"a","line":1}"#)).await;
}

#[tokio::test]
async fn a_split_answer_is_found() {
    let sessions = sessions();
    let said = [user("task")];
    let mut given = call("c1", "{}");
    given["content"] = json!("I look.");
    let state = generate(&sessions, &said, &given).await;
    let echoed = [assistant("I look."), call("c1", "{}"), result("c1", "out")];
    let next = [&said[..], &echoed].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state));
}

#[tokio::test]
async fn a_prefilled_answer_is_found() {
    let sessions = sessions();
    let said = [user("task"), assistant("It is")];
    let state = generate(&sessions, &said, &assistant(" done.")).await;
    let next = [&said[..], &[assistant(" done."), user("more")]].concat();
    assert_eq!(continued(&sessions, &next).await, Some(state));
}

#[tokio::test]
async fn a_remark_may_be_put_in_and_taken_out() {
    let sessions = sessions();
    let mut said = vec![user("task")];
    for step in 0..6 {
        let answer = call(&format!("c{step}"), "{}");
        let remarked = [&said[..], &[user(&format!("reminder: step {step}"))]].concat();
        // At the start there is no answer before which the remark could be passed over.
        let sent = if step == 0 { &said } else { &remarked };
        let state = generate(&sessions, sent, &answer).await;
        assert_eq!(state.generations, step + 1);
        said.extend([answer, result(&format!("c{step}"), "out")]);
    }
    // A remark inside the last message itself.
    let mut inside = said.clone();
    inside.last_mut().unwrap()["content"] = json!("out\n<reminder>hurry</reminder>");
    let state = generate(&sessions, &inside, &assistant("done")).await;
    said.extend([assistant("done"), user("next")]);
    assert_eq!(continued(&sessions, &said).await, Some(state));
}

#[tokio::test]
async fn what_is_not_said_does_not_count() {
    let sessions = sessions();
    let said = [system("It is 10:00."), user("task")];
    let answer = assistant("ok");
    let state = generate(&sessions, &said, &answer).await;
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
