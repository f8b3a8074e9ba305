//! Model names, and windows learnt in the background.

mod catalogue;

use std::path::Path;

use http::Method;
use plimsoll::{
    config::{Auth, Config, Deployment, ModelConfig},
    guard::profile::find_profile,
    provider::{Registry, WindowSource, model_lists::ModelListError},
};
use serde_json::Value;
use tracing::Level;

use super::support::{
    COMPLETION, ProviderStep, ProxyBuilder, ReceivedRequest, SECRET, ScriptedProvider, answer,
    log::ThreadLog, model_with_window, send_bytes, within_time,
};

const LIST: &str = r#"{"object":"list","data":[{"id":"org/m","context_length":4096,"max_input_tokens":4000},{"id":"plain"}]}"#;
const CATALOGUE: &str = r#"{"up":{"id":"up","models":{"new":{"id":"new","limit":{"context":50000,"output":8000}}}},"openai":{"models":{"tiny":{"limit":{"context":5}}}}}"#;

/// A proxy with one provider, whose model list may be asked for.
fn asking_proxy(up: &ScriptedProvider) -> ProxyBuilder {
    up.proxy().providers(|provider| {
        provider.auth = Auth::None;
        provider.ask_models = None;
    })
}

/// Settings with a catalogue at this provider.
fn settings(up: &ScriptedProvider, data: &Path) -> Config {
    let mut config = Config::default();
    config.server.data_dir = data.into();
    config.catalogue.url = Some(format!("http://{}/api.json?token={SECRET}", up.address));
    let mut provider = config.providers["simulated"].clone();
    provider.base_url = Some(format!("http://{}/v1", up.address));
    provider.ask_models = None;
    config.providers.insert("up".into(), provider);
    config
}

async fn models(proxy: &super::support::RunningProxy) -> Vec<Value> {
    let list = proxy.client().get("/v1/models").await.json();
    list["data"].as_array().unwrap().clone()
}

fn find_model<'a>(models: &'a [Value], id: &str) -> &'a Value {
    let found = models.iter().find(|model| model["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {models:?}"))
}

#[tokio::test]
async fn a_provider_is_asked_for_its_windows_once() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", LIST)]).await;
    let proxy = asking_proxy(&up).start().await;
    for _ in 0..3 {
        let models = models(&proxy).await;
        let listed = find_model(&models, "up/org/m");
        assert_eq!(listed["context_length"], 4_096);
        assert_eq!(listed["max_input_tokens"], 4_000);
        assert_eq!(listed["owned_by"], "up");
        assert!(listed["critical_max_tokens"].as_u64().unwrap() < 4_000);
        assert!(listed["optimal_max_tokens"].as_u64() < listed["critical_max_tokens"].as_u64());
        let unknown = find_model(&models, "up/plain");
        assert!(unknown["context_length"].is_null());
        assert!(unknown["critical_max_tokens"].is_null());
    }
    let one = proxy.client().get("/v1/models/up/org/m").await.json();
    assert_eq!(one["context_length"], 4_096);
    assert_eq!(up.count_requests(), 1);
    assert_eq!(up.last_request().line, "GET /v1/models HTTP/1.1");
}

