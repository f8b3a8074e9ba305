//! What a model's API refuses by the table of models' rules: no fallback or larger model is asked it, and caps have the name
//! that a fallback takes.

use plimsoll::{
    config::{Auth, Deployment, ModelConfig},
    guard::profile::find_profile,
};
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, ProxyBuilder, ReceivedRequest, RunningProxy, ScriptedProvider, answer, full_body,
    model_with_window,
};

/// What a provider answers in chat completions, as any client reads it.
const GOOD: &str = r#"{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}"#;

const GOOD_MESSAGE: &str = r#"{"id":"1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":1}}"#;

/// A proxy whose model `m` fails, with fallbacks to `strict`, whose rules are asked for, and to a plain model.
struct Trio {
    strict: ScriptedProvider,
    plain: ScriptedProvider,
    proxy: RunningProxy,
}

impl Trio {
    async fn start(profile: &str, strict_model: &str) -> Self {
        let is_messages = |line: &str| line.contains("/messages");
        let good = move |line: &str| {
            if is_messages(line) {
                vec![answer("200 OK", "", GOOD_MESSAGE)]
            } else {
                vec![answer("200 OK", "", GOOD)]
            }
        };
        let up = ScriptedProvider::start_answering(|_| vec![answer("500 No", "", "{}")]).await;
        let strict = ScriptedProvider::start_answering(move |it| good(&it.line)).await;
        let plain = ScriptedProvider::start_answering(move |it| good(&it.line)).await;
        let first = ModelConfig {
            provider: Some("up".into()),
            fallback: vec![format!("strict/{strict_model}"), "plain/any".into()],
            ..model_with_window(32_768)
        };
        let proxy = up
            .proxy()
            .provider("strict", &strict)
            .provider("plain", &plain)
            .providers(|provider| {
                provider.auth = Auth::None;
                provider.breaker_failures = 1;
            })
            .model("m", first)
            .model(&format!("strict/{strict_model}"), model_with_window(32_768))
            .model("plain/any", model_with_window(32_768))
            .set(|config| {
                let profile = find_profile(profile).unwrap();
                config.providers.get_mut("strict").unwrap().profile = profile;
            })
            .start()
            .await;
        Self {
            strict,
            plain,
            proxy,
        }
    }

    async fn ask(&self, path: &str, body: &Value) -> ClientAnswer {
        let client = self.proxy.client();
        let request = client.request(http::Method::POST, path);
        let request = request.header("content-type", "application/json");
        let answer = client
            .send(request.body(full_body(body.to_string())).unwrap())
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    }

    /// Asks what the strict model refuses, and then the same `without` it.
    async fn check(strict_model: &str, path: &str, body: Value, without: Value) {
        let trio = Self::start("openai", strict_model).await;
        trio.ask(path, &body).await;
        let asked = (trio.strict.count_requests(), trio.plain.count_requests());
        assert_eq!(asked, (0, 1), "{strict_model}: {body}");
        trio.ask(path, &without).await;
        let asked = (trio.strict.count_requests(), trio.plain.count_requests());
        assert_eq!(asked, (1, 1), "{strict_model}: {without}");
    }
}

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

fn with(body: &Value, name: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[name] = value;
    body
}

#[tokio::test]
async fn a_fallback_is_not_asked_what_its_api_refuses() {
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let with_tools = with(&chat, "tools", json!([tool]));
    Trio::check("gpt-6.2-sol", CHAT, with_tools, chat).await;
    let messages =
        json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
    let begun = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "{"},
    ]);
    let prefilled = with(&messages, "messages", begun);
    Trio::check("claude-opus-5-5", MESSAGES, prefilled, messages.clone()).await;
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    let with_tools = with(&messages, "tools", json!([tool]));
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "f"})] {
        let forced = with(&with_tools, "tool_choice", choice);
        let free = with(&with_tools, "tool_choice", json!({"type": "auto"}));
        Trio::check("claude-opus-5-5", MESSAGES, forced, free).await;
    }
}

/// An answer that waits for the server's own tool is gone on with: it begins nothing.
#[tokio::test]
async fn a_fallback_goes_on_with_an_answer_that_the_server_paused() {
    let search = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}});
    let paused = json!({"model": "m", "max_tokens": 100, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [search]},
    ]});
    let trio = Trio::start("openai", "claude-opus-5-5").await;
    let answer = trio.ask(MESSAGES, &paused).await;
    assert_eq!(answer.headers["x-plimsoll-provider"], "strict");
}

