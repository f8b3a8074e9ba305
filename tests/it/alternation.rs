//! A provider with a template that requires alternating roles, behind the profile `openai`, as vLLM
//! and llama.cpp are with many models. A conversation that alternates still does after cuts and
//! injections.

mod plans;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::Value;

use crate::support::{
    Agent, AgentGeneration, Mixing, ModelReply, ModelRequest, ModelSetup, NoticeManner,
    RunningModel, RunningProxy, Worker, model::notice::summary_key, model_with_courses,
    within_time, words,
};

const WINDOW: u32 = 20_000;
const REFUSAL: &str = "Conversation roles must alternate user/assistant/user/assistant/...";

/// Whether two user or two assistant messages are adjacent, system messages aside.
fn alternates_strictly(messages: &[Value]) -> bool {
    let roles = messages.iter().map(|message| &message["role"]);
    let roles: Vec<_> = roles.filter(|role| *role != "system").collect();
    roles.first().is_none_or(|role| **role == "user")
        && roles
            .windows(2)
            .all(|pair| pair[0] != pair[1] || pair[0] == "tool")
}

/// Whether user and assistant alternate in a template that leaves out tool steps.
fn alternate_without_steps(messages: &[Value]) -> bool {
    let calls = |message: &&Value| message["tool_calls"].is_array() || message["role"] == "tool";
    let said: Vec<Value> = messages.iter().filter(|it| !calls(it)).cloned().collect();
    alternates_strictly(&said)
}

/// A model behind such a template, and the number of requests that it refused.
async fn strict_model(
    template: fn(&[Value]) -> bool,
    mind: impl Fn(&ModelRequest<'_>) -> ModelReply + Send + Sync + 'static,
) -> (RunningModel, Arc<AtomicUsize>) {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let up = ModelSetup::new(WINDOW).start(move |heard| {
        if template(heard.messages()) {
            mind(heard)
        } else {
            count.fetch_add(1, Ordering::SeqCst);
            ModelReply::Fails(400, REFUSAL)
        }
    });
    (up.await, refused)
}

/// A proxy that does not know the template.
async fn proxy_before(up: &RunningModel, threshold: f64) -> RunningProxy {
    let proxy = up.provider.proxy().set(|config| {
        config.models.insert("m".into(), model_with_courses(WINDOW));
        config.guard.clear.enabled = false;
        config.recovery.chats = true;
        config.compaction.auto = threshold < 1.0;
        config.compaction.threshold = threshold;
        config.compaction.max_summary_tokens = 1_000;
    });
    proxy.start().await
}

/// Works, and summarises on request.
fn worker(
    manner: NoticeManner,
    turn: u32,
) -> impl Fn(&ModelRequest<'_>) -> ModelReply + Send + Sync {
    let mut worker = Worker::new(manner, Mixing::Never);
    worker.turn = turn;
    move |heard| match summary_key(heard.body) {
        Some(key) => ModelReply::text(&crate::compaction::sections(&key, heard.nth)),
        None => worker.compose_reply(heard),
    }
}

/// The generations of a session, and the number of refused requests.
struct Played {
    told: Vec<AgentGeneration>,
    refused: usize,
    overflows: usize,
}

impl Played {
    fn has_action(&self, what: &str) -> bool {
        let mut told = self.told.iter();
        told.any(|it| {
            it.has_action(what) || it.injected() == Some(what) || it.action(what).is_some()
        })
    }
}

/// A long session: with a tool and turns of three steps, or as chat only.
async fn play_session(
    template: fn(&[Value]) -> bool,
    manner: NoticeManner,
    chats: bool,
    stream: bool,
    threshold: f64,
) -> Played {
    let (up, refused) = strict_model(template, worker(manner, 3)).await;
    let proxy = proxy_before(&up, threshold).await;
    let mut agent = Agent::new(&proxy).set("stream", stream);
    agent.messages[1]["content"] = words(3_000, 0).into();
    agent.result = |nth| words(400, nth);
    agent.user = |nth| words(300, nth);
    if chats {
        agent.fields.as_object_mut().unwrap().remove("tools");
    }
    let mut told = Vec::new();
    for _ in 0..70 {
        let generation = agent.step().await;
        within_time(async {
            while agent.session(&generation).await["compacting"] == true {
                tokio::task::yield_now().await;
            }
        })
        .await;
        told.push(generation);
    }
    assert!(template(&agent.messages), "the client's own alternates");
    Played {
        told,
        refused: refused.load(Ordering::SeqCst),
        overflows: up.overflows(),
    }
}

#[tokio::test]
async fn an_alternating_conversation_is_never_refused_by_a_strict_template() {
    for manner in [NoticeManner::Follows, NoticeManner::Ignores] {
        for (chats, stream) in [(false, false), (false, true), (true, false), (true, true)] {
            for threshold in [0.6, 1.0] {
                let played =
                    play_session(alternates_strictly, manner, chats, stream, threshold).await;
                let case = format!("{manner:?}, chats: {chats}, stream: {stream}, {threshold}");
                assert_eq!((played.refused, played.overflows), (0, 0), "{case}");
                let met = if threshold < 1.0 {
                    // A caution prompt waits for the summary, which makes it unnecessary.
                    &["compacted"][..]
                } else {
                    &["caution", "critical", "course"]
                };
                for what in met {
                    assert!(played.has_action(what), "{case}: no {what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_template_that_leaves_out_tool_steps_refuses_one_prompt_at_most() {
    for manner in [NoticeManner::Follows, NoticeManner::Ignores] {
        for (stream, threshold) in [(false, 1.0), (true, 1.0), (false, 0.6)] {
            let template = alternate_without_steps;
            let played = play_session(template, manner, false, stream, threshold).await;
            let case = format!("{manner:?}, stream: {stream}, {threshold}");
            assert!(played.refused <= 1, "{case}: {}", played.refused);
            let met = if threshold < 1.0 {
                &["compacted"][..]
            } else {
                &["caution", "critical", "course"]
            };
            for what in met {
                assert!(played.has_action(what), "{case}: no {what}");
            }
        }
    }
}