#[tokio::test]
async fn the_window_of_a_loaded_model_is_asked_for() {
    const OLLAMA: (&str, &str, &str) = (
        "ollama",
        "/api/ps",
        r#"{"models":[{"name":"llama3.1:latest","model":"llama3.1:latest","context_length":32768}]}"#,
    );
    const LM_STUDIO: (&str, &str, &str) = (
        "lmstudio",
        "/api/v0/models",
        r#"{"object":"list","data":[{"id":"llama3.1","state":"loaded","max_context_length":131072,"loaded_context_length":32768},{"id":"other","state":"not-loaded","max_context_length":131072}]}"#,
    );
    for (profile, path, loaded) in [OLLAMA, LM_STUDIO] {
        let up = ScriptedProvider::start_answering(move |request| {
            let list = r#"{"object":"list","data":[{"id":"llama3.1:latest"},{"id":"llama3.1"},{"id":"other"}]}"#;
            vec![match request.line.split(' ').nth(1) == Some(path) {
                true => answer("200 OK", "", loaded),
                false if request.line.contains(" /v1/models ") => answer("200 OK", "", list),
                false => answer("404 Not Found", "", "{}"),
            }]
        })
        .await;
        let proxy = asking_proxy(&up).providers(|it| it.profile = find_profile(profile).unwrap());
        let models = models(&proxy.start().await).await;
        assert_eq!(
            find_model(&models, "up/llama3.1")["context_length"],
            32_768,
            "{profile}"
        );
        assert!(
            find_model(&models, "up/other")["context_length"].is_null(),
            "{profile}"
        );
        // LM Studio is asked by its newer API first.
        assert_eq!(
            up.count_requests(),
            if profile == "lmstudio" { 3 } else { 2 }
        );
    }
}

#[tokio::test]
async fn a_provider_without_a_model_list_fails_no_request() {
    for steps in [
        vec![answer("500 Internal Server Error", "", "{}")],
        vec![answer("200 OK", "", "<html>")],
        vec![answer("200 OK", "", vec![b' '; (4 << 20) + 1])],
        vec![send_bytes("garbage\r\n\r\n")],
        vec![ProviderStep::Close],
    ] {
        let up = ScriptedProvider::start_answering(move |_| steps.clone()).await;
        let proxy = asking_proxy(&up).start().await;
        let models = models(&proxy).await;
        assert!(models.iter().all(|model| model["owned_by"] == "simulated"));
        assert_eq!(up.count_requests(), 1, "it is not asked again at once");
    }
}

#[tokio::test]
async fn no_request_waits_for_a_model_list() {
    let up = ScriptedProvider::start().await;
    up.script_next(vec![ProviderStep::Stall]);
    let proxy = asking_proxy(&up).start().await;
    let _ = models(&proxy).await;
    up.script_next(vec![answer("200 OK", "", COMPLETION)]);
    let body = r#"{"model":"up/m","messages":[{"role":"user","content":"hi"}]}"#;
    assert_eq!(proxy.chat(body).await.status, 200);
    assert_eq!(up.requests(2).await.len(), 2);
}

#[tokio::test]
async fn a_model_list_is_asked_for_only_where_it_is_enabled() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", LIST)]).await;
    for (auth, ask) in [
        (Auth::Client, None),
        (Auth::Client, Some(true)),
        (Auth::None, Some(false)),
    ] {
        let proxy = asking_proxy(&up).providers(move |provider| {
            provider.auth = auth.clone();
            provider.ask_models = ask;
        });
        let proxy = proxy.start().await;
        let _ = models(&proxy).await;
    }
    assert_eq!(up.count_requests(), 0);
    let mut config = settings(&up, Path::new("nowhere"));
    config.providers.get_mut("up").unwrap().auth = Auth::Client;
    let asked = within_time(Registry::new(&config).unwrap().ask_for_lists()).await;
    assert!(matches!(asked[..], [(_, Err(ModelListError::NotAsked(_)))]));
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn the_models_command_asks_providers_at_once() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", LIST)]).await;
    let registry = Registry::new(&settings(&up, Path::new("nowhere"))).unwrap();
    let before = registry.resolve_target("up/org/m", None).unwrap();
    assert_eq!(before.window.source, WindowSource::Assumed);
    assert_eq!(up.count_requests(), 0, "nothing is asked before the start");
    let asked = within_time(registry.ask_for_lists()).await;
    assert!(matches!(asked[..], [(_, Ok(2))]));
    let after = registry.current_window(&before);
    assert_eq!(
        (after.tokens, after.source),
        (4_096, WindowSource::Provider)
    );
    let unlisted = registry.resolve_target("up/other", None).unwrap().window;
    assert_eq!(
        unlisted.source,
        WindowSource::Assumed,
        "the list has several"
    );
}

