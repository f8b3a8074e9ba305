//! Prompts and cuts: a prompt goes with the last request before a cut, and not beside it.

use super::{Shape, proxy_before, words};
use crate::support::{
    Agent, AgentGeneration, MessagesAgent, ModelCall, ModelReply, ModelRequest, ModelSetup,
    PROXY_TOOLS, ResponsesAgent, RunningModel, RunningProxy,
};

/// A window in which a step of some 500 tokens jumps from healthy to beyond the budget.
const WINDOW: u32 = 4_096;
const GENERATIONS: usize = 60;

/// Works with the client's tool, or answers in text, and writes no reminder.
fn work_on(heard: &ModelRequest<'_>) -> ModelReply {
    let nth = heard.nth;
    let offered = heard.offered_tools();
    match offered.iter().find(|name| !PROXY_TOOLS.contains(name)) {
        Some(name) => {
            let path = serde_json::json!({"path": format!("deck_{nth}.rs")});
            ModelReply::calls([ModelCall::new(&format!("call_{nth}"), name, &path)])
        }
        None => ModelReply::text(&words(120, nth)),
    }
}

async fn pair() -> (RunningProxy, RunningModel) {
    pair_at(WINDOW).await
}

async fn pair_at(window: u32) -> (RunningProxy, RunningModel) {
    let up = ModelSetup::new(window).start(work_on).await;
    let shape = Shape {
        window,
        ..Shape::default()
    };
    let proxy = proxy_before(&up, &shape).set(|config| {
        let model = config.models.get_mut("m").unwrap();
        (model.optimal_max_tokens, model.critical_max_tokens) = (None, None);
        config.recovery.chats = true;
    });
    (proxy.start().await, up)
}

/// Judges a session that is cut again and again: prompts come, and none beside a cut that ends in healthy.
#[track_caller]
fn check(generations: &[AgentGeneration], name: &str) {
    let mut dropped = 0;
    let mut prompted = Vec::new();
    let mut cuts = 0;
    for (nth, generation) in generations.iter().enumerate() {
        let now = generation.number_of("dropped");
        let is_cut = now > dropped;
        dropped = now;
        cuts += usize::from(is_cut);
        let healthy = generation.header("health") == Some("healthy");
        if let Some(kind) = generation.injected() {
            assert!(!(is_cut && healthy), "{name}: {kind} beside cut {nth}");
            if kind == "caution" {
                prompted.push(nth);
            }
        }
    }
    assert!(cuts >= 5, "{name}: {cuts} cuts");
    assert!(prompted.len() >= 3, "{name}: {prompted:?}, {cuts} cuts");
}

impl AgentGeneration {
    fn number_of(&self, action: &str) -> usize {
        self.action(action)
            .and_then(|it| it.parse().ok())
            .unwrap_or(0)
    }
}

#[tokio::test]
async fn chats_that_are_always_cut_at_caution_get_their_prompts() {
    for stream in [false, true] {
        let (proxy, up) = pair().await;
        let mut agent = Agent::bare(&proxy).says("Mend it.").set("stream", stream);
        agent.user = |nth| words(500, nth);
        check(&agent.steps(GENERATIONS).await, "chat");
        assert_eq!(up.overflows(), 0);
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn agents_that_are_always_cut_at_caution_get_their_prompts() {
    for stream in [false, true] {
        let (proxy, up) = pair().await;
        let mut agent = Agent::new(&proxy).set("stream", stream);
        agent.result = |nth| words(600, nth);
        check(&agent.steps(GENERATIONS).await, "agent");
        up.assert_no_faults();

        let (proxy, up) = pair().await;
        let mut agent = MessagesAgent::new(&proxy).set("stream", stream);
        agent.result = 600;
        check(&agent.steps(GENERATIONS).await, "messages");
        up.assert_no_faults();

        let (proxy, up) = pair().await;
        let mut agent = ResponsesAgent::new(&proxy).set("stream", stream);
        agent.result = 600;
        check(&agent.steps(GENERATIONS).await, "responses");
        up.assert_no_faults();
    }
}

/// With small steps the prompts come as they are due: a prompt at the entry into caution, and none ahead of it.
#[tokio::test]
async fn small_steps_get_their_prompt_at_the_entry_into_caution() {
    let (proxy, up) = pair_at(16_384).await;
    let mut agent = Agent::new(&proxy);
    agent.result = |nth| words(150, nth);
    let mut health = None;
    for _ in 0..90 {
        let step = agent.step().await;
        if step.injected() == Some("caution") {
            assert_eq!(health.as_deref(), Some("caution"));
            up.assert_no_faults();
            return;
        }
        health = step.header("health").map(str::to_owned);
    }
    panic!("no prompt");
}
