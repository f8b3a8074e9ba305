//! Claude Code after a long pause: from then on every request asks the provider to clear results by the number of calls.
//! The guard keeps its cuts, and goes on cutting.

use std::mem::take;

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use super::WINDOW;
use crate::support::{
    bound::{BoundApi, BoundModel},
    bound_provider::{BoundLog, BoundSettings, start_bound_provider},
    *,
};

const BEFORE: usize = 25;
const AFTER: usize = 60;

/// What Claude Code sends once a session goes on; what was cleared stays cleared, as both numbers grow with the calls.
fn edits(calls: usize) -> Value {
    json!({"edits": [
        {"type": "clear_thinking_20251015", "keep": "all"},
        {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 2 + calls},
            "keep": {"type": "tool_uses", "value": 1 + calls}, "clear_at_least": {"type": "input_tokens", "value": 1},
            "exclude_tools": []},
    ]})
}

fn count_calls(fields: &Value) -> usize {
    let entries = fields["messages"].as_array().unwrap().iter();
    let blocks = entries.filter_map(|entry| entry["content"].as_array());
    blocks
        .flatten()
        .filter(|it| it["type"] == "tool_use")
        .count()
}

/// A session whose requests have the edit from a pause on. `bound`: of a model that binds its thinking.
async fn run_session(seed: u64, bound: bool) -> BoundLog {
    let settings = BoundSettings {
        seed,
        api: BoundApi::Messages,
        model: BoundModel::default(),
        window: WINDOW as usize,
        proxy_calls: 5,
    };
    let (provider, log) = start_bound_provider(settings).await;
    let proxy = provider
        .proxy()
        .providers(|it| it.profile = find_profile("anthropic").unwrap())
        .model("*", model_with_window(WINDOW))
        .set(|config| config.guard.reserve_tokens = None)
        .start()
        .await;
    let name = if bound {
        "up/claude-sonnet-5-5"
    } else {
        "up/claude-opus-5"
    };
    let mut agent = MessagesAgent::new(&proxy).set("model", name);
    agent.fields["stream"] = seed.is_multiple_of(2).into();
    agent.result = 120;
    agent.steps(BEFORE).await;
    let calls = count_calls(&agent.fields);
    for step in 0..AFTER {
        agent.fields["context_management"] = edits(count_calls(&agent.fields) - calls);
        let sent = agent.fields["context_management"].clone();
        let generation = agent.step().await;
        let cut = ["cleared", "dropped"].map(|word| generation.action(word).is_some());
        assert!(
            cut.contains(&true),
            "{step}: {:?}",
            generation.header("actions")
        );
        for word in ["left-to-provider", "provider-truncated"] {
            assert!(!generation.has_action(word), "{step}");
        }
        // The edit goes on.
        let log = log.lock().unwrap();
        assert_eq!(log.exchanges.last().unwrap().0["context_management"], sent);
    }
    drop(proxy);
    take(&mut *log.lock().unwrap())
}

#[tokio::test]
async fn a_session_that_clears_by_calls_keeps_its_cuts_for_60_requests() {
    let mut cleared = 0;
    for (seed, bound) in [(0, true), (1, true), (2, false), (3, false)] {
        let log = run_session(seed, bound).await;
        assert_eq!(log.broken, Vec::<String>::new(), "{seed}");
        assert_eq!(log.refused, Vec::<String>::new(), "{seed}");
        assert_eq!(log.too_long, 0, "{seed}");
        cleared += log.cleared;
    }
    assert!(cleared > 0, "the provider never cleared");
}
