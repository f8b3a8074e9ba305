//! Agents of 300 steps at providers that refuse what their models do not take, with a fallback in the midst: no client sees
//! an error. What each provider demands is written down here anew, from the vendors' documentation.

mod fallbacks;
mod known;
mod programs;
mod refused;
mod sealed;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use plimsoll::{
    config::{AddTools, Auth, ModelConfig},
    guard::profile::find_profile,
};
use serde_json::{Value, json};

use crate::support::{
    Agent, ProviderStep, ProxyBuilder, ReceivedRequest, RunningProxy, ScriptedProvider, answer,
    model_with_window, words,
};

const STEPS: usize = 300;
const WINDOW: u32 = 32_768;

/// What a provider demands of the answers that it gets back.
#[derive(Clone, Copy, PartialEq)]
enum Demand {
    /// `reasoning_content` on every answer.
    OnEvery,
    /// The same on answers with calls.
    OnCalls,
    /// The same on every answer, and an empty one counts as missing.
    OnEveryWorded,
    /// A signature of its own, or the one that is not checked, on the first call of each answer in the running turn.
    Signed,
    /// No reasoning that it has not sealed itself.
    Own,
}

/// A provider that fails at some requests, and refuses what its model does not take.
#[derive(Clone)]
struct Host {
    name: &'static str,
    demand: Demand,
    /// It fails at one of so many requests.
    fails_each: Option<usize>,
    requests: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Host {
    fn new(name: &'static str, demand: Demand, fails_each: Option<usize>) -> Self {
        Self {
            name,
            demand,
            fails_each,
            requests: Arc::default(),
            refused: Arc::default(),
        }
    }

    async fn start(&self) -> ScriptedProvider {
        let host = self.clone();
        ScriptedProvider::start_forgetful(move |request| {
            host.reply(request, host.requests.fetch_add(1, Ordering::Relaxed))
        })
        .await
    }

    fn reply(&self, request: &ReceivedRequest, nth: usize) -> Vec<ProviderStep> {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        if self.fails_each.is_some_and(|each| nth % each == each - 1) {
            return vec![answer("503 Service Unavailable", "", "{}")];
        }
        let messages = body["messages"].as_array().unwrap();
        if let Some(refusal) = self.judge(messages) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let error = json!({"error": {"message": refusal, "type": "invalid_request_error"}});
            return vec![answer("400 Bad Request", "", error.to_string())];
        }
        let tokens = request.body.len() / 4;
        if tokens > WINDOW as usize {
            let message = format!(
                "This model's maximum context length is {WINDOW} tokens. However, your messages resulted in {tokens} tokens."
            );
            let error = json!({"error": {"message": message, "code": "context_length_exceeded"}});
            return vec![answer("400 Bad Request", "", error.to_string())];
        }
        let body = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": body["model"],
            "choices": [{"index": 0, "message": self.write_message(nth), "finish_reason": "stop"}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 200, "total_tokens": tokens + 200},
        });
        vec![answer("200 OK", "", body.to_string())]
    }

    fn count_requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    fn judge(&self, messages: &[Value]) -> Option<String> {
        let answers = messages.iter().enumerate();
        let answers = answers.filter(|(_, message)| message["role"] == "assistant");
        let turn = messages
            .iter()
            .rposition(|it| it["role"] == "user")
            .unwrap_or(0);
        for (at, message) in answers {
            let calls = message["tool_calls"].as_array();
            let reasoning = message["reasoning_content"].as_str();
            let has_reasoning = match self.demand {
                Demand::OnEveryWorded => reasoning.is_some_and(|it| !it.is_empty()),
                _ => reasoning.is_some(),
            };
            match self.demand {
                Demand::OnEvery if !has_reasoning => {
                    return Some(format!(
                        "preserved thinking (thinking.keep=all) requires reasoning_content on every assistant message, \
                         but assistant message at index {at} is missing reasoning_content"
                    ));
                }
                Demand::OnCalls | Demand::OnEveryWorded
                    if !has_reasoning
                        && (calls.is_some() || self.demand == Demand::OnEveryWorded) =>
                {
                    return Some(
                        "The `reasoning_content` in the thinking mode must be passed back to the API."
                            .into(),
                    );
                }
                Demand::Signed if at > turn => {
                    let call = calls.and_then(|calls| calls.first());
                    let signature =
                        call.map(|it| &it["extra_content"]["google"]["thought_signature"]);
                    match signature.map(|it| it.as_str()) {
                        Some(None) => {
                            return Some("Function call is missing a thought_signature".into());
                        }
                        Some(Some("skip_thought_signature_validator")) | None => {}
                        Some(Some(own)) if own.starts_with(self.name) => {}
                        Some(Some(_)) => return Some("Corrupted thought signature.".into()),
                    }
                }
                Demand::Own => {
                    for detail in message["reasoning_details"]
                        .as_array()
                        .into_iter()
                        .flatten()
                    {
                        let data = detail["data"].as_str().unwrap_or_default();
                        if !data.starts_with(self.name) {
                            return Some(format!(
                                "messages.{at}.content.0: Invalid `signature` in `thinking` block"
                            ));
                        }
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The answer: mostly a call, sometimes a text that ends the turn; its reasoning may be empty where that is taken.
    fn write_message(&self, nth: usize) -> Value {
        let thoughts = match nth % 7 {
            3 if self.demand != Demand::OnEveryWorded => String::new(),
            _ => words(60 + nth % 5 * 40, nth),
        };
        let mut message = json!({"role": "assistant", "content": "That is done."});
        if nth % 13 != 12 {
            let arguments = json!({"path": format!("src/{nth}.rs")}).to_string();
            let function = json!({"name": "read_file", "arguments": arguments});
            let id = format!("call_{}_{nth}", self.name);
            message["content"] = Value::Null;
            message["tool_calls"] = json!([{"id": id, "type": "function", "function": function}]);
        }
        match self.demand {
            Demand::OnEvery | Demand::OnCalls | Demand::OnEveryWorded => {
                message["reasoning_content"] = thoughts.into();
            }
            Demand::Signed => {
                if message["tool_calls"].is_array() {
                    let signature = format!("{}{}", self.name, "A".repeat(800));
                    message["tool_calls"][0]["extra_content"] =
                        json!({"google": {"thought_signature": signature}});
                }
            }
            Demand::Own => {
                let data = format!("{}{}", self.name, "B".repeat(900));
                message["reasoning_details"] = json!([{"type": "reasoning.encrypted", "data": data, "id": format!("rs_{nth}")}]);
            }
        }
        message
    }
}

/// `m` is `model` at the first host, and falls back to `other` at the second.
async fn start_proxy(
    up: &ScriptedProvider,
    (profile, model): (&str, &str),
    other: Option<(&ScriptedProvider, &str)>,
) -> RunningProxy {
    let profile = find_profile(profile).unwrap();
    let proxy: ProxyBuilder = match other {
        Some((other, _)) => up.proxy().provider("other", other),
        None => up.proxy(),
    };
    let proxy = proxy.set(|config| {
        config.default_provider = Some("up".into());
        let settings = ModelConfig {
            provider: Some("up".into()),
            fallback: other
                .iter()
                .map(|(_, name)| format!("other/{name}"))
                .collect(),
            ..model_with_window(WINDOW)
        };
        config.models.insert(model.into(), settings);
        if let Some((_, name)) = other {
            config
                .models
                .insert(name.to_string(), model_with_window(WINDOW));
        }
    });
    let proxy = proxy.providers(|provider| {
        provider.auth = Auth::None;
        provider.profile = profile;
    });
    proxy.start().await
}

/// An agent whose steps the client sees no error in. `forgets_at`: at this step it forgets the reasoning so far.
async fn run_agent(proxy: &RunningProxy, model: &str, forgets_at: Option<usize>) {
    let mut agent = Agent::new(proxy).set("model", model);
    agent.result = |nth| words(200 + nth % 9 * 60, nth);
    for step in 0..STEPS {
        if Some(step) == forgets_at {
            for message in &mut agent.messages {
                message.as_object_mut().unwrap().remove("reasoning_content");
            }
        }
        agent.step().await;
    }
}

#[tokio::test]
async fn an_agent_goes_on_at_a_strict_provider_through_its_fallbacks() {
    for (profile, model, demand, other, other_demand) in [
        (
            "kimi",
            "kimi-k3",
            Demand::OnEvery,
            // GPT-6 takes no tools here.
            "gpt-5.6-sol",
            Demand::Own,
        ),
        (
            "deepseek",
            "deepseek-v4-pro",
            Demand::OnEveryWorded,
            "claude-opus-5-5",
            Demand::Own,
        ),
        (
            "gemini",
            "gemini-3.8-pro",
            Demand::Signed,
            "kimi-k3",
            Demand::OnEvery,
        ),
        (
            "openrouter",
            "anthropic/claude-opus-5.5",
            Demand::Own,
            "deepseek-v4-pro",
            Demand::OnEveryWorded,
        ),
        (
            "openrouter",
            "openai/gpt-6.2-sol",
            Demand::Own,
            "claude-opus-5-5",
            Demand::Own,
        ),
    ] {
        let home = Host::new("home", demand, Some(70));
        let away = Host::new("away", other_demand, None);
        let (up, down) = (home.start().await, away.start().await);
        let proxy = start_proxy(&up, (profile, model), Some((&down, other))).await;
        run_agent(&proxy, model, None).await;
        let refused = [&home, &away].map(|it| it.refused.load(Ordering::Relaxed));
        assert_eq!(refused, [0, 0], "{model}");
        assert!(away.count_requests() >= 4, "{model}");
        assert!(home.count_requests() >= STEPS, "{model}");
    }
}

#[tokio::test]
async fn a_demand_that_the_name_does_not_tell_is_learnt_once() {
    for demand in [Demand::OnEvery, Demand::OnCalls] {
        let host = Host::new("home", demand, None);
        let up = host.start().await;
        let proxy = start_proxy(&up, ("template", "fast"), None).await;
        run_agent(&proxy, "fast", Some(20)).await;
        let refused = host.refused.load(Ordering::Relaxed);
        assert_eq!(refused, 1);
        assert!(host.count_requests() >= STEPS);
        let metrics = proxy.client().get("/metrics").await;
        let filled = r#"plimsoll_thinking_refusals_total{provider="up",result="filled"} 1"#;
        assert!(metrics.text().contains(filled));
    }
}
