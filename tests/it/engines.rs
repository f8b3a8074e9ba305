//! Engines of one's own: the windows of what they run, also after they were restarted or loaded another model. No question may
//! load a model.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use plimsoll::{
    config::{Auth, Config},
    guard::profile::find_profile,
    provider::{Registry, WindowSource},
};
use serde_json::{Value, json};

use crate::support::{
    ProviderStep, ReceivedRequest, RunningProxy, ScriptedProvider, answer, within_time,
};

/// What a scripted engine runs.
struct Engine {
    /// The window of the running model in tokens; 0: it is not loaded.
    window: AtomicU32,
    /// The window that it lists, where that differs.
    listed: AtomicU32,
    is_down: AtomicBool,
    lists: AtomicUsize,
    /// Questions that would load a model.
    faults: AtomicUsize,
    /// The list in its shape, with the window of the running model.
    list: fn(u32) -> Vec<(&'static str, String)>,
}

impl Engine {
    fn new(window: u32, list: fn(u32) -> Vec<(&'static str, String)>) -> Arc<Self> {
        Arc::new(Self {
            window: AtomicU32::new(window),
            listed: AtomicU32::new(0),
            is_down: AtomicBool::new(false),
            lists: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
            list,
        })
    }

    async fn start(self: &Arc<Self>) -> ScriptedProvider {
        let engine = Arc::clone(self);
        ScriptedProvider::start_answering(move |seen| engine.answer(seen)).await
    }

    fn answer(&self, seen: &ReceivedRequest) -> Vec<ProviderStep> {
        if self.is_down.load(SeqCst) {
            return vec![ProviderStep::Close];
        }
        let path = seen.line.split(' ').nth(1).unwrap();
        if path == "/v1/chat/completions" {
            // A request loads the model.
            let _ = self.window.compare_exchange(0, 24_576, SeqCst, SeqCst);
            return self.answer_chat(seen.body.len() / 4);
        }
        let (window, listed) = (self.window.load(SeqCst), self.listed.load(SeqCst));
        let known = (self.list)(if listed > 0 { listed } else { window });
        if let Some((_, body)) = known.iter().find(|(known, _)| *known == path) {
            self.lists
                .fetch_add(usize::from(path == "/v1/models"), SeqCst);
            return vec![answer("200 OK", "", &**body)];
        }
        let is_loading = path.contains("model=") || path.contains("upstream");
        let is_loading = is_loading || !seen.line.starts_with("GET ");
        self.faults.fetch_add(usize::from(is_loading), SeqCst);
        vec![answer("404 Not Found", "", "{}")]
    }

    fn answer_chat(&self, tokens: usize) -> Vec<ProviderStep> {
        let window = self.window.load(SeqCst);
        if tokens > window as usize {
            let message = format!(
                "request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
            );
            let error = json!({"error": {"code": 400, "message": message, "type": "exceed_context_size_error",
                "n_prompt_tokens": tokens, "n_ctx": window}});
            return vec![answer("400 Bad Request", "", error.to_string())];
        }
        let message = json!({"role": "assistant", "content": "Aye."});
        let body = json!({"object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 2, "total_tokens": tokens + 2}});
        vec![answer("200 OK", "", body.to_string())]
    }
}

fn llama_cpp(window: u32) -> Vec<(&'static str, String)> {
    let model = json!({"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": window, "n_ctx_train": 131_072}});
    vec![("/v1/models", json!({"data": [model]}).to_string())]
}

fn lm_studio(window: u32) -> Vec<(&'static str, String)> {
    let instance = json!({"id": "m", "config": {"context_length": window}});
    let instances: Vec<Value> = (window > 0).then_some(instance).into_iter().collect();
    let model = json!({"type": "llm", "key": "m", "loaded_instances": instances, "max_context_length": 131_072});
    vec![
        ("/v1/models", r#"{"data":[{"id":"m"},{"id":"n"}]}"#.into()),
        ("/api/v1/models", json!({"models": [model]}).to_string()),
    ]
}

fn ollama(window: u32) -> Vec<(&'static str, String)> {
    let loaded = json!({"name": "m:latest", "model": "m:latest", "context_length": window});
    let loaded: Vec<Value> = (window > 0).then_some(loaded).into_iter().collect();
    vec![
        (
            "/v1/models",
            r#"{"data":[{"id":"m:latest"},{"id":"n:latest"}]}"#.into(),
        ),
        ("/api/ps", json!({"models": loaded}).to_string()),
        (
            "/api/show",
            r#"{"parameters":"","model_info":{"x.context_length":131072}}"#.into(),
        ),
    ]
}

async fn start_proxy(up: &ScriptedProvider, profile: &str) -> RunningProxy {
    let profile = find_profile(profile).unwrap();
    let proxy = up.proxy().providers(move |provider| {
        (provider.auth, provider.ask_models, provider.profile) = (Auth::None, None, profile);
    });
    proxy.start().await
}

/// A conversation of so many bytes.
fn conversation(bytes: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Sail the ship."})];
    let mut made = 0;
    while made < bytes {
        let words = format!("Watch {made}: ") + &"the keel of a ship and its mast ".repeat(60);
        made += words.len();
        messages.push(json!({"role": "assistant", "content": words}));
        messages.push(json!({"role": "user", "content": format!("Go on after {made}.")}));
    }
    json!({"model": "up/m", "messages": messages}).to_string()
}

/// Sends a conversation: the window that its answer reports.
async fn ask(proxy: &RunningProxy, bytes: usize) -> String {
    let answer = proxy.chat(conversation(bytes)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.headers["x-plimsoll-context-limit"]
        .to_str()
        .unwrap()
        .to_owned()
}

/// Sends short requests until an answer reports this window.
async fn ask_until(proxy: &RunningProxy, window: &str) {
    within_time(async {
        while ask(proxy, 10).await != window {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_restarted_engine_is_believed_with_a_smaller_and_a_larger_window() {
    let (engine, begun) = (Engine::new(32_768, llama_cpp), Instant::now());
    let up = engine.start().await;
    let proxy = start_proxy(&up, "template").await;
    ask_until(&proxy, "32768").await;
    assert_eq!(ask(&proxy, 80_000).await, "32768");
    // Smaller, in silence: the next request, of the same session, does not die of it.
    engine.window.store(8_192, SeqCst);
    assert_eq!(ask(&proxy, 84_000).await, "8192");
    assert_eq!(ask(&proxy, 86_000).await, "8192");
    let list_says = up.count_requests();
    ask_until(&proxy, "8192").await;
    assert!(up.count_requests() > list_says);
    // Larger, after it was away.
    engine.is_down.store(true, SeqCst);
    assert_eq!(proxy.chat(conversation(10)).await.status, 502);
    engine.window.store(65_536, SeqCst);
    engine.is_down.store(false, SeqCst);
    ask_until(&proxy, "65536").await;
    assert_eq!(ask(&proxy, 160_000).await, "65536");
    assert!(engine.lists.load(SeqCst) <= begun.elapsed().as_secs() as usize + 2);
    assert_eq!(engine.faults.load(SeqCst), 0);
}

#[tokio::test]
async fn an_engine_that_caps_its_window_in_silence_is_believed_by_its_error() {
    let engine = Engine::new(8_192, llama_cpp);
    engine.listed.store(32_768, SeqCst);
    let up = engine.start().await;
    let proxy = start_proxy(&up, "template").await;
    ask_until(&proxy, "32768").await;
    assert_eq!(ask(&proxy, 80_000).await, "8192");
    // It goes on to list the other one.
    let lists = engine.lists.load(SeqCst);
    within_time(async {
        while engine.lists.load(SeqCst) == lists {
            assert_eq!(ask(&proxy, 10).await, "8192");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    })
    .await;
    assert_eq!(ask(&proxy, 80_000).await, "8192");
}

#[tokio::test]
async fn the_window_of_a_model_is_known_once_a_request_has_loaded_it() {
    for (profile, list) in [("lmstudio", lm_studio as fn(u32) -> _), ("ollama", ollama)] {
        let engine = Engine::new(0, list);
        let up = engine.start().await;
        let proxy = start_proxy(&up, profile).await;
        ask_until(&proxy, "24576").await;
        assert_eq!(engine.faults.load(SeqCst), 0, "{profile}");
        let seen = up.requests(1).await;
        let chats = seen.iter().filter(|it| it.line.contains("/chat/")).count();
        let shows = seen
            .iter()
            .filter(|it| it.line.contains("/api/show"))
            .count();
        assert!(shows <= 3 && chats >= 2, "{profile}: {shows} of {chats}");
    }
}

/// The settings of a provider of this profile, whose list may be asked for.
fn registry(up: &ScriptedProvider, profile: &str) -> Registry {
    let mut config = Config::default();
    config.server.data_dir = Path::new("nowhere").into();
    config.catalogue.url = None;
    let mut provider = config.providers["simulated"].clone();
    provider.base_url = Some(format!("http://{}/v1", up.address));
    provider.ask_models = None;
    provider.profile = find_profile(profile).unwrap();
    config.providers.insert("up".into(), provider);
    Registry::new(&config).unwrap()
}

fn window(registry: &Registry, model: &str) -> (u32, WindowSource) {
    let window = registry
        .resolve_target(&format!("up/{model}"), None)
        .unwrap()
        .window;
    (window.tokens, window.source)
}

/// Asks an engine that answers these paths, and no others.
async fn check_windows(
    profile: &str,
    paths: &'static [(&'static str, &'static str)],
    windows: &[(&str, Option<u32>)],
) {
    let up = ScriptedProvider::start_answering(move |seen| {
        let path = seen.line.split(' ').nth(1);
        let known = paths.iter().find(|(known, _)| Some(*known) == path);
        vec![match known {
            Some((_, body)) => answer("200 OK", "", *body),
            // As LM Studio does.
            None => answer(
                "200 OK",
                "",
                r#"{"error":"Unexpected endpoint or method."}"#,
            ),
        }]
    })
    .await;
    let registry = registry(&up, profile);
    let asked = within_time(registry.ask_for_lists()).await;
    assert!(asked[0].1.is_ok(), "{asked:?}");
    for (model, tokens) in windows {
        let expected = match tokens {
            Some(tokens) => (*tokens, WindowSource::Provider),
            None => (96_000, WindowSource::Assumed),
        };
        assert_eq!(window(&registry, model), expected, "{model}");
    }
    for seen in up.requests(1).await {
        let is_named = seen.line.contains('?') || seen.line.contains("upstream");
        assert!(seen.line.starts_with("GET ") && !is_named, "{}", seen.line);
    }
}

#[tokio::test]
async fn engines_say_with_which_window_a_model_runs_or_will_run() {
    const OLD: &str = r#"{"object":"list","data":[{"id":"x.gguf","owned_by":"llamacpp","meta":{"n_ctx_train":131072}}]}"#;
    const PROPS: &str = r#"{"default_generation_settings":{"n_ctx":12288},"total_slots":2}"#;
    let old = &[("/v1/models", OLD), ("/props", PROPS)];
    check_windows("template", old, &[("any", Some(12_288))]).await;
    const ROUTER: &str = r#"{"data":[
        {"id":"run","owned_by":"llamacpp","status":{"value":"loaded","args":["llama-server","--ctx-size","32768"]},"meta":{"n_ctx":16384}},
        {"id":"set","owned_by":"llamacpp","status":{"value":"unloaded","args":["llama-server","--ctx-size","32768","--parallel","2"]}},
        {"id":"open","owned_by":"llamacpp","status":{"value":"unloaded","args":["llama-server"]}}]}"#;
    let windows = [("run", Some(16_384)), ("set", Some(16_384)), ("open", None)];
    check_windows("template", &[("/v1/models", ROUTER)], &windows).await;
    const SWAP: &str = r#"{"data":[
        {"id":"told","owned_by":"llama-swap","context_length":20480,"meta":{"n_ctx":20480},"status":{"value":"unloaded"}},
        {"id":"run","owned_by":"llama-swap","status":{"value":"loaded"}},
        {"id":"open","owned_by":"llama-swap","status":{"value":"unloaded"}}]}"#;
    const RUNNING: &str = r#"{"running":[{"model":"run","name":"","state":"ready","cmd":"llama-server --port 9 -m x.gguf -c 10240"}]}"#;
    let windows = [
        ("told", Some(20_480)),
        ("run", Some(10_240)),
        ("open", None),
    ];
    let swap = &[("/v1/models", SWAP), ("/running", RUNNING)];
    check_windows("template", swap, &windows).await;
    const VLLM: &str = r#"{"data":[{"id":"org/m","owned_by":"vllm","max_model_len":40960}]}"#;
    check_windows(
        "template",
        &[("/v1/models", VLLM)],
        &[("org/m", Some(40_960))],
    )
    .await;
    const LISTED: &str = r#"{"data":[{"id":"m"},{"id":"m:2"},{"id":"n"}]}"#;
    const INSTANCES: &str = r#"{"models":[
        {"type":"llm","key":"m","max_context_length":131072,"loaded_instances":[
            {"id":"m","config":{"context_length":16384}},{"id":"m:2","config":{"context_length":8192}}]},
        {"type":"llm","key":"n","max_context_length":131072,"loaded_instances":[]}]}"#;
    let windows = [("m", Some(8_192)), ("m:2", Some(8_192)), ("n", None)];
    let studio = &[("/v1/models", LISTED), ("/api/v1/models", INSTANCES)];
    check_windows("lmstudio", studio, &windows).await;
    const V0: &str = r#"{"data":[{"id":"m","state":"loaded","max_context_length":131072,"loaded_context_length":4096}]}"#;
    let studio = &[("/v1/models", LISTED), ("/api/v0/models", V0)];
    check_windows("lmstudio", studio, &[("m", Some(4_096)), ("n", None)]).await;
}

#[tokio::test]
async fn ollama_tells_the_window_of_a_model_that_is_not_loaded() {
    let up = ScriptedProvider::start_answering(|seen| {
        let asks = |model: &str| String::from_utf8_lossy(&seen.body).contains(model);
        vec![match seen.line.split(' ').nth(1).unwrap() {
            "/v1/models" => answer(
                "200 OK",
                "",
                r#"{"data":[{"id":"set:latest"},{"id":"open:7b"},{"id":"far-cloud"}]}"#,
            ),
            "/api/ps" => answer("200 OK", "", r#"{"models":[]}"#),
            "/api/show" if asks("set:latest") => {
                answer("200 OK", "", r#"{"parameters":"num_ctx   16384"}"#)
            }
            "/api/show" if asks("far-cloud") => answer(
                "200 OK",
                "",
                r#"{"remote_host":"https://ollama.com","model_info":{"x.context_length":262144}}"#,
            ),
            _ => answer("200 OK", "", "{}"),
        }]
    })
    .await;
    let registry = registry(&up, "ollama");
    registry.start();
    for (model, tokens, source) in [
        ("set", 16_384, WindowSource::Provider),
        // What it is loaded with at the least. Its health stays unknown.
        ("open:7b", 4_096, WindowSource::Assumed),
        ("far-cloud", 262_144, WindowSource::Provider),
    ] {
        within_time(async {
            while window(&registry, model) != (tokens, source) {
                registry
                    .choose_candidates(&format!("up/{model}"), None)
                    .unwrap();
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        })
        .await;
    }
    let shows = up.requests(1).await;
    let shows = shows.iter().filter(|it| it.line.contains("/api/show"));
    assert!(
        shows.count() <= 12,
        "a model that nobody named is not asked for"
    );
}