#[tokio::test]
async fn a_fallback_gets_the_answer_cap_under_the_name_that_it_takes() {
    let old =
        json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
    let mut new = old.clone();
    new.as_object_mut().unwrap().remove("max_tokens");
    new["max_completion_tokens"] = json!(100);
    for body in [&old, &new] {
        for (profile, model, name, other) in [
            (
                "template",
                "gpt-5.6-sol",
                "max_completion_tokens",
                "max_tokens",
            ),
            (
                "mistral",
                "mistral-large",
                "max_tokens",
                "max_completion_tokens",
            ),
        ] {
            let trio = Trio::start(profile, model).await;
            let answer = trio.ask(CHAT, body).await;
            assert_eq!(answer.headers["x-plimsoll-provider"], "strict", "{model}");
            let sent: Value = serde_json::from_slice(&trio.strict.last_request().body).unwrap();
            assert_eq!((&sent[name], &sent[other]), (&json!(100), &Value::Null));
        }
    }
}

/// Some APIs refuse the other name of the cap, whatever its value is.
#[tokio::test]
async fn a_fallback_gets_one_answer_cap() {
    let (new, old) = ("max_completion_tokens", "max_tokens");
    for (profile, model, name, other) in [
        ("template", "gpt-5.6-sol", new, old),
        ("mistral", "mistral-large", old, new),
    ] {
        for (caps, expected) in [
            (json!({new: 100, old: 200}), json!(100)),
            (json!({old: 200, new: 100}), json!(100)),
            (json!({name: null, other: 200}), json!(200)),
            (json!({other: 200, name: null}), json!(200)),
            (json!({name: 100, other: null}), json!(100)),
            (json!({other: null}), Value::Null),
        ] {
            let trio = Trio::start(profile, model).await;
            let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
            let members = body.as_object_mut().unwrap();
            members.extend(caps.as_object().unwrap().clone());
            trio.ask(CHAT, &body).await;
            let sent = trio.strict.last_request().body;
            let text = String::from_utf8_lossy(&sent);
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            assert_eq!(sent[name], expected, "{caps}");
            assert!(sent.get(other).is_none(), "{caps}: {text}");
            assert!(text.matches(name).count() <= 1, "{caps}: {text}");
        }
    }
}

/// A name that stands for several models is none of them: each gets what it takes.
#[tokio::test]
async fn one_of_several_deployments_is_not_asked_what_its_api_refuses() {
    let good = |_: &ReceivedRequest| vec![answer("200 OK", "", GOOD)];
    let strict = ScriptedProvider::start_answering(good).await;
    let plain = ScriptedProvider::start_answering(good).await;
    let deployment = |model: &str| Deployment {
        model: model.into(),
        weight: 1,
    };
    let group = ModelConfig {
        deployments: vec![
            deployment("strict/gpt-6.2-sol"),
            deployment("plain/mistral-large"),
        ],
        ..ModelConfig::default()
    };
    let proxy = ProxyBuilder::new()
        .provider("strict", &strict)
        .provider("plain", &plain);
    let proxy = proxy.providers(|provider| {
        provider.auth = Auth::None;
        provider.profile = find_profile("openai").unwrap();
    });
    let proxy = proxy.model("m", group).start().await;
    let talk = |nth: u32| {
        let said = format!("hi {nth}");
        json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": said}]})
    };
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    for nth in 0..20 {
        let body = with(&talk(nth), "tools", json!([tool]));
        assert_eq!(proxy.chat(body.to_string()).await.status, 200);
    }
    assert_eq!((strict.count_requests(), plain.count_requests()), (0, 20));
    // Half of the sessions go to each.
    for nth in 0..100 {
        if strict.count_requests() == 0 {
            assert_eq!(proxy.chat(talk(nth).to_string()).await.status, 200);
        }
    }
    let sent: Value = serde_json::from_slice(&strict.last_request().body).unwrap();
    assert_eq!(sent["max_completion_tokens"], 100);
    assert!(sent.get("max_tokens").is_none());
}

/// What the client's own model is asked stays as it came, whatever the table says.
#[tokio::test]
async fn a_model_that_the_client_names_gets_what_came() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", GOOD)]).await;
    let proxy = up.proxy().start().await;
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let body = json!({"model": "gpt-6.2-sol", "max_tokens": 100, "tools": [tool],
        "messages": [{"role": "user", "content": "hi"}]});
    let answer = proxy.chat(body.to_string()).await;
    assert_eq!(answer.status, 200);
    let sent = &up.last_request().body;
    assert_eq!(String::from_utf8_lossy(sent), body.to_string());
}
