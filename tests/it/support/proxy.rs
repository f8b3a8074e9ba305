//! A running proxy: `ProxyBuilder::new().provider("up", &scripted).start().await`.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use plimsoll::{
    CurrentConfig,
    config::{
        Auth, CacheMarkers, Change, ClientConfig, Config, ModelConfig, ProviderConfig,
        ProxySetting, Threads, WhenUnsure,
    },
    conversation::FORMATS,
    guard::profile,
    store::Store,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};

use super::{
    client::{ClientAnswer, TestClient},
    provider::ScriptedProvider,
};

/// Limits a wait to 20 s.
pub(crate) async fn within_time<F: Future>(wait: F) -> F::Output {
    let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
    waited.expect("the wait ends within 20 s")
}

/// Settings of a model with this window and defaults otherwise.
pub(crate) fn model_with_window(tokens: u32) -> ModelConfig {
    ModelConfig {
        context_length: Some(tokens),
        ..ModelConfig::default()
    }
}

/// The same with levels that a session reaches early: at 60 % and 90 % of the prompts that fit beside an answer of
/// 8,192 tokens or a quarter of the window.
pub(crate) fn model_with_early_levels(window: u32) -> ModelConfig {
    let room = window - (window / 4).min(8_192);
    let most = room - room / 64;
    ModelConfig {
        optimal_max_tokens: Some(((u64::from(most) * 6 / 10) as u32).min(100_000)),
        critical_max_tokens: Some((u64::from(most) * 9 / 10) as u32),
        ..model_with_window(window)
    }
}

/// The same with levels below what a cut leaves, so that no cut ends a countdown.
pub(crate) fn model_with_courses(window: u32) -> ModelConfig {
    let room = window - (window / 4).min(8_192);
    ModelConfig {
        optimal_max_tokens: Some(room / 100 * 45),
        critical_max_tokens: Some(room / 100 * 60),
        ..model_with_window(window)
    }
}

/// Tokens kept free for an answer; in the smallest window a quarter of it, if that is less.
const RESERVE: u32 = 8_192;

pub(crate) struct ProxyBuilder {
    config: Config,
    data: TempDir,
    store: Option<Arc<dyn Store>>,
}

pub(crate) struct RunningProxy {
    pub(crate) address: SocketAddr,
    pub(crate) live: Arc<CurrentConfig>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinSet<std::io::Result<()>>,
    _data: TempDir,
}

impl ProxyBuilder {
    pub(crate) fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut config = base_config(&data);
        config.providers.insert("simulated".into(), provider(None));
        Self {
            config,
            data,
            store: None,
        }
    }

    /// A provider that gets the client's credentials.
    pub(crate) fn provider(mut self, name: &str, scripted: &ScriptedProvider) -> Self {
        let url = format!("http://{}/v1", scripted.address);
        self.config
            .providers
            .insert(name.into(), provider(Some(url)));
        self
    }

    /// A client key that may use these models.
    pub(crate) fn client(mut self, name: &str, key: &str, models: &[&str]) -> Self {
        let client = ClientConfig {
            key_sha256: Sha256::digest(key).into(),
            models: models.iter().map(|&model| model.into()).collect(),
            paths: ["chat/completions", "embeddings", "models"]
                .map(String::from)
                .into(),
            max_in_flight: None,
            recovery: true,
            metrics: false,
        };
        self.config.clients.insert(name.into(), client);
        self
    }

    /// Settings of a model; `*` is for all models without settings.
    pub(crate) fn model(mut self, name: &str, settings: ModelConfig) -> Self {
        self.config.models.insert(name.into(), settings);
        self
    }

    pub(crate) fn set(mut self, set: impl FnOnce(&mut Config)) -> Self {
        set(&mut self.config);
        self
    }

    /// Changes every provider's settings.
    pub(crate) fn providers(mut self, set: impl Fn(&mut ProviderConfig)) -> Self {
        self.config.providers.values_mut().for_each(set);
        self
    }

    /// A store that outlives the proxy.
    pub(crate) fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    pub(crate) async fn start(mut self) -> RunningProxy {
        if self.config.guard.reserve_tokens == Some(RESERVE) {
            let windows = self.config.models.values();
            let least = windows.filter_map(|model| model.context_length).min();
            let reserve = least.map_or(RESERVE, |window| (window / 4).min(RESERVE));
            self.config.guard.reserve_tokens = Some(reserve);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        let live = match self.store {
            Some(store) => CurrentConfig::with_store(self.config, store),
            None => CurrentConfig::new(self.config).await,
        };
        let live = Arc::new(live.unwrap());
        task.spawn(plimsoll::serve(Arc::clone(&live), listener, async {
            let _ = stopped.await;
        }));
        RunningProxy {
            address,
            live,
            stop: Some(stop),
            task,
            _data: self.data,
        }
    }
}

impl ScriptedProvider {
    /// A proxy before this provider, under the name `up`.
    pub(crate) fn proxy(&self) -> ProxyBuilder {
        ProxyBuilder::new().provider("up", self)
    }
}

impl From<&RunningProxy> for TestClient {
    fn from(proxy: &RunningProxy) -> Self {
        proxy.client()
    }
}

impl RunningProxy {
    pub(crate) fn client(&self) -> TestClient {
        TestClient::http1(self.address)
    }

    /// Sends a chat completion over a new connection.
    pub(crate) async fn chat(&self, body: impl Into<Bytes>) -> ClientAnswer {
        self.client().chat(body).await
    }

    /// A client with HTTP/2 by prior knowledge.
    pub(crate) fn client_h2(&self) -> TestClient {
        TestClient::http2(self.address)
    }

    /// Applies changed settings.
    pub(crate) fn reload(&self, change: impl FnOnce(&mut Config)) -> Change {
        let mut config = self.live.app().config.clone();
        change(&mut config);
        self.live.reload_config(Ok(config)).unwrap()
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits until the proxy has stopped.
    pub(crate) async fn wait_until_gone(&mut self) {
        let ended = within_time(self.task.join_next()).await;
        ended.unwrap().unwrap().unwrap();
    }
}

fn base_config(data: &TempDir) -> Config {
    let mut config = Config::default();
    config.server.data_dir = data.path().into();
    // Tests ask nobody outside.
    config.catalogue.url = None;
    // A slow machine must not look like a store that is down.
    config.store.timeout = Duration::from_secs(10);
    // As the engines of the tests count.
    config.guard.chars_per_token = Some(3.0);
    // The same budget for every request of a session, so that a test can say when a cut is due.
    config.guard.reserve_tokens = Some(RESERVE);
    config.guard.when_unsure = Some(WhenUnsure::Cut);
    config.providers.clear();
    config
}

fn provider(base_url: Option<String>) -> ProviderConfig {
    ProviderConfig {
        forwarded_headers: false,
        base_url,
        auth: Auth::Client,
        formats: FORMATS.to_vec(),
        cache_markers: CacheMarkers::Off,
        threads: Threads::Pass,
        key_header: None,
        headers: http::HeaderMap::new(),
        query: None,
        profile: profile::find_profile("openai").unwrap(),
        models: Vec::new(),
        is_known: false,
        proxy: ProxySetting::Environment,
        connect_timeout: Duration::from_secs(5),
        first_byte_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        ask_models: Some(false),
        listed: true,
        breaker_failures: 5,
        breaker_open: Duration::from_secs(30),
    }
}
