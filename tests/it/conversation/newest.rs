//! The newest step over sockets, where it alone is too large.

use serde_json::{Value, json};

use super::{Talk, before, header, says, user};
use crate::support::provider::{Provider, Seen, answer};

/// A provider that refuses what is too long for the window, by a rule of its own.
async fn refusing(window: usize) -> Provider {
    Provider::answering(move |seen: &Seen| {
        if seen.body.len() / 3 <= window {
            return vec![says("done", None)];
        }
        let error = json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
        vec![answer("400 Bad Request", "", error.to_string())]
    })
    .await
}

/// The arguments of all calls of a message.
fn arguments(message: &Value) -> Vec<Value> {
    let calls = message["tool_calls"].as_array().unwrap().iter();
    let texts = calls.map(|call| call["function"]["arguments"].as_str().unwrap());
    texts
        .map(|it| serde_json::from_str(it).expect("arguments stay JSON"))
        .collect()
}

#[tokio::test]
async fn three_parallel_edits_too_long_for_the_window_are_shortened_and_not_refused() {
    let up = refusing(16_384).await;
    let proxy = before(&up, 16_384).start().await;
    let mut talk = Talk::new(&proxy);
    let text = |letter: &str| format!("{letter} \"quoted\" \u{4e2d}\n").repeat(1_500);
    let calls: Vec<Value> = ["a", "b", "c"]
        .iter()
        .map(|id| {
            let edit = json!({"path": format!("{id}.rs"), "new": text(id), "line": 1.5});
            let function = json!({"name": "edit", "arguments": edit.to_string()});
            json!({"id": id, "type": "function", "function": function})
        })
        .collect();
    talk.messages = vec![user("edit all three")];
    talk.messages
        .push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
    for id in ["a", "b", "c"] {
        talk.messages
            .push(json!({"role": "tool", "tool_call_id": id, "content": "a line\n".repeat(200)}));
    }
    talk.fields = json!({"max_tokens": 8_000});
    let first = talk.ask().await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(header(&first, "actions"), "truncated=6");
    let sent: Value = serde_json::from_slice(&up.last().body).unwrap();
    for (edit, id) in arguments(&sent["messages"][1]).iter().zip(["a", "b", "c"]) {
        assert_eq!(
            (&edit["path"], &edit["line"]),
            (&json!(format!("{id}.rs")), &json!(1.5))
        );
        let new = edit["new"].as_str().unwrap();
        assert!(new.contains(" characters truncated] ...\n"), "{new}");
        assert!(new.starts_with(id) && new.len() > 1_000 && new.len() < text(id).len());
    }
    // With more room the next request sends the same bytes all the same.
    talk.fields = json!({"max_tokens": 1_000});
    talk.messages
        .push(json!({"role": "assistant", "content": "done"}));
    talk.messages.push(user("thanks"));
    let second = talk.ask().await;
    assert_eq!(second.status, 200, "{}", second.text());
    let again: Value = serde_json::from_slice(&up.last().body).unwrap();
    assert_eq!(
        again["messages"].as_array().unwrap()[..5],
        sent["messages"].as_array().unwrap()[..5]
    );
}
