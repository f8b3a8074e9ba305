//! A newest step that alone exceeds the window, over sockets.

use serde_json::{Value, json};

use super::{Talk, completion_of, header, proxy_before, user};
use crate::support::{ReceivedRequest, ScriptedProvider, answer};

/// A provider that refuses what exceeds the window, by its own count.
async fn refusing_provider(window: usize) -> ScriptedProvider {
    ScriptedProvider::start_answering(move |seen: &ReceivedRequest| {
        if seen.body.len() / 3 <= window {
            return vec![completion_of("done", None)];
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
async fn parallel_edits_too_long_for_the_window_are_shortened() {
    let up = refusing_provider(16_384).await;
    let proxy = proxy_before(&up, 16_384).set(|config| config.guard.clamp_max_tokens = false);
    let proxy = proxy.start().await;
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
    let actions = header(&first, "actions");
    assert!(actions.starts_with("truncated=6"), "{actions}");
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    for (edit, id) in arguments(&sent["messages"][1]).iter().zip(["a", "b", "c"]) {
        assert_eq!(
            (&edit["path"], &edit["line"]),
            (&json!(format!("{id}.rs")), &json!(1.5))
        );
        let new = edit["new"].as_str().unwrap();
        assert!(new.contains(" characters truncated] ...\n"), "{new}");
        assert!(new.starts_with(id) && new.len() > 1_000 && new.len() < text(id).len());
    }
    // With more room the next request sends the same bytes.
    talk.fields = json!({"max_tokens": 1_000});
    talk.messages
        .push(json!({"role": "assistant", "content": "done"}));
    talk.messages.push(user("thanks"));
    let second = talk.ask().await;
    assert_eq!(second.status, 200, "{}", second.text());
    let again: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    assert_eq!(
        again["messages"].as_array().unwrap()[..5],
        sent["messages"].as_array().unwrap()[..5]
    );
}

/// One call with these arguments, which alone fill the window; returns the arguments as sent.
async fn sent_of(arguments: &str) -> String {
    let up = refusing_provider(16_384).await;
    let proxy = proxy_before(&up, 16_384).start().await;
    let mut talk = Talk::new(&proxy);
    let function = json!({"name": "edit", "arguments": arguments});
    let call = json!({"id": "a", "type": "function", "function": function});
    talk.messages = vec![
        user("edit"),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "a", "content": "done"}),
    ];
    let came = talk.ask().await;
    assert_eq!(came.status, 200, "{}", came.text());
    assert_eq!(header(&came, "actions"), "truncated=1");
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    let arguments = &sent["messages"][1]["tool_calls"][0]["function"]["arguments"];
    arguments.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_long_array_of_short_lines_loses_its_middle() {
    let lines: Vec<String> = (0..1_300)
        .map(|nth| format!("{nth:>5} {}", "of the hull and the keel ".repeat(2)))
        .collect();
    for arguments in [json!({"path": "a", "lines": lines}), json!(lines)] {
        let sent: Value = serde_json::from_str(&sent_of(&arguments.to_string()).await).unwrap();
        let sent = sent.get("lines").unwrap_or(&sent).as_array().unwrap();
        assert!(sent.len() > 300, "{}", sent.len());
        assert_eq!(sent[0], lines[0]);
        assert_eq!(*sent.last().unwrap(), *lines.last().unwrap());
        let marked = |it: &&Value| it.as_str().unwrap().ends_with(" items truncated] ...");
        assert_eq!(sent.iter().filter(marked).count(), 1);
    }
}

#[tokio::test]
async fn arguments_that_were_cut_off_keep_their_beginning_and_end() {
    let text = r#"a \"line\" of text\n"#.repeat(4_000);
    let broken = format!("{{\"path\": \"a\", \"content\": \"{text}the end");
    let sent = sent_of(&broken).await;
    assert!(sent.starts_with("{\"path\": \"a\", \"content\": \"a ") && sent.ends_with("the end"));
    assert!(sent.contains(" characters truncated] ..."));
}
