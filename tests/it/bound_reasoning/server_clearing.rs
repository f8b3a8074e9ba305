//! Claude Code after a long pause: from then on every request asks the provider to clear results by the number of calls.
//! The guard keeps its cuts, and goes on cutting.

use serde_json::{Value, json};

use super::{AgentSession, BOUND, UNBOUND};
use crate::support::{bound_provider::BoundLog, server_edits::clear_by_calls};

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

/// A session whose requests have the edit from a pause on, where `clears`. `bound`: of a model that binds its thinking. Returns
/// what the provider saw behind the pause.
async fn run_session(seed: u64, bound: bool, clears: bool) -> BoundLog {
    let model = if bound { BOUND } else { UNBOUND };
    let mut session = AgentSession::start(seed, model, 5, |proxy| proxy).await;
    let (agent, log) = (&mut session.agent, &session.log);
    agent.steps(BEFORE).await;
    let calls = count_calls(&agent.fields);
    *log.lock().unwrap() = BoundLog::default();
    for step in 0..AFTER {
        if clears {
            agent.fields["context_management"] = edits(count_calls(&agent.fields) - calls);
        }
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
    session.take_log()
}

#[tokio::test]
async fn a_session_that_clears_by_calls_keeps_its_cuts_for_60_requests() {
    let mut cleared = 0;
    for (seed, bound) in [(0, true), (1, true), (2, false), (3, false)] {
        let log = run_session(seed, bound, true).await;
        assert_eq!(log.broken, Vec::<String>::new(), "{seed}");
        assert_eq!(log.refused, Vec::<String>::new(), "{seed}");
        assert_eq!(log.too_long, 0, "{seed}");
        cleared += log.cleared;
    }
    assert!(cleared > 0, "the provider never cleared");
}

/// What a model reads of a request once the server has cleared results, in the order in which it is cached.
fn read_prompt(mut body: Value) -> Vec<u8> {
    clear_by_calls(&mut body, |bytes| bytes / 3);
    let parts = ["tools", "system", "messages"].map(|name| body[name].take());
    Value::from(parts.to_vec()).to_string().into_bytes()
}

/// The provider's cache is empty after the pause. From then on, as much of the prompts is read from it as in the same session
/// without the edit, but for half a percent: what is cleared would be read, too.
#[tokio::test]
async fn clearing_by_calls_costs_no_cache() {
    let mut shares = [0.0; 2];
    for (share, clears) in shares.iter_mut().zip([false, true]) {
        let (mut cached, mut all) = (0, 0);
        for (seed, bound) in [(0, true), (1, true), (2, false), (3, false)] {
            let mut before = Vec::new();
            for (body, _) in run_session(seed, bound, clears).await.exchanges {
                let prompt = read_prompt(body);
                let same = prompt.iter().zip(&before).take_while(|(a, b)| a == b);
                (cached, all) = (cached + same.count(), all + prompt.len());
                before = prompt;
            }
        }
        *share = cached as f64 / all as f64;
    }
    let [without, with] = shares;
    assert!(
        with >= without - 0.005,
        "{with:.3} with the edit, {without:.3} without"
    );
}
