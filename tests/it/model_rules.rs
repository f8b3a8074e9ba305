//! Agents of 300 steps at providers that refuse what their models do not take, with a fallback in the midst: no client sees
//! an error. What each provider demands is written down here anew, from the vendors' documentation.

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
    /// The same, and an empty one counts as missing.
    OnCallsWorded,
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
                Demand::OnCallsWorded => reasoning.is_some_and(|it| !it.is_empty()),
                _ => reasoning.is_some(),
            };
            match self.demand {
                Demand::OnEvery if !has_reasoning => {
                    return Some(format!(
                        "preserved thinking (thinking.keep=all) requires reasoning_content on every assistant message, \
                         but assistant message at index {at} is missing reasoning_content"
                    ));
                }
                Demand::OnCalls | Demand::OnCallsWorded if calls.is_some() && !has_reasoning => {
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
            3 if self.demand != Demand::OnCallsWorded => String::new(),
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
            Demand::OnEvery | Demand::OnCalls | Demand::OnCallsWorded => {
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
            Demand::OnCalls,
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
            Demand::OnCalls,
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

const BUSY: &str = r#"{"error":{"message":"busy"}}"#;

#[tokio::test]
async fn a_fallback_that_fails_for_good_does_not_hide_the_first_error() {
    let busy = |_: &ReceivedRequest| vec![answer("503 Busy", "retry-after: 7\r\n", BUSY)];
    for (status, error) in [
        (
            "400 Bad Request",
            "Each message must have at least one content element",
        ),
        ("422 Unprocessable", "property 'x' is unsupported"),
        ("404 Not Found", "The model does not exist"),
        ("403 Forbidden", "Your plan does not include this model"),
        ("401 Unauthorized", "Incorrect API key provided"),
        ("413 Payload Too Large", "Request too large"),
        (
            "400 Bad Request",
            "This model's maximum context length is 2 tokens. However, your messages resulted in 9 tokens.",
        ),
        ("", "no answer"),
    ] {
        let up = ScriptedProvider::start_answering(busy).await;
        let down = ScriptedProvider::start_answering(move |_: &ReceivedRequest| {
            let body = json!({"error": {"message": error}}).to_string();
            match status {
                "" => vec![ProviderStep::Close],
                status => vec![answer(status, "", body)],
            }
        })
        .await;
        let proxy = start_proxy(&up, ("openai", "m"), Some((&down, "grok-4.7"))).await;
        let got = proxy
            .chat(r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#)
            .await;
        assert_eq!(got.status, 503, "{status} {error}");
        assert_eq!(got.headers["retry-after"], "7", "{status} {error}");
        assert!(got.text().contains("busy"));
        assert!(down.count_requests() > 0);
    }
}

/// A client compacts where it is told that its conversation is too long.
#[tokio::test]
async fn a_fallback_that_fails_for_good_does_not_hide_an_overflow() {
    for status in ["404 Not Found", "401 Unauthorized", ""] {
        let up = ScriptedProvider::start_answering(|_: &ReceivedRequest| {
            let error = json!({"error": {"message": "This model's maximum context length is 8000 tokens. However, your \
                messages resulted in 25000 tokens.", "code": "context_length_exceeded"}});
            vec![answer("400 Bad Request", "", error.to_string())]
        })
        .await;
        let down = ScriptedProvider::start_answering(move |_: &ReceivedRequest| match status {
            "" => vec![ProviderStep::Close],
            status => vec![answer(status, "", BUSY)],
        })
        .await;
        let proxy = start_proxy(&up, ("openai", "m"), Some((&down, "gpt-6.2-sol"))).await;
        let body =
            json!({"model": "m", "messages": [{"role": "user", "content": words(100_000, 1)}]});
        let got = proxy.chat(body.to_string()).await;
        assert_eq!(got.status, 400, "{status}");
        assert!(
            got.text().contains("context_length_exceeded"),
            "{}",
            got.text()
        );
    }
}

/// Where the client's own model is left out for a while, it is asked all the same before the client gets a refusal.
#[tokio::test]
async fn a_fallback_that_fails_for_good_does_not_hide_a_pause_of_the_model_asked_for() {
    let later = |_: &ReceivedRequest| vec![answer("429 Slow", "retry-after: 30\r\n", BUSY)];
    let gone = |_: &ReceivedRequest| vec![answer("404 Not Found", "", "{}")];
    let up = ScriptedProvider::start_answering(later).await;
    let down = ScriptedProvider::start_answering(gone).await;
    let proxy = start_proxy(&up, ("openai", "m"), Some((&down, "grok-4.7"))).await;
    for _ in 0..3 {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
        let got = proxy.chat(body).await;
        assert_eq!(got.status, 429);
        assert_eq!(got.headers["retry-after"], "30");
        assert_eq!(got.headers["x-plimsoll-attempts"], "2");
    }
}

/// The client may try again, so the last word of the providers counts.
#[tokio::test]
async fn a_fallback_that_is_busy_too_says_when_to_try_again() {
    let busy = |_: &ReceivedRequest| vec![answer("500 No", "", "{}")];
    let later = |_: &ReceivedRequest| vec![answer("429 Slow", "retry-after: 9\r\n", BUSY)];
    let up = ScriptedProvider::start_answering(busy).await;
    let down = ScriptedProvider::start_answering(later).await;
    let proxy = start_proxy(&up, ("openai", "m"), Some((&down, "grok-4.7"))).await;
    let got = proxy
        .chat(r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#)
        .await;
    assert_eq!(got.status, 429);
    assert_eq!(got.headers["retry-after"], "9");
}

/// A host that demands `reasoning_content` and refuses the request for something else.
#[tokio::test]
async fn a_demand_of_reasoning_does_not_hide_what_is_wrong_with_the_request() {
    for model in ["kimi-k3", "fast"] {
        let up = ScriptedProvider::start_answering(|request: &ReceivedRequest| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let error = match body.contains("reasoning_content") {
                true => "top_k: must be positive",
                false => "thinking is enabled but reasoning_content is missing in assistant message at index 1",
            };
            let body = json!({"error": {"message": error, "type": "invalid_request_error"}});
            vec![answer("400 Bad Request", "", body.to_string())]
        })
        .await;
        let proxy = start_proxy(&up, ("template", model), None).await;
        let body = json!({"model": model, "top_k": -1, "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]});
        let got = proxy.chat(body.to_string()).await;
        assert_eq!(got.status, 400);
        assert!(got.text().contains("top_k"), "{model}: {}", got.text());
        assert_eq!(up.count_requests(), 2, "{model}");
    }
}

/// What recovery adds is refused, and the members that are demanded of answers are not.
#[tokio::test]
async fn additions_are_taken_back_where_the_members_beside_them_are_demanded() {
    let up = ScriptedProvider::start_answering(|request: &ReceivedRequest| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let messages = body["messages"].as_array().unwrap();
        let mut answers = messages.iter().filter(|it| it["role"] == "assistant");
        let error = if request.body.windows(12).any(|it| it == b"add_reminder") {
            "Invalid tool definition"
        } else if answers.any(|it| it["reasoning_content"].is_null()) {
            "preserved thinking requires reasoning_content on every assistant message"
        } else {
            return vec![answer("200 OK", "", crate::support::COMPLETION)];
        };
        let body = json!({"error": {"message": error, "type": "invalid_request_error"}});
        vec![answer("400 Bad Request", "", body.to_string())]
    })
    .await;
    let proxy = start_proxy(&up, ("template", "kimi-k3"), None).await;
    proxy.reload(|config| config.recovery.tools = AddTools::Always);
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let body = json!({"model": "kimi-k3", "tools": [tool], "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]});
    let got = proxy.chat(body.to_string()).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

/// Hosts that serve the same models and know no such member.
#[tokio::test]
async fn a_member_that_the_name_suggests_is_taken_back_where_it_is_refused() {
    let up = ScriptedProvider::start_answering(|request: &ReceivedRequest| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let error = r#"{"error":{"message":"property 'messages.1.assistant.reasoning_content' is unsupported"}}"#;
        vec![match body.contains("reasoning_content") {
            true => answer("400 Bad Request", "", error),
            false => answer("200 OK", "", crate::support::COMPLETION),
        }]
    })
    .await;
    let proxy = start_proxy(&up, ("template", "kimi-k3"), None).await;
    let body = r#"{"model":"kimi-k3","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}"#;
    for requests in [2, 3] {
        assert_eq!(proxy.chat(body).await.status, 200);
        assert_eq!(up.count_requests(), requests, "it is remembered");
    }
    let last = up.last_request();
    assert_eq!(String::from_utf8_lossy(&last.body), body);
}

/// Where a conversation would be cut, a larger model is asked first; its error is not that of the model asked for.
#[tokio::test]
async fn the_error_of_the_model_asked_for_comes_before_that_of_a_larger_one() {
    for (status, error) in [
        ("503 Service Unavailable", "busy"),
        ("404 Not Found", "The model does not exist"),
        (
            "400 Bad Request",
            "This model's maximum context length is 2500 tokens. However, your messages resulted in 9000 tokens.",
        ),
    ] {
        let up = ScriptedProvider::start_answering(|_: &ReceivedRequest| {
            let error = r#"{"error":{"message":"no such tool"}}"#;
            vec![answer("400 Bad Request", "", error)]
        })
        .await;
        let down = ScriptedProvider::start_answering(move |_: &ReceivedRequest| {
            let body = json!({"error": {"message": error}}).to_string();
            vec![answer(status, "", body)]
        })
        .await;
        let proxy = up.proxy().provider("other", &down).set(|config| {
            config.default_provider = Some("up".into());
            let settings = ModelConfig {
                provider: Some("up".into()),
                larger: Some("other/big".into()),
                ..model_with_window(4_096)
            };
            config.models.insert("m".into(), settings);
            config
                .models
                .insert("big".into(), model_with_window(131_072));
        });
        let proxy = proxy.providers(|provider| provider.auth = Auth::None);
        let proxy = proxy.start().await;
        let mut agent = Agent::bare(&proxy).set("model", "m");
        for nth in 0..20 {
            let role = if nth % 2 == 0 { "user" } else { "assistant" };
            agent
                .messages
                .push(json!({"role": role, "content": words(400, nth)}));
        }
        agent
            .messages
            .push(json!({"role": "user", "content": "Go on."}));
        let got = agent.send().await;
        assert!(down.count_requests() > 0);
        assert_eq!(got.status, 400, "{}", got.text());
        assert!(got.text().contains("no such tool"), "{}", got.text());
    }
}
