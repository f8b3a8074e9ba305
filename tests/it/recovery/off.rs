//! Where recovery is not wanted, nothing of it is there.

use super::{deep, obliging, pair};
use crate::support::{
    agent::Agent,
    model::{OWN, Up},
};

/// That requests went upstream as they came, but for the model's name.
async fn untouched(agent: &mut Agent, up: &Up) {
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(agent.messages.clone());
        let generation = agent.step().await;
        assert_eq!(generation.injected(), None);
        assert_eq!(generation.number("reminders").unwrap_or(0), 0);
    }
    let bodies = up.bodies().await;
    assert_eq!(bodies.len(), sent.len());
    for (body, sent) in bodies.iter().zip(sent) {
        assert_eq!(body["messages"], serde_json::Value::from(sent));
        let tools = body["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 1);
        assert!(!OWN.iter().any(|name| tools[0]["function"]["name"] == *name));
    }
    up.is_content();
}

#[tokio::test]
async fn a_request_that_wants_none_gets_none() {
    for (name, value) in [
        ("x-plimsoll-recovery", "off"),
        ("x-plimsoll-guard", "off"),
        ("x-plimsoll-guard", "dry-run"),
    ] {
        for stream in [false, true] {
            let (proxy, up) = pair(obliging).await;
            let mut agent = deep(&proxy).set("stream", stream).with(name, value);
            untouched(&mut agent, &up).await;
        }
    }
}

#[tokio::test]
async fn one_request_without_is_an_exception() {
    let (proxy, up) = pair(obliging).await;
    let mut agent = deep(&proxy);
    agent.step().await;
    let mut without = agent
        .branch(&proxy, &agent.messages)
        .with("x-plimsoll-recovery", "off");
    without.step().await;
    assert_eq!(agent.step().await.injected(), Some("caution"));
    up.is_content();
}
