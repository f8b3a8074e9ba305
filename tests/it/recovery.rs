//! Recovery over real sockets: the model is prompted, writes reminders, and continues in a new
//! course; the client sees only its own answers.

mod abuse;
mod apart;
mod api;
mod ask;
mod cuts;
mod fails;
mod followed;
mod held;
mod mended;
mod messages;
mod mixed;
mod off;
mod rounds;
mod settings;
mod stable;
pub(crate) mod story;
pub(crate) mod tale;
mod text;
mod thresholds;
mod usage;

use serde_json::{Value, json};

use crate::support::{
    Agent, AgentGeneration, ModelCall, ModelReply, ModelRequest, ModelSetup, PROXY_TOOLS,
    ProxyBuilder, RunningModel, RunningProxy, model_with_early_levels, words,
};

/// A window that a few dozen steps fill.
const WINDOW: u32 = 20_000;

/// A proxy before model `m`, with the profile and window of `model`.
fn proxy_before(up: &RunningModel, model: &Shape) -> ProxyBuilder {
    let (window, profile) = (model.window, model.profile);
    let proxy = up.provider.proxy();
    let proxy = proxy.providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    proxy.set(|config| {
        config
            .models
            .insert("m".into(), model_with_early_levels(window));
        // Clearing would keep these sessions from filling up, and is tested elsewhere.
        config.guard.clear.enabled = false;
        // So is the look-up of what was cut.
        config.guard.recall = plimsoll::config::RecallMode::Off;
        // These windows are small. What is left alone there is tested in `held`.
        config.recovery.chats = true;
    })
}

/// Window and profile of a model.
#[derive(Clone, Copy)]
struct Shape {
    window: u32,
    profile: &'static plimsoll::guard::profile::Profile,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            window: WINDOW,
            profile: plimsoll::guard::profile::find_profile("openai").unwrap(),
        }
    }
}

/// A proxy, and a model of the usual shape with this reply rule.
async fn pair(
    mind: impl Fn(&ModelRequest<'_>) -> ModelReply + Send + Sync + 'static,
) -> (RunningProxy, RunningModel) {
    let up = ModelSetup::new(WINDOW).start(mind).await;
    (proxy_before(&up, &Shape::default()).start().await, up)
}

/// An agent whose first question exceeds the optimal limit, so that its second request carries the
/// first prompt.
fn agent_past_optimal(proxy: &RunningProxy) -> Agent {
    Agent::new(proxy).says(&words(10_500, 0))
}

/// The first generation that carried a prompt.
async fn first_prompted(agent: &mut Agent) -> AgentGeneration {
    agent.until(4, |it| it.injected().is_some()).await
}

/// Texts of user messages, and of blocks in tool results, that the client never sent.
fn injected_texts(upstream: &Value) -> usize {
    let messages = upstream["messages"].as_array().into_iter().flatten();
    let texts = messages.map(crate::support::model::notice::message_text);
    texts
        .filter(|text| text.contains("add_reminder") || text.contains("<continuation_package>"))
        .count()
}

/// A reply rule that writes a reminder at every notice, and otherwise works: with the client's tool
/// where there is one, otherwise in text.
fn obliging_model(heard: &ModelRequest<'_>) -> ModelReply {
    let nth = heard.nth;
    let asked = heard.notice.as_ref().is_some_and(|it| it.notes);
    if asked && heard.offers_tool("add_reminder") {
        let note = json!({"content": format!("go on after request {nth}")});
        return ModelReply::calls([ModelCall::new(&format!("own_{nth}"), "add_reminder", &note)]);
    }
    work(heard)
}

fn work(heard: &ModelRequest<'_>) -> ModelReply {
    let nth = heard.nth;
    let offered = heard.offered_tools();
    let theirs = offered.iter().find(|name| !PROXY_TOOLS.contains(name));
    match theirs.filter(|_| heard.body["tool_choice"] != "none") {
        Some(name) => {
            let path = json!({"path": format!("deck_{nth}.rs")});
            ModelReply::calls([ModelCall::new(&format!("call_{nth}"), name, &path)])
        }
        None => ModelReply::text(&format!("Done with {nth}.")),
    }
}
