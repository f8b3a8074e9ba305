//! Sessions are separate, and a branch has the injections of its prefix.

use serde_json::Value;

use super::{agent_past_optimal, first_prompted, injected_texts, obliging_model, pair};
use crate::support::Agent;

#[tokio::test]
async fn tenants_with_the_same_conversation_share_nothing() {
    let (proxy, up) = pair(obliging_model).await;
    let mut a = agent_past_optimal(&proxy).with("authorization", "Bearer sk-secret-a");
    first_prompted(&mut a).await;
    let generation = a.step().await;
    assert_eq!(generation.number("reminders"), Some(1));
    // The same messages from another client.
    let mut b = a
        .branch(&proxy, &a.messages)
        .with("authorization", "Bearer sk-secret-b");
    let before = up.count();
    let theirs = b.step().await;
    let sent = up.bodies().await.split_off(before);
    assert_eq!(injected_texts(&sent[0]), 0);
    assert!(
        !sent[0].to_string().contains("go on after request"),
        "{:#}",
        sent[0]
    );
    assert_eq!(theirs.number("reminders").unwrap_or(0), 0);
    assert_ne!(theirs.header("session"), generation.header("session"));
    // Nor with the session's id.
    let id = generation.header("session").unwrap().to_owned();
    let mut hinted = a
        .branch(&proxy, &a.messages)
        .with("authorization", "Bearer sk-secret-b")
        .with("x-plimsoll-session", &id);
    let before = up.count();
    hinted.step().await;
    assert!(
        !up.bodies().await[before]
            .to_string()
            .contains("go on after request")
    );
    up.assert_no_faults();
}

/// All messages of the first upstream request of a step.
async fn sent_messages(agent: &mut Agent, up: &crate::support::model::RunningModel) -> Vec<Value> {
    let before = up.count();
    agent.step().await;
    let body = up.bodies().await.swap_remove(before);
    body["messages"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_branch_has_the_reminders_of_its_prefix() {
    let (proxy, up) = pair(obliging_model).await;
    let mut agent = agent_past_optimal(&proxy);
    let first = agent.step().await;
    let calm = agent.messages.clone();
    let second = agent.step().await;
    assert_eq!(
        (first.injected(), second.injected()),
        (None, Some("caution"))
    );
    let warned = agent.messages.clone();
    agent.steps(3).await;

    // Before the prompt: it is due there as before.
    let mut early = agent.branch(&proxy, &calm).says("Otherwise.");
    let messages = sent_messages(&mut early, &up).await;
    assert_eq!(
        injected_texts(&serde_json::json!({ "messages": messages })),
        1
    );
    // After the prompt: it is at its old place, and none is due.
    let before = up.count();
    let mut late = agent.branch(&proxy, &warned);
    late.messages
        .push(serde_json::json!({"role": "user", "content": "Something else."}));
    let generation = late.step().await;
    assert_eq!(generation.injected(), None);
    assert_eq!(generation.number("reminders"), Some(1));
    let messages = up.bodies().await.swap_remove(before);
    assert_eq!(injected_texts(&messages), 1);
    // A conversation with the same beginning only has none of it.
    let mut other = agent
        .branch(&proxy, &calm[..2])
        .says("Something else entirely.");
    let messages = sent_messages(&mut other, &up).await;
    assert_eq!(
        injected_texts(&serde_json::json!({ "messages": messages })),
        0
    );
    up.assert_no_faults();
}

#[tokio::test]
async fn a_client_retry_sends_the_same_request() {
    let (proxy, up) = pair(obliging_model).await;
    let mut agent = agent_past_optimal(&proxy);
    agent.step().await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        let before = up.count();
        let generation = agent.ask().await;
        assert_eq!(generation.injected(), Some("caution"));
        sent.push(up.bodies().await.swap_remove(before));
    }
    assert!(sent.windows(2).all(|pair| pair[0] == pair[1]));
    up.assert_no_faults();
}
