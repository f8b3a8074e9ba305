//! What requests that store nothing leave behind: no prompt at another model, no action that is counted twice, and no name.

use super::*;
use crate::support::RunningProxy;

/// The counters of what the guard and recovery do.
const COUNTED: [&str; 8] = [
    "sessions",
    "truncations",
    "cut_characters",
    "cleared_messages",
    "folds",
    "dropped_messages",
    "injections",
    "courses",
];

async fn read_counters(proxy: &RunningProxy) -> Vec<String> {
    let metrics = proxy.client().get("/metrics").await;
    let is_counted = |line: &&str| {
        let mut names = COUNTED.iter().map(|name| format!("plimsoll_{name}_total"));
        names.any(|name| line.starts_with(&name))
    };
    let lines = metrics.text().lines().filter(is_counted);
    lines.map(str::to_owned).collect()
}

/// Runs a session at model `m`. `again`: each of its requests is sent again to this model with this cap. Returns the counters,
/// and how many of those that were sent again got a prompt.
async fn run(again: Option<(&str, u32)>) -> (Vec<String>, usize) {
    let model = ModelSetup::new(WINDOW).start(reply).await;
    let proxy = model.provider.proxy();
    let proxy = ["m", "other"].into_iter().fold(proxy, |proxy, name| {
        proxy.model(name, model_with_early_levels(WINDOW))
    });
    let proxy = proxy.start().await;
    let client = proxy.client();
    let (mut messages, mut prompts) = (vec![say("system", "SYSTEM"), say("user", "TASK")], 0);
    for nth in 0..REQUESTS {
        let function = json!({"name": "f", "parameters": {"type": "object"}});
        let tools = json!([{"type": "function", "function": function}]);
        let mut body =
            json!({"model": "m", "messages": messages, "tools": tools, "max_tokens": 900});
        send(&client, Format::Chat, &body, &[]).await;
        if let Some((model, cap)) = again {
            (body["model"], body["max_tokens"]) = (model.into(), cap.into());
            let (_, actions) = send(&client, Format::Chat, &body, &[]).await;
            prompts += usize::from(actions.contains("injected="));
        }
        messages.extend(step(nth));
    }
    (read_counters(&proxy).await, prompts)
}

#[tokio::test]
async fn a_repeat_is_counted_nowhere_and_gets_no_prompt_at_another_model() {
    let (plain, _) = run(None).await;
    for name in ["cleared_messages", "injections"] {
        let happened = |line: &String| line.contains(name) && !line.ends_with(" 0");
        assert!(plain.iter().any(happened), "{name}: {plain:#?}");
    }
    for model in ["m", "other"] {
        assert_eq!(run(Some((model, 1))).await.0, plain, "{model}");
    }
    assert_eq!(run(Some(("other", 1))).await.1, 0);
    // A request that is no repeat does get prompts there.
    assert!(run(Some(("other", 900))).await.1 > 0);
}

/// A client that names its session first has a title made in it.
#[tokio::test]
async fn a_request_that_stores_nothing_does_not_name_its_session() {
    const AUXILIARY: [(&str, &str); 2] = [
        ("x-claude-code-request-class", "auxiliary"),
        ("x-session-id", "one"),
    ];
    const REFILLS: [(&str, &str); 3] = [WARMS[0], WARMS[1], ("x-session-id", "one")];
    for class in [&AUXILIARY[..], &REFILLS] {
        let model = ModelSetup::new(WINDOW).start(reply).await;
        let proxy = model.provider.proxy();
        let proxy = proxy.model("m", model_with_window(WINDOW)).start().await;
        let client = proxy.client();
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
        let mut sessions = Vec::new();
        for (task, headers) in [
            ("Write a title.", class),
            ("Mend the mast.", &[("x-session-id", "one")]),
        ] {
            let body = json!({"model": "m", "messages": [say("user", task)], "tools": tools, "max_tokens": 900});
            sessions.push(send(&client, Format::Chat, &body, headers).await.0);
        }
        assert_eq!(sessions[0], sessions[1], "{class:?}");
        let listed = client.get("/plimsoll/api/sessions").await.json();
        let listed = listed["sessions"].as_array().unwrap();
        assert_eq!(
            (listed.len(), &listed[0]["task"]),
            (1, &json!("Mend the mast.")),
            "{class:?}"
        );
    }
}
