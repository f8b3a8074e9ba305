//! A provider with a byte limit on tool messages.

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use super::{Talk, completion_of, header, proxy_before, user};
use crate::support::{ProviderStep, ScriptedProvider, answer};

const MOST: usize = 204_800;

/// As OpenRouter does.
async fn refusing_large_tool_messages() -> ScriptedProvider {
    ScriptedProvider::start_answering(|seen| -> Vec<ProviderStep> {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let messages = body["messages"].as_array().unwrap();
        let large = |it: &&Value| it["role"] == "tool" && it.to_string().len() > MOST;
        match messages.iter().find(large) {
            Some(_) => vec![answer(
                "413 Payload Too Large",
                "",
                r#"{"error":{"code":413}}"#,
            )],
            None => vec![completion_of("done", Some(100_000))],
        }
    })
    .await
}

/// A result of characters of so many JSON bytes each, within the limits on characters.
async fn ask(text: &str) -> (String, usize) {
    let up = refusing_large_tool_messages().await;
    let proxy = proxy_before(&up, 1_000_000).providers(|provider| {
        provider.profile = find_profile("openrouter").unwrap();
    });
    let proxy = proxy.set(|config| {
        config.guard.max_tool_result_chars = Some(400_000);
        config.guard.truncate_head_chars = Some(150_000);
        config.guard.truncate_tail_chars = Some(150_000);
    });
    let proxy = proxy.start().await;
    let mut talk = Talk::new(&proxy);
    let function = json!({"name": "read", "arguments": "{}"});
    let calls = json!([{"id": "c", "type": "function", "function": function}]);
    talk.messages = vec![
        user("the task"),
        json!({"role": "assistant", "content": null, "tool_calls": calls}),
        json!({"role": "tool", "tool_call_id": "c", "content": text}),
    ];
    let came = talk.ask().await;
    assert_eq!(came.status, 200, "{}", came.text());
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    let bytes = sent["messages"][2].to_string().len();
    (header(&came, "actions").to_owned(), bytes)
}

#[tokio::test]
async fn a_tool_message_over_the_providers_byte_limit_is_truncated() {
    for (text, bytes) in [("a", 1), ("\"", 2), ("中", 3), ("\u{1}", 6), ("🙂", 4)] {
        let text = text.repeat(MOST / bytes + 1);
        let (actions, sent) = ask(&text).await;
        assert_eq!(actions, "truncated=1", "{bytes} bytes a character");
        assert!(sent > MOST / 10 * 9, "{sent} of {bytes} bytes a character");
    }
}

#[tokio::test]
async fn a_tool_message_within_the_byte_limit_is_unchanged() {
    for (text, bytes) in [("a", 1), ("中", 3)] {
        let text = text.repeat((MOST - 100) / bytes);
        assert_eq!(ask(&text).await.0, "none");
    }
}