#[tokio::test]
async fn an_unknown_window_is_logged_once() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", LIST)]).await;
    let registry = Registry::new(&settings(&up, Path::new("nowhere"))).unwrap();
    let log = ThreadLog::begin(Level::INFO);
    registry.resolve_target("up/only-looked-at", None).unwrap();
    for _ in 0..3 {
        registry.choose_candidates("up/plain", None).unwrap();
        registry
            .choose_candidates("simulated/plimsoll-8k", None)
            .unwrap();
    }
    let [line] = log.lines().try_into().expect("one line");
    let said = line["message"].as_str().unwrap();
    let name = r#"the window of "up/plain" is unknown, so 96000 tokens are assumed; set context_length in [models."up/plain"]"#;
    assert!(said.contains(name), "{said}");
}

#[tokio::test]
async fn the_window_of_a_single_model_server_holds_for_any_name() {
    const ONE: &str = r#"{"data":[{"id":"noise.gguf","meta":{"n_ctx":4096}}]}"#;
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", ONE)]).await;
    let mut config = settings(&up, Path::new("nowhere"));
    // A model of the catalogue: such a server may have many, whatever it lists.
    let known = config.providers["up"].clone();
    config.providers.insert("openai".into(), known);
    let told = model_with_window(128_000);
    config.models.insert("up/told".into(), told);
    let registry = Registry::new(&config).unwrap();
    let _ = within_time(registry.ask_for_lists()).await;
    for (model, tokens, source) in [
        ("up/noise.gguf", 4_096, WindowSource::Provider),
        ("up/any", 4_096, WindowSource::Provider),
        ("up/gpt-4o", 4_096, WindowSource::Provider),
        ("up/told", 128_000, WindowSource::Config),
        ("openai/any", 96_000, WindowSource::Assumed),
    ] {
        let window = registry.resolve_target(model, None).unwrap().window;
        assert_eq!((window.tokens, window.source), (tokens, source), "{model}");
    }
}

/// Behind a gateway that lists no windows, whatever its host name.
#[tokio::test]
async fn a_known_model_at_an_unknown_host_has_its_window_and_source() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", COMPLETION)]).await;
    let proxy = ProxyBuilder::new().provider("work", &up).start().await;
    let client = proxy.client();
    for (model, tokens) in [
        ("gpt-4o", Some(128_000)),
        ("claude-3-5-sonnet-latest", Some(200_000)),
        ("gemini-1.5-pro-002", Some(2_097_152)),
        ("gpt-4-32k", Some(32_768)),
        // The sources of its window disagree.
        ("gpt-5", None),
        ("gpt-4o-128k", None),
    ] {
        let body =
            format!(r#"{{"model":"work/{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
        let answer = client.chat(body).await;
        let limit = answer.headers["x-plimsoll-context-limit"].to_str().unwrap();
        let expected = tokens.map_or("unknown".to_owned(), |tokens| tokens.to_string());
        assert_eq!(limit, expected, "{model}");
        let found = client.get(&format!("/v1/models/work/{model}")).await;
        if let Some(tokens) = tokens {
            let found = found.json();
            assert_eq!(found["context_length"], tokens);
            assert_eq!(found["window_from"], "catalogue by name");
        } else {
            found.is_error(404, "model_not_found");
        }
    }
}

/// A server that silently drops the front of a long prompt would never correct a wrong window.
#[tokio::test]
async fn no_window_by_name_where_overflows_are_cut_silently() {
    let up = ScriptedProvider::start().await;
    let mut config = settings(&up, Path::new("nowhere"));
    let window = |config: &Config| {
        let registry = Registry::new(config).unwrap();
        registry
            .resolve_target("up/gpt-4o", None)
            .unwrap()
            .window
            .source
    };
    assert_eq!(window(&config), WindowSource::CatalogueByName);
    let ollama = find_profile("ollama").unwrap();
    config.providers.get_mut("up").unwrap().profile = ollama;
    assert_eq!(window(&config), WindowSource::Assumed);
}

