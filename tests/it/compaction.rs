//! Summaries over real sockets: made in the background or waited for, by a scripted model, and used
//! by the next request of the same branch.

mod api;
mod bad;
mod caution;
mod first;
mod languages;
mod profiles;
mod replicas;
mod secrets;
mod storeless;
mod story;
mod switches;
mod traced;
mod versions;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use plimsoll::config::Config;
use serde_json::{Value, json};

use crate::support::{
    Agent, AgentGeneration, ModelCall, ModelReply, ModelRequest, ModelSetup, ProviderStep,
    ProxyBuilder, RunningModel, RunningProxy, answer, model::notice::summary_key,
    model_with_early_levels, within_time, words,
};

/// A window that a dozen steps fill far enough for a summary.
const WINDOW: u32 = 20_000;

/// A model that works and summarises by rule, and the number of its summaries.
struct Pair {
    up: RunningModel,
    asked: Arc<AtomicUsize>,
}

/// The reply of a summary model to its `nth` request.
type Summarises = Box<dyn Fn(&ModelRequest<'_>, usize) -> ModelReply + Send + Sync>;

impl Pair {
    async fn new(
        summarises: impl Fn(&ModelRequest<'_>, usize) -> ModelReply + Send + Sync + 'static,
    ) -> Self {
        Self::with_model(ModelSetup::new(WINDOW), Box::new(summarises)).await
    }

    async fn with_model(model: ModelSetup, summarises: Summarises) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let up = model.start(move |heard| match summary_key(heard.body) {
            Some(_) => summarises(heard, count.fetch_add(1, Ordering::SeqCst)),
            None => work_reply(heard, heard.nth),
        });
        let up = up.await;
        Self { up, asked }
    }

    fn summary_requests(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// A proxy with automatic compaction, and no other way to cut.
    fn proxy(&self) -> ProxyBuilder {
        before(&self.up, |config| config.compaction.auto = true)
    }
}

/// Recovery and clearing are tested elsewhere.
fn before(up: &RunningModel, set: impl FnOnce(&mut Config)) -> ProxyBuilder {
    up.provider.proxy().set(|config| {
        config
            .models
            .insert("m".into(), model_with_early_levels(WINDOW));
        config.recovery.enabled = false;
        config.guard.clear.enabled = false;
        // A cut goes below the threshold.
        config.guard.low_water = Some(0.5);
        config.compaction.max_summary_tokens = 1_000;
        set(config);
    })
}

/// A valid summary that contains its number.
pub(crate) fn sections(key: &str, nth: usize) -> String {
    format!(
        "<summary key=\"{key}\">\n<done>Leaks up to {nth} were mended.</done>\n\
         <to_do>The bow.</to_do>\n<current_state>Afloat, summary {nth}.</current_state>\n\
         <key_context>src/hull.rs, tar</key_context>\n<next_steps>Look at the keel.</next_steps>\n\
         <cautions>none</cautions>\n</summary>"
    )
}

fn good_summary(heard: &ModelRequest<'_>, nth: usize) -> ModelReply {
    ModelReply::text(&sections(&summary_key(heard.body).unwrap(), nth))
}

/// The same, stalled until released.
fn held_summary(heard: &ModelRequest<'_>, nth: usize) -> ModelReply {
    let text = sections(&summary_key(heard.body).unwrap(), nth);
    ModelReply::Raw(vec![
        ProviderStep::Stall,
        answer("200 OK", "", completion(&text)),
    ])
}

/// A completion with this text.
pub(crate) fn completion(text: &str) -> String {
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text},
            "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 90, "total_tokens": 990}})
    .to_string()
}

/// A call of the client's tool as the answer to any request.
pub(crate) fn work_reply(heard: &ModelRequest<'_>, nth: usize) -> ModelReply {
    match heard.offered_tools().first() {
        Some(name) => {
            let path = json!({"path": format!("deck_{nth}.rs")});
            ModelReply::calls([ModelCall::new(&format!("call_{nth}"), name, &path)])
        }
        None => ModelReply::text(&format!("Done with {nth}.")),
    }
}

/// An agent whose tool returns a few hundred tokens each time.
fn busy_agent(proxy: &RunningProxy) -> Agent {
    let mut agent = Agent::new(proxy);
    agent.result = |nth| words(500, nth);
    agent
}

/// Steps of work that another client did.
pub(crate) fn past_steps(steps: usize) -> Vec<Value> {
    let step = |nth: usize| {
        let id = format!("past_{nth}");
        [
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "read_file", "arguments": format!("{{\"path\":\"p{nth}\"}}")}}]}),
            json!({"role": "tool", "tool_call_id": id, "content": words(500, nth)}),
        ]
    };
    (0..steps).flat_map(step).collect()
}

/// An agent whose first answer is past the threshold.
fn agent_past_threshold(proxy: &RunningProxy) -> Agent {
    let mut agent = busy_agent(proxy);
    agent.messages.extend(past_steps(20));
    agent
}

/// Waits until no summary is running for the session of this answer; returns the session.
pub(crate) async fn wait_for_summary(agent: &Agent, generation: &AgentGeneration) -> Value {
    within_time(async {
        loop {
            let session = agent.session(generation).await;
            if session["compacting"] == false {
                return session;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Runs generations until one starts a summary.
async fn begin_summary(agent: &mut Agent) -> AgentGeneration {
    agent.until(40, |it| it.has_action("compacting")).await
}

/// Whether a request contains a summary of [`sections`].
fn carries_summary(body: &Value, nth: usize) -> bool {
    body["messages"]
        .to_string()
        .contains(&format!("Afloat, summary {nth}."))
}

async fn newest_request(up: &RunningModel) -> Value {
    up.bodies().await.pop().unwrap()
}
