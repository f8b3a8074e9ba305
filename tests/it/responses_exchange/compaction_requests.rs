//! Requests by which clients compact their conversations, beyond the window.

use plimsoll::config::{AddTools, WhenUnsure};
use serde_json::{Value, json};

use super::{WINDOW, entries, response, said, step};
use crate::support::{
    ResponsesAgent, ScriptedProvider, answer, model_with_early_levels, user_entry, words,
};

/// What Codex says of its own compaction.
fn codex_compaction() -> Value {
    let turn = json!({"request_kind": "compaction", "compaction": {"implementation": "responses"}});
    json!({"x-codex-turn-metadata": turn.to_string()})
}

/// Asks to compact more than the window holds; the input as sent.
async fn compact_overlong(up: &ScriptedProvider, local: bool, refusals: usize) -> (Value, Value) {
    let proxy = up.proxy().model("m", model_with_early_levels(WINDOW));
    let proxy = proxy.set(|config| {
        config.recovery.tools = AddTools::Always;
        config.guard.when_unsure = Some(WhenUnsure::Cut);
    });
    let proxy = proxy.start().await;
    let mut agent = ResponsesAgent::new(&proxy);
    for nth in 0..12 {
        agent.push(step(&format!("call_{nth}"), &words(3_000, nth)));
    }
    if local {
        agent.push([user_entry("Summarise the conversation.")]);
        agent.fields["tools"] = json!([]);
        agent.fields["client_metadata"] = codex_compaction();
    } else {
        agent.push([json!({"type": "compaction_trigger"})])
    }
    let overflow = json!({"error": {"type": "invalid_request_error", "param": "input",
        "code": "context_length_exceeded",
        "message": "Your input exceeds the context window of this model."}});
    for _ in 0..refusals {
        up.script_next([answer("400 Bad Request", "", overflow.to_string())]);
    }
    up.script_next([answer("200 OK", "", response(&[said("fine")], 12_000))]);
    let generation = agent.ask().await;
    assert_eq!(generation.action("truncated"), Some("12"));
    assert_eq!(generation.injected(), None);
    assert_eq!(generation.action("dropped"), None);
    let sent = serde_json::from_slice(&up.last_request().body).unwrap();
    (agent.fields, sent)
}

#[tokio::test]
async fn a_request_by_which_the_client_compacts_loses_only_the_middle_of_outputs() {
    for local in [true, false] {
        let up = ScriptedProvider::start().await;
        let (asked, sent) = compact_overlong(&up, local, 0).await;
        let mut left = 0;
        assert_eq!(entries(&sent).len(), entries(&asked).len());
        for (sent, asked) in entries(&sent).iter().zip(entries(&asked)) {
            if asked["type"] == "function_call_output" {
                let (sent, asked) = (
                    sent["output"].as_str().unwrap(),
                    asked["output"].as_str().unwrap(),
                );
                assert!(sent.len() < asked.len() / 2 && sent.contains("characters truncated"));
                left += sent.len();
            } else {
                assert_eq!(sent, asked);
            }
        }
        // As much as fits is left.
        assert!(left > WINDOW as usize * 2, "{left}");
        for field in ["tools", "instructions", "client_metadata"] {
            assert_eq!(sent[field], asked[field]);
        }
        // Where the provider says that it is too long, they are cut harder.
        let up = ScriptedProvider::start().await;
        let (_, smaller) = compact_overlong(&up, local, 1).await;
        assert_eq!(up.count_requests(), 2);
        assert!(smaller.to_string().len() < sent.to_string().len());
        assert_eq!(entries(&smaller).len(), entries(&asked).len());
    }
}
