//! Old tool rounds over sockets: which results the provider still gets.

use serde_json::{Value, json};

use super::{completion_of, user};
use crate::support::{Process, ScriptedProvider, Settings};

/// A question, a tool call with its result, and the model's answer.
fn tool_round(number: usize) -> [Value; 4] {
    let function = json!({"name": "read", "arguments": "{}"});
    let call = json!({"id": "c", "type": "function", "function": function});
    [
        user(&format!("question {number}")),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "c", "content": format!("{number} line\n").repeat(80)}),
        json!({"role": "assistant", "content": "done"}),
    ]
}

#[tokio::test]
async fn a_pending_tool_round_does_not_count_as_kept_and_zero_always_clears() {
    let up = ScriptedProvider::start_answering(|_| vec![completion_of("hi", Some(100))]).await;
    let settings = Settings::new(&up);
    settings.write(
        "[models.m]\nprovider = \"up\"\ncontext_length = 100000\n[recovery]\nenabled = false\n\
         [guard]\nclear_tools_at = 0\nkeep_tool_rounds = 2",
    );
    let process = Process::start(&settings.file).await;
    let mut messages: Vec<Value> = (0..4).flat_map(tool_round).collect();
    messages.push(user("and now?"));
    let body = json!({"model": "m", "messages": messages}).to_string();
    let got = process.client().chat(body).await;
    assert_eq!(got.headers["x-plimsoll-actions"], "cleared=2");
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    for (at, was) in messages.iter().enumerate() {
        let cleared = sent["messages"][at] != *was;
        assert_eq!(cleared, at == 2 || at == 6, "message {at}");
    }
}
