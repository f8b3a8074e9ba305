//! One name of a model, several windows: by the account that asks, by the beta header, by the host behind a router. What a
//! refusal teaches holds for whom it was about, and what is shown of a session goes by it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use http::{Method, request::Builder};
use plimsoll::{
    config::{Auth, ModelConfig},
    conversation::{FORMATS, Format},
    guard::profile::find_profile,
};
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, ProviderStep, ProxyBuilder, ReceivedRequest, RunningProxy, ScriptedProvider,
    answer, memory_store, model_with_window, refuse, refuse_as_openai,
};

const CLAIMED: u32 = 131_072;
const SMALL: u32 = 32_768;

/// A provider that counts a token for four bytes, and whose window depends on the request.
async fn start_host(
    window: impl Fn(&ReceivedRequest) -> u32 + Send + Sync + 'static,
    refusal: fn(u32, u64) -> Vec<ProviderStep>,
) -> ScriptedProvider {
    ScriptedProvider::start_answering(move |seen: &ReceivedRequest| {
        let (tokens, window) = (seen.body.len() as u64 / 4, window(seen));
        let is_too_long = tokens > u64::from(window);
        let usage = json!({"input_tokens": tokens, "output_tokens": 3, "total_tokens": tokens + 3});
        let body = match seen.line.split(' ').nth(1).unwrap() {
            "/v1/messages" if is_too_long => {
                let message = format!("prompt is too long: {tokens} tokens > {window} maximum");
                let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
                return vec![answer("400 Bad Request", "", error.to_string())];
            }
            _ if is_too_long => return refusal(window, tokens),
            "/v1/messages" => json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": "Well."}], "stop_reason": "end_turn", "usage": usage}),
            "/v1/responses" => {
                let text = json!([{"type": "output_text", "text": "Well.", "annotations": []}]);
                let message = json!({"type": "message", "id": "msg_1", "role": "assistant",
                    "status": "completed", "content": text});
                json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
                    "output": [message], "usage": usage})
            }
            _ => json!({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Well."}}],
                "usage": {"prompt_tokens": tokens, "completion_tokens": 3}}),
        };
        vec![answer("200 OK", "", body.to_string())]
    })
    .await
}

/// A conversation of one account.
struct Talk {
    format: Format,
    model: &'static str,
    headers: Vec<(&'static str, String)>,
    messages: Vec<Value>,
}

impl Talk {
    /// `name` stands in the first message, so that each talk is a session of its own.
    fn new(format: Format, name: &str, account: &str) -> Self {
        let first = json!({"role": "user", "content": format!("I am {name}. Read all files.")});
        Self {
            format,
            model: "m",
            headers: vec![("authorization", format!("Bearer {account}"))],
            messages: vec![first],
        }
    }

    fn with(mut self, header: &'static str, value: &str) -> Self {
        self.headers.push((header, value.to_owned()));
        self
    }

    /// Adds questions and answers of about so many tokens.
    fn grow(&mut self, tokens: usize) -> &mut Self {
        for nth in 0..tokens / 1_000 {
            let at = self.messages.len();
            let text = format!("{at} {nth} has planks of oak and a rope; ").repeat(150);
            self.messages
                .push(json!({"role": "assistant", "content": "Well."}));
            self.messages
                .push(json!({"role": "user", "content": &text[..3_940]}));
        }
        self
    }

