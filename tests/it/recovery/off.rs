//! Where recovery is off, nothing is injected.

use plimsoll::config::{Auth, Config, ModelConfig};

use super::{
    Shape, WINDOW, agent_past_optimal, first_prompted, injected_texts, obliging_model, pair,
    proxy_before,
};
use crate::support::{Agent, ModelSetup, PROXY_TOOLS, ProxyBuilder, RunningModel, RunningProxy};

/// Asserts that upstream requests are unchanged but for the model's name.
async fn assert_untouched(agent: &mut Agent, up: &RunningModel) {
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
        assert!(
            !PROXY_TOOLS
                .iter()
                .any(|name| tools[0]["function"]["name"] == *name)
        );
    }
    up.assert_no_faults();
}

#[tokio::test]
async fn a_request_with_recovery_off_gets_no_prompt() {
    for (name, value) in [
        ("x-plimsoll-recovery", "off"),
        ("x-plimsoll-guard", "off"),
        ("x-plimsoll-guard", "dry-run"),
    ] {
        for stream in [false, true] {
            let (proxy, up) = pair(obliging_model).await;
            let mut agent = agent_past_optimal(&proxy)
                .set("stream", stream)
                .with(name, value);
            assert_untouched(&mut agent, &up).await;
        }
    }
}

#[tokio::test]
async fn recovery_off_for_one_request_is_an_exception() {
    let (proxy, up) = pair(obliging_model).await;
    let mut agent = agent_past_optimal(&proxy);
    agent.step().await;
    let mut without = agent
        .branch(&proxy, &agent.messages)
        .with("x-plimsoll-recovery", "off");
    without.step().await;
    assert_eq!(agent.step().await.injected(), Some("caution"));
    up.assert_no_faults();
}

/// The actions report the dry run; the session's headers report the state.
#[tokio::test]
async fn a_dry_run_begins_no_course() {
    let (proxy, up) = pair(obliging_model).await;
    for stream in [false, true] {
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        let first = agent.step().await;
        let clear = format!("sessions/{}/clear", first.header("session").unwrap());
        assert_eq!(agent.api(http::Method::POST, &clear).await.status, 200);
        let dry = agent
            .branch(&proxy, &agent.messages)
            .with("x-plimsoll-guard", "dry-run");
        let dry = dry.ask().await;
        assert_eq!((dry.action("course"), dry.course()), (Some("2"), 1));
        let real = agent.step().await;
        assert_eq!((real.action("course"), real.course()), (Some("2"), 2));
    }
    up.assert_no_faults();
}

async fn proxy_with(
    set: impl FnOnce(ProxyBuilder) -> ProxyBuilder,
) -> (RunningProxy, RunningModel) {
    let up = ModelSetup::new(WINDOW).start(obliging_model).await;
    let proxy = set(proxy_before(&up, &Shape::default()));
    (proxy.start().await, up)
}

fn off(config: &mut Config, model: &str) {
    let settings = config.models.entry(model.into()).or_default();
    *settings = ModelConfig {
        // No calibration for the other model yet, so a request that just fits may be cut for it.
        context_length: Some(2 * WINDOW),
        recovery: Some(false),
        ..ModelConfig::default()
    };
}

#[tokio::test]
async fn recovery_off_in_the_settings_is_off_for_all() {
    let (proxy, up) = proxy_with(|proxy| proxy.set(|config| config.recovery.enabled = false)).await;
    assert_untouched(&mut agent_past_optimal(&proxy), &up).await;
}

#[tokio::test]
async fn a_model_without_recovery_gets_no_prompt() {
    let (proxy, up) = proxy_with(|proxy| proxy.set(|config| off(config, "m"))).await;
    assert_untouched(&mut agent_past_optimal(&proxy), &up).await;
}

#[tokio::test]
async fn a_client_key_without_recovery_gets_no_prompt() {
    let keys = |proxy: ProxyBuilder| {
        let proxy = proxy.client("alice", "key-of-alice", &["*"]);
        let proxy = proxy.client("bob", "key-of-bob", &["*"]);
        let proxy = proxy.providers(|provider| provider.auth = Auth::None);
        proxy.set(|config| config.clients.get_mut("alice").unwrap().recovery = false)
    };
    let (proxy, up) = proxy_with(keys).await;
    let mut alice = agent_past_optimal(&proxy).with("authorization", "Bearer key-of-alice");
    assert_untouched(&mut alice, &up).await;
    let mut bob = agent_past_optimal(&proxy).with("authorization", "Bearer key-of-bob");
    first_prompted(&mut bob).await;
}

/// A session moves to a model without recovery, or is switched off: its injections stay in place,
/// so that its prefix is unchanged, and none is added.
#[tokio::test]
async fn reminders_of_a_session_stay_when_recovery_is_switched_off() {
    for header in [false, true] {
        let (proxy, up) = proxy_with(|proxy| proxy.set(|config| off(config, "quiet"))).await;
        let mut agent = agent_past_optimal(&proxy);
        first_prompted(&mut agent).await;
        let reminders = agent.step().await.number("reminders");
        assert_eq!(reminders, Some(1));
        let known = up.bodies().await.pop().unwrap();
        agent = if header {
            agent.with("x-plimsoll-recovery", "off")
        } else {
            agent.set("model", "quiet")
        };
        // Far beyond the cadence, and in the window of `m` beyond the optimal limit.
        agent.result = |nth| super::words(250, nth);
        let count = up.count();
        let generations = agent.steps(14).await;
        for generation in &generations {
            assert_eq!(generation.injected(), None);
            assert_eq!(
                (generation.action("course"), generation.course()),
                (None, 1)
            );
            assert_eq!(generation.number("reminders"), reminders);
        }
        let bodies = up.bodies().await.split_off(count);
        assert_eq!(bodies.len(), generations.len(), "no rounds");
        let (before, now) = (&known["messages"], &bodies[0]["messages"]);
        let (before, now) = (before.as_array().unwrap(), now.as_array().unwrap());
        assert_eq!(now[..before.len()], before[..]);
        assert_eq!(bodies[0]["tools"], known["tools"]);
        assert!(bodies.iter().all(|body| injected_texts(body) <= 1));
        up.assert_no_faults();
    }
}