#[tokio::test]
async fn the_model_list_shows_configured_names_to_their_keys_only() {
    let up = ScriptedProvider::start().await;
    let key = |name: &str| format!("{SECRET}-{name}");
    let proxy = up
        .proxy()
        .client("all", &key("all"), &["*"])
        .client("alias", &key("alias"), &["fast", "balanced"])
        .client("one", &key("one"), &["up/large"])
        .providers(|provider| provider.auth = Auth::None)
        .set(|config| {
            config.aliases.insert("fast".into(), "up/small".into());
            config.aliases.insert("any-*".into(), "up/*".into());
            let told = |tokens| model_with_window(tokens);
            config.models.insert("up/small".into(), told(8_000));
            config.models.insert("up/large".into(), told(90_000));
            let place = |model: &str| Deployment {
                model: model.into(),
                weight: 1,
            };
            let balanced = ModelConfig {
                deployments: vec![place("up/large"), place("up/small")],
                ..ModelConfig::default()
            };
            config.models.insert("balanced".into(), balanced);
        })
        .start()
        .await;
    let client = proxy.client();
    let get = async |name: &str, path: &str| {
        let request = client
            .request(Method::GET, path)
            .header("authorization", format!("Bearer {}", key(name)));
        client.send_with(request, "").await
    };
    let ids = async |name: &str| {
        let list = get(name, "/v1/models").await.json();
        let ids = list["data"].as_array().unwrap().iter();
        let ids = ids.map(|model| model["id"].as_str().unwrap().to_owned());
        ids.filter(|id| !id.starts_with("simulated/"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ids("all").await,
        ["balanced", "fast", "large", "small", "up/large", "up/small"]
    );
    assert_eq!(ids("alias").await, ["balanced", "fast"]);
    assert_eq!(ids("one").await, ["large", "up/large"]);
    let balanced = get("alias", "/v1/models/balanced").await.json();
    assert_eq!(balanced["context_length"], 8_000);
    assert_eq!(balanced["object"], "model");
    let encoded = get("one", "/v1/models/up%2Flarge").await.json();
    assert_eq!(encoded["id"], "up/large");
    assert_eq!(get("all", "/v1/models/any-small").await.status, 200);
    for (name, id) in [
        ("one", "up/small"),
        ("one", "small"),
        ("one", "fast"),
        ("all", "nobody/x"),
    ] {
        let found = get(name, &format!("/v1/models/{id}")).await;
        found.is_error(404, "model_not_found");
    }
    assert_eq!(up.count_requests(), 0);
}

/// Clients look for the model name of their settings, which is the one they would use without a
/// proxy.
#[tokio::test]
async fn the_model_list_has_the_providers_own_names() {
    let up = ScriptedProvider::start_answering(|seen| {
        let body = if seen.line.starts_with("GET") {
            LIST
        } else {
            COMPLETION
        };
        vec![answer("200 OK", "", body)]
    })
    .await;
    let bare = async |proxy: ProxyBuilder| {
        let proxy = proxy.start().await;
        let client = proxy.client();
        let listed = models(&proxy).await;
        let ids = listed.iter().map(|model| model["id"].as_str().unwrap());
        let bare: Vec<_> = ids.filter(|id| ["org/m", "plain"].contains(id)).collect();
        for id in ["org/m", "plain"] {
            assert_eq!(find_model(&listed, &format!("up/{id}"))["object"], "model");
            let is_listed = bare.contains(&id);
            let one = client.get(&format!("/v1/models/{id}")).await;
            assert_eq!(one.status == 200, is_listed, "{id}");
            if is_listed {
                assert_eq!(one.json(), *find_model(&listed, id));
                let body =
                    format!(r#"{{"model":"{id}","messages":[{{"role":"user","content":"hi"}}]}}"#);
                let answer = client.chat(body).await;
                assert_eq!(answer.headers["x-plimsoll-provider"], "up");
            }
        }
        bare.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()
    };
    let two = || {
        let proxy = up.proxy().provider("other", &up);
        proxy.providers(|provider| {
            provider.auth = Auth::None;
            provider.ask_models = None;
        })
    };
    assert_eq!(bare(asking_proxy(&up)).await, ["org/m", "plain"]);
    assert!(bare(two()).await.is_empty(), "nobody is meant by them");
    let default = two().set(|config| config.default_provider = Some("up".into()));
    assert_eq!(bare(default).await, ["org/m", "plain"]);
    let claimed = two().set(|config| {
        let up = config.providers.get_mut("up").unwrap();
        up.models = vec!["pl*".into()];
    });
    assert_eq!(bare(claimed).await, ["plain"]);
    let twice = two().providers(|provider| provider.models = vec!["plain".into()]);
    assert!(bare(twice).await.is_empty(), "two claim it");
}

#[tokio::test]
async fn a_model_may_be_named_in_the_path() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", COMPLETION)]).await;
    let proxy = up.proxy().providers(|provider| {
        provider.ask_models = None;
        provider.auth = Auth::None;
        if let Some(base_url) = &mut provider.base_url {
            *base_url = base_url.replace("/v1", "/deployments/{model}");
        }
    });
    let proxy = proxy.start().await;
    let client = proxy.client();
    let body = r#"{"model":"up/a/b c","messages":[{"role":"user","content":"hi"}]}"#;
    assert_eq!(client.chat(body).await.status, 200);
    let line = up.request().await.line;
    assert_eq!(
        line,
        "POST /deployments/a%2Fb%20c/chat/completions HTTP/1.1"
    );
    let body = r#"{"model":"up/..","messages":[]}"#;
    client.chat(body).await.is_error(400, "model_required");
    let found = client.get("/up/v1/files").await;
    found.is_error(400, "model_required");
    let _ = models(&proxy).await;
    assert_eq!(up.count_requests(), 1);
}

/// A setting for a name goes before the provider with which the name begins; a provider that the client chose goes before
/// both.
#[tokio::test]
async fn a_setting_for_a_name_names_its_provider() {
    let answers = |seen: &ReceivedRequest| {
        let is_broken = String::from_utf8_lossy(&seen.body).contains("\"broken\"");
        vec![if is_broken {
            answer("503 Service Unavailable", "", "{}")
        } else {
            answer("200 OK", "", COMPLETION)
        }]
    };
    let anthropic = ScriptedProvider::start_answering(answers).await;
    let openrouter = ScriptedProvider::start_answering(answers).await;
    let at = |provider: &str, tokens| ModelConfig {
        provider: Some(provider.into()),
        ..model_with_window(tokens)
    };
    let proxy = ProxyBuilder::new()
        .provider("anthropic", &anthropic)
        .provider("openrouter", &openrouter)
        .providers(|provider| provider.auth = Auth::None)
        .model("anthropic/claude-x", at("openrouter", 50_000))
        .model("anthropic/claude-y*", at("openrouter", 60_000))
        // It names the provider with which the name begins, and a name that only looks alike.
        .model("anthropic/claude-z", at("anthropic", 70_000))
        .model("anthropic*", at("openrouter", 80_000))
        .set(|config| {
            config
                .aliases
                .insert("best".into(), "anthropic/claude-x".into());
            let falls_back = ModelConfig {
                fallback: vec!["anthropic/claude-x".into()],
                ..ModelConfig::default()
            };
            config.models.insert("anthropic/broken".into(), falls_back);
        })
        .start()
        .await;
    let client = proxy.client();
    let asks = async |path: &str, model: &str, chosen: Option<&str>| {
        let mut request = client
            .request(Method::POST, path)
            .header("content-type", "application/json");
        if let Some(chosen) = chosen {
            request = request.header("x-plimsoll-provider", chosen);
        }
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
        let came = client.send_with(request, body).await;
        assert_eq!(came.status, 200, "{model}: {}", came.text());
        let provider = came.headers["x-plimsoll-provider"]
            .to_str()
            .unwrap()
            .to_owned();
        let up = if provider == "openrouter" {
            &openrouter
        } else {
            &anthropic
        };
        let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        let limit = came.headers["x-plimsoll-context-limit"]
            .to_str()
            .unwrap()
            .to_owned();
        (provider, sent["model"].as_str().unwrap().to_owned(), limit)
    };
    let chat = "/v1/chat/completions";
    for (path, model, chosen, provider, sent, limit) in [
        (
            chat,
            "anthropic/claude-x",
            None,
            "openrouter",
            "anthropic/claude-x",
            "50000",
        ),
        (
            chat,
            "best",
            None,
            "openrouter",
            "anthropic/claude-x",
            "50000",
        ),
        (
            chat,
            "anthropic/claude-y-2",
            None,
            "openrouter",
            "anthropic/claude-y-2",
            "60000",
        ),
        (
            chat,
            "openrouter/anthropic/claude-x",
            None,
            "openrouter",
            "anthropic/claude-x",
            "50000",
        ),
        (
            chat,
            "anthropic/claude-z",
            None,
            "anthropic",
            "claude-z",
            "70000",
        ),
        (
            chat,
            "anthropic/claude-3-haiku-20240307",
            None,
            "anthropic",
            "claude-3-haiku-20240307",
            "200000",
        ),
        (
            chat,
            "anthropic/claude-x",
            Some("anthropic"),
            "anthropic",
            "claude-x",
            "unknown",
        ),
        (
            "/anthropic/v1/chat/completions",
            "anthropic/claude-x",
            None,
            "anthropic",
            "claude-x",
            "unknown",
        ),
    ] {
        let found = asks(path, model, chosen).await;
        let expected = (provider.to_owned(), sent.to_owned(), limit.to_owned());
        assert_eq!(found, expected, "{path} {model}");
    }
    let (provider, ..) = asks(chat, "anthropic/broken", None).await;
    assert_eq!(provider, "openrouter");
    let listed = client.get("/v1/models/anthropic%2Fclaude-x").await.json();
    assert_eq!(
        (&listed["owned_by"], &listed["context_length"]),
        (&"openrouter".into(), &50_000.into())
    );
    let models = models(&proxy).await;
    let ids = [
        "anthropic/claude-x",
        "openrouter/anthropic/claude-x",
        "best",
    ];
    for id in ids {
        assert_eq!(find_model(&models, id)["owned_by"], "openrouter");
    }
}

/// A key that is for such a name opens it at the provider of the setting, and nothing else there.
#[tokio::test]
async fn a_key_for_a_name_opens_it_where_its_setting_says() {
    let up = ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", COMPLETION)]).await;
    let key = format!("{SECRET}-one");
    let settings = ModelConfig {
        provider: Some("openrouter".into()),
        ..model_with_window(50_000)
    };
    let proxy = ProxyBuilder::new()
        .provider("anthropic", &up)
        .provider("openrouter", &up)
        .providers(|provider| provider.auth = Auth::None)
        .client("one", &key, &["anthropic/claude-x"])
        .model("anthropic/claude-x", settings)
        .start()
        .await;
    let client = proxy.client();
    for (model, status) in [
        ("anthropic/claude-x", 200),
        ("openrouter/anthropic/claude-x", 404),
        ("openrouter/other", 404),
    ] {
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
        let request = client
            .request(Method::POST, "/v1/chat/completions")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {key}"));
        assert_eq!(
            client.send_with(request, body).await.status,
            status,
            "{model}"
        );
    }
}