    async fn ask(&self, proxy: &RunningProxy) -> ClientAnswer {
        let (path, body) = match self.format {
            Format::Chat => (
                "/v1/chat/completions",
                json!({"model": self.model, "messages": self.messages}),
            ),
            Format::Messages => (
                "/v1/messages",
                json!({"model": self.model, "max_tokens": 100, "messages": self.messages}),
            ),
            Format::Responses => (
                "/v1/responses",
                json!({"model": self.model, "store": false, "input": self.messages}),
            ),
        };
        let client = proxy.client();
        let request = client
            .request(Method::POST, path)
            .header("content-type", "application/json")
            .header("x-plimsoll-recovery", "off");
        let came = client
            .send_with(with_headers(request, &self.headers), body.to_string())
            .await;
        assert_eq!(came.status, 200, "{:?}: {}", self.format, came.text());
        came
    }
}

fn with_headers(request: Builder, headers: &[(&'static str, String)]) -> Builder {
    let lines = headers.iter();
    lines.fold(request, |request, (name, value)| {
        request.header(*name, value)
    })
}

fn header<'a>(came: &'a ClientAnswer, name: &str) -> &'a str {
    let value = came.headers.get(format!("x-plimsoll-{name}"));
    value.map_or("", |value| value.to_str().unwrap())
}

/// What is done to a request, and the limit by which it is shown.
fn outcome(came: &ClientAnswer) -> (bool, &str) {
    let words = ["truncated", "cleared", "dropped", "clamped", "refitted"];
    let actions = header(came, "actions");
    let is_cut = words.iter().any(|word| actions.contains(word));
    (is_cut, header(came, "context-limit"))
}

fn says(seen: &ReceivedRequest, text: &str) -> bool {
    String::from_utf8_lossy(&seen.body).contains(text)
}

fn before(up: &ScriptedProvider) -> ProxyBuilder {
    up.proxy().model("m", model_with_window(CLAIMED))
}

#[tokio::test]
async fn a_refusal_is_about_the_account_that_was_refused() {
    let window = |seen: &ReceivedRequest| match seen.header("authorization") {
        Some("Bearer small") => SMALL,
        _ => CLAIMED,
    };
    for format in FORMATS {
        let up = start_host(window, refuse_as_openai).await;
        let proxy = before(&up).start().await;
        let ask = async |name: &str, account: &str| {
            let mut talk = Talk::new(format, name, account);
            talk.grow(40_000).ask(&proxy).await
        };
        let first = ask("one", "small").await;
        assert_eq!(outcome(&first), (true, "32768"), "{format:?}");
        assert_eq!(header(&first, "attempts"), "2");
        // Another session of the account fits at once.
        let second = ask("two", "small").await;
        assert_eq!(outcome(&second), (true, "32768"), "{format:?}");
        assert_eq!(header(&second, "attempts"), "1");
        // Shown is how much of that is used.
        let used: f64 = header(&second, "prompt-tokens").parse().unwrap();
        let share: f64 = header(&second, "hard-util").parse().unwrap();
        assert!((share - used / f64::from(SMALL)).abs() < 0.001, "{share}");
        for name in ["three", "four"] {
            let other = ask(name, "large").await;
            assert_eq!(outcome(&other), (false, "131072"), "{format:?}");
        }
        // Each account has its own limits in the list, and nobody else does.
        let client = proxy.client();
        for (account, limit) in [("small", SMALL), ("large", CLAIMED), ("other", CLAIMED)] {
            let request = client
                .request(Method::GET, "/v1/models/m")
                .header("authorization", format!("Bearer {account}"));
            let listed = client.send_with(request, "").await.json();
            assert_eq!(listed["context_length"], limit, "{format:?} {account}");
            let from = if limit == SMALL {
                "learnt"
            } else {
                "configured"
            };
            assert_eq!(listed["window_from"], from);
        }
        // The page and the list show the session so, too.
        let request = client
            .request(Method::GET, "/plimsoll/api/sessions")
            .header("authorization", "Bearer small");
        let listed = client.send_with(request, "").await.json();
        for session in listed["sessions"].as_array().unwrap() {
            assert_eq!(session["context_limit"], SMALL, "{session}");
            let critical = session["critical_max_tokens"].as_u64().unwrap();
            assert!(critical < u64::from(SMALL), "{session}");
        }
    }
}

/// The proxy's own key is one account, whatever its clients send.
#[tokio::test]
async fn the_proxys_own_key_is_one_account() {
    let up = start_host(|_| SMALL, refuse_as_openai).await;
    let proxy = before(&up).providers(|provider| provider.auth = Auth::None);
    let proxy = proxy.start().await;
    for (name, attempts) in [("one", "2"), ("two", "1")] {
        let mut talk = Talk::new(Format::Chat, name, name);
        let came = talk.grow(40_000).ask(&proxy).await;
        assert_eq!(header(&came, "attempts"), attempts);
    }
}

/// However often it comes, and whatever the error names.
#[tokio::test]
async fn a_refusal_below_what_was_answered_teaches_its_session() {
    let without_numbers =
        |_: u32, _: u64| refuse(400, "invalid_request", "context window exceeds limit");
    let small_host = |seen: &ReceivedRequest| {
        if says(seen, "I am small") {
            SMALL
        } else {
            CLAIMED
        }
    };
    for format in FORMATS {
        for refusal in [refuse_as_openai as fn(u32, u64) -> _, without_numbers] {
            let up = start_host(small_host, refusal).await;
            let proxy = before(&up).start().await;
            let mut long = Talk::new(format, "long", "key");
            let came = long.grow(75_000).ask(&proxy).await;
            assert_eq!(outcome(&came), (false, "131072"), "{format:?}");
            for nth in 0..3 {
                let mut small = Talk::new(format, &format!("small {nth}"), "key");
                let came = small.grow(45_000).ask(&proxy).await;
                assert!(outcome(&came).0, "{format:?}");
                // It is healed: the next request goes out once.
                let came = small.grow(1_000).ask(&proxy).await;
                assert_eq!(header(&came, "attempts"), "1", "{format:?}");
            }
            let came = long.grow(5_000).ask(&proxy).await;
            assert_eq!(outcome(&came), (false, "131072"), "{format:?}");
            let mut fresh = Talk::new(format, "fresh", "key");
            let came = fresh.grow(50_000).ask(&proxy).await;
            assert_eq!(outcome(&came), (false, "131072"), "{format:?}");
        }
    }
}

/// Even where nothing was answered before: a router is known by its profile, and by its words.
#[tokio::test]
async fn one_host_of_a_router_says_nothing_of_the_others() {
    let as_router = |window: u32, tokens: u64| {
        let message = format!(
            "This endpoint's maximum context length is {window} tokens. However, you requested about {tokens} tokens \
             ({tokens} of text input). Please reduce the length of either one."
        );
        let error = json!({"error": {"message": message, "code": 400, "metadata": {"provider_name": "Tiny"}}});
        vec![answer("400 Bad Request", "", error.to_string())]
    };
    let hosts = |seen: &ReceivedRequest| {
        if says(seen, "I am small") {
            SMALL
        } else {
            CLAIMED
        }
    };
    for format in FORMATS {
        for (profile, refusal) in [
            ("openrouter", refuse_as_openai as fn(u32, u64) -> _),
            ("template", as_router),
        ] {
            if (format, profile) == (Format::Messages, "template") {
                continue;
            }
            let up = start_host(hosts, refusal).await;
            let profile = find_profile(profile).unwrap();
            let proxy = before(&up).providers(|provider| provider.profile = profile);
            let proxy = proxy.start().await;
            let mut small = Talk::new(format, "small", "key");
            let came = small.grow(40_000).ask(&proxy).await;
            assert_eq!(outcome(&came), (true, "32768"), "{format:?}");
            let came = small.grow(2_000).ask(&proxy).await;
            assert_eq!(outcome(&came), (true, "32768"), "{format:?}");
            assert_eq!(header(&came, "attempts"), "1");
            for name in ["one", "two"] {
                let came = Talk::new(format, name, "key")
                    .grow(60_000)
                    .ask(&proxy)
                    .await;
                assert_eq!(outcome(&came), (false, "131072"), "{format:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_longer_prompt_that_is_answered_ends_the_lesson() {
    for format in FORMATS {
        let window = Arc::new(AtomicU32::new(SMALL));
        let now = Arc::clone(&window);
        let up = start_host(move |_| now.load(SeqCst), refuse_as_openai).await;
        let proxy = before(&up).start().await;
        let mut talk = Talk::new(format, "one", "key");
        let came = talk.grow(40_000).ask(&proxy).await;
        assert_eq!(outcome(&came), (true, "32768"), "{format:?}");
        window.store(CLAIMED, SeqCst);
        // Nothing is cut there.
        let mut unguarded = Talk::new(format, "two", "key").with("x-plimsoll-guard", "off");
        let came = unguarded.grow(50_000).ask(&proxy).await;
        assert_eq!(header(&came, "context-limit"), "131072", "{format:?}");
        let mut other = Talk::new(format, "three", "key");
        let came = other.grow(60_000).ask(&proxy).await;
        assert_eq!(outcome(&came), (false, "131072"), "{format:?}");
        let came = talk.grow(1_000).ask(&proxy).await;
        assert_eq!(header(&came, "context-limit"), "131072", "{format:?}");
    }
}

/// What replicas share has no credential in it, and holds for its account at each of them.
#[tokio::test]
async fn replicas_share_the_lessons_of_each_account() {
    let window = |seen: &ReceivedRequest| match seen.header("authorization") {
        Some("Bearer sk-small-account") => SMALL,
        _ => CLAIMED,
    };
    let up = start_host(window, refuse_as_openai).await;
    let (store, data) = (memory_store(), tempfile::tempdir().unwrap());
    let start = async || {
        let proxy = before(&up).set(|config| config.server.data_dir = data.path().into());
        proxy.store(Arc::clone(&store)).start().await
    };
    let (one, other) = (start().await, start().await);
    let ask = async |proxy: &RunningProxy, name: &str, account: &str| {
        let mut talk = Talk::new(Format::Chat, name, account);
        talk.grow(40_000).ask(proxy).await
    };
    let came = ask(&one, "one", "sk-small-account").await;
    assert_eq!(header(&came, "attempts"), "2");
    let came = ask(&other, "two", "sk-small-account").await;
    assert_eq!(outcome(&came), (true, "32768"));
    assert_eq!(header(&came, "attempts"), "1");
    let came = ask(&other, "three", "sk-large-account").await;
    assert_eq!(outcome(&came), (false, "131072"));
    let shared = store.read_shared().await.unwrap().all;
    assert!(shared.len() >= 2, "{}", shared.len());
    for bytes in shared.iter().flat_map(|(name, value)| [name, value]) {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains("sk-") && !text.contains("account"), "{text}");
    }
}

const BETA: &str = "context-1m-2025-08-07";

/// The client's header, among others, or that of the provider's settings, which goes out in its place.
#[tokio::test]
async fn a_beta_header_changes_the_window() {
    let window = |seen: &ReceivedRequest| match seen.header("anthropic-beta") {
        Some(betas) if betas.contains(BETA) => 1_000_000,
        _ => 200_000,
    };
    let up = start_host(window, refuse_as_openai).await;
    let builder = || ProxyBuilder::new().provider("anthropic", &up);
    let proxy = builder().start().await;
    for model in [
        "anthropic/claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-20250514",
    ] {
        let ask = async |betas: &str| {
            let talk = Talk::new(Format::Messages, betas, "key").with("anthropic-beta", betas);
            let talk = Talk { model, ..talk };
            let came = talk.ask(&proxy).await;
            header(&came, "context-limit").to_owned()
        };
        assert_eq!(ask("files-api-2025-04-14").await, "200000", "{model}");
        let both = format!("files-api-2025-04-14, {BETA}");
        assert_eq!(ask(&both).await, "1000000", "{model}");
    }
    // It needs none, and another does not take it.
    for (model, limit) in [
        ("claude-sonnet-4-6", "1000000"),
        ("claude-haiku-4-5", "200000"),
    ] {
        let model: &'static str = format!("anthropic/{model}").leak();
        let talk = Talk::new(Format::Messages, "other", "key").with("anthropic-beta", BETA);
        let came = Talk { model, ..talk }.ask(&proxy).await;
        assert_eq!(header(&came, "context-limit"), limit, "{model}");
    }
    let model = "anthropic/claude-sonnet-4-5";
    let set = builder().providers(|provider| {
        provider
            .headers
            .insert("anthropic-beta", BETA.parse().unwrap());
    });
    let set = set.start().await;
    let talk = Talk::new(Format::Messages, "set", "key").with("anthropic-beta", "other");
    let came = Talk { model, ..talk }.ask(&set).await;
    assert_eq!(header(&came, "context-limit"), "1000000");
    // What is set for the model comes first.
    let told = builder()
        .model(model, model_with_window(150_000))
        .start()
        .await;
    let talk = Talk::new(Format::Messages, "told", "key").with("anthropic-beta", BETA);
    let came = Talk { model, ..talk }.ask(&told).await;
    assert_eq!(header(&came, "context-limit"), "150000");
}

#[tokio::test]
async fn a_refusal_without_the_beta_says_nothing_of_requests_with_it() {
    let window = |seen: &ReceivedRequest| match seen.header("anthropic-beta") {
        Some(BETA) => CLAIMED,
        _ => SMALL,
    };
    for format in FORMATS {
        let up = start_host(window, refuse_as_openai).await;
        let proxy = before(&up).start().await;
        let came = Talk::new(format, "one", "key")
            .grow(40_000)
            .ask(&proxy)
            .await;
        assert_eq!(outcome(&came), (true, "32768"), "{format:?}");
        let mut with = Talk::new(format, "two", "key").with("anthropic-beta", BETA);
        let came = with.grow(50_000).ask(&proxy).await;
        assert_eq!(outcome(&came), (false, "131072"), "{format:?}");
        let came = Talk::new(format, "three", "key")
            .grow(40_000)
            .ask(&proxy)
            .await;
        assert_eq!(header(&came, "attempts"), "1", "{format:?}");
    }
}

/// What is set or catalogued as the largest prompt changes no ratio, no level and no header.
#[tokio::test]
async fn a_configured_input_limit_is_no_window() {
    let up = start_host(|_| CLAIMED, refuse_as_openai).await;
    let settings = ModelConfig {
        input_length: Some(SMALL),
        ..model_with_window(CLAIMED)
    };
    let proxy = up.proxy().model("m", settings).start().await;
    for format in FORMATS {
        let came = Talk::new(format, "one", "key")
            .grow(20_000)
            .ask(&proxy)
            .await;
        assert_eq!(outcome(&came), (false, "131072"), "{format:?}");
        let used: f64 = header(&came, "prompt-tokens").parse().unwrap();
        let share: f64 = header(&came, "hard-util").parse().unwrap();
        assert!((share - used / f64::from(CLAIMED)).abs() < 0.001, "{share}");
    }
}
