//! Checked settings, one field per stage. After `check` no stage checks them again.
//!
//! [`load`] reads them from the file, the environment and the flags, in that order.

mod change;
mod check;
mod file;
mod layer;
mod load;
mod problem;
pub mod secret;
mod settings;
mod warn;
mod watch;

#[cfg(test)]
mod tests;

pub use change::Change;
pub use load::{Environment, Flags, Loaded, load};
pub use problem::{Problem, Problems};
pub use settings::Setting;
pub use warn::{unknown_windows, warnings};
pub use watch::Watch;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use crate::recovery::{Language, Prompts, clock::Pace};

/// Everything the proxy was told, as used.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub server: ServerConfig,
    pub admin: AdminConfig,
    /// By name; empty: only loopback may be listened on, and any client may come.
    pub clients: BTreeMap<String, ClientConfig>,
    /// By name; always has `simulated`.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Serves paths without a model, and bare model names that nobody else claims.
    pub default_provider: Option<String>,
    /// Names of models that stand for others; one may end with `*`, and so may what it stands for.
    pub aliases: BTreeMap<String, String>,
    /// By the name a client uses (`gpt-4o`, `openai/gpt-4o`), or by its beginning with a trailing `*`.
    pub models: BTreeMap<String, ModelConfig>,
    pub retry: RetryConfig,
    pub catalogue: CatalogueConfig,
    pub guard: GuardConfig,
    pub recovery: RecoveryConfig,
    pub compaction: CompactionConfig,
    pub store: StoreConfig,
    pub traces: TracesConfig,
    /// All of this as an administrator sees it, with where each comes from; without secrets.
    pub settings: Arc<[Setting]>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// One request body, after decoding.
    pub max_body_bytes: usize,
    /// All request and buffered response bodies together.
    pub max_bytes_in_flight: usize,
    pub max_connections: usize,
    /// All headers of one request.
    pub max_header_bytes: usize,
    /// From the opening of a connection to the end of its first request's headers.
    pub header_timeout: Duration,
    /// Between two reads of a request body.
    pub body_timeout: Duration,
    /// How long a drain waits for running answers.
    pub drain_timeout: Duration,
    pub data_dir: PathBuf,
    /// The installation's secret, in the place of the one in `data_dir`.
    pub secret: Option<secret::SecretKey>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdminConfig {
    /// SHA-256 of the admin key.
    pub key_sha256: Option<[u8; 32]>,
    /// Whether the administrator sees texts of conversations: prompts, reminders and summaries.
    pub show_content: bool,
    /// Whether whoever asks without a key is shown the sessions of all keys, without texts and to read
    /// only. Never with client keys.
    pub local: bool,
}

/// Where spans go.
#[derive(Clone, Debug, PartialEq)]
pub struct TracesConfig {
    /// Of a collector that speaks OTLP over HTTP, `/v1/traces` included; `None`: no traces.
    pub endpoint: Option<String>,
    /// Headers for the collector, `name=value` and a comma between two.
    pub headers: Option<secret::Secret>,
    pub service_name: String,
    /// The share of traces that begin here which are recorded. What came with a decision follows that.
    pub sample: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClientConfig {
    /// SHA-256 of the client key.
    pub key_sha256: [u8; 32],
    /// Names or patterns with a trailing `*`.
    pub models: Vec<String>,
    /// What follows `/v1/`, or its beginning with a trailing `*`: the paths this client may use. At
    /// any provider: a key of ours can also stand in its `headers` or `query`.
    pub paths: Vec<String>,
    /// Requests of this client that may run at one time; unset: any number.
    pub max_in_flight: Option<u32>,
    /// Whether recovery may act for this client.
    pub recovery: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProviderConfig {
    /// Without a slash at its end; `None` for the built-in `simulated`. `{model}` in it stands for the
    /// name of the request's model.
    pub base_url: Option<String>,
    pub auth: Auth,
    /// The header for a key of ours, without `Bearer`; unset: `Authorization`, with it.
    pub key_header: Option<HeaderName>,
    /// Added to every request, in the place of the client's of that name.
    pub headers: HeaderMap,
    /// Added to the query of every request. It may hold a key.
    pub query: Option<secret::Secret>,
    /// A row of the profile table: `openai`, `template`, …
    pub profile: &'static crate::guard::profile::Profile,
    /// Models this provider serves under their bare names; patterns with a trailing `*`.
    pub models: Vec<String>,
    pub connect_timeout: Duration,
    /// From the last byte of the request to the first of the answer.
    pub first_byte_timeout: Duration,
    /// Between two reads of an answer.
    pub idle_timeout: Duration,
    /// Whether its list of models is asked for windows; unset: where the catalogue does not know it.
    pub ask_models: Option<bool>,
    /// Failures in a row that open the breaker; 0: it never opens.
    pub breaker_failures: u32,
    /// How long an open breaker lets no request through where somebody else can answer.
    pub breaker_open: Duration,
}

/// Whose credentials go to a provider.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// The client's own `Authorization` is passed on.
    Client,
    /// Ours.
    Key(secret::Secret),
    None,
}

/// What is told of one model; everything else comes from the catalogue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelConfig {
    pub provider: Option<String>,
    pub context_length: Option<u32>,
    pub input_length: Option<u32>,
    pub optimal_max_tokens: Option<u32>,
    pub critical_max_tokens: Option<u32>,
    /// Unset: `recovery.caution_cadence`.
    pub caution_cadence: Option<u32>,
    /// Whether recovery may act for this model; unset: it may.
    pub recovery: Option<bool>,
    /// Who serves it, `provider/model` with weights; empty: its provider, under this name.
    pub deployments: Vec<Deployment>,
    /// Who answers, in this order, where none of those does.
    pub fallback: Vec<String>,
    /// A model with a larger window, to be used where a conversation would have to be cut for this.
    pub larger: Option<String>,
}

/// One of the places that serve a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// `provider/model`.
    pub model: String,
    /// Its share of the sessions, beside the others'.
    pub weight: u32,
}

/// Who sends a request again that failed, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// To the same deployment, after a failure that is not the client's; 0: never.
    pub max_retries: u32,
    /// Calls to providers for one request, fallbacks included.
    pub max_attempts: u32,
    /// After this no further attempt is begun.
    pub max_time: Duration,
    /// Before the first retry; doubled for each further one, with jitter.
    pub base_delay: Duration,
    /// No single wait is longer; a `Retry-After` beyond it ends the retries.
    pub max_delay: Duration,
}

/// Where windows of models are read from, beside the catalogue in the binary.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueConfig {
    /// A list in the form of models.dev; unset: none is fetched.
    pub url: Option<String>,
    /// How old the copy on disk may be before it is fetched again.
    pub max_age: Duration,
    /// How long what an error taught of a window is believed.
    pub learnt_max_age: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GuardConfig {
    pub enabled: bool,
    pub max_tool_result_chars: usize,
    pub truncate_head_chars: usize,
    pub truncate_tail_chars: usize,
    pub reserve_tokens: u32,
    /// Whether the answer cap of a request is lowered before its history is cut.
    pub clamp_max_tokens: bool,
    /// Share of the window a new cut goes down to; unset: 0.5 up to 64k, else 0.7.
    pub low_water: Option<f64>,
    /// Latin text; the other kinds have their own.
    pub chars_per_token: f64,
    /// A cap on the prompt, whatever the window; the smaller of the written one and the preset's.
    pub max_prompt_tokens: Option<u32>,
    pub usage: UsageMode,
    pub clear: ClearConfig,
    /// Where caps come from beside those that are written; they are in `caps`.
    pub preset: Option<Preset>,
    /// Tokens that a part of that name may have, in raw tokens; those of a preset included.
    pub caps: BTreeMap<String, u32>,
    /// The share of the budget from which on annotated system text goes.
    pub system_share: f64,
    /// Whether system text without annotations is shortened then too.
    pub trim_system: bool,
}

/// How results of old tool calls are cleared.
#[derive(Clone, Debug, PartialEq)]
pub struct ClearConfig {
    pub enabled: bool,
    /// Share of the budget from which on it is done; 0: always.
    pub at: f64,
    /// Share of the budget that it frees at least; unset: 0.2 for windows up to 64k, else 0.1, and
    /// nothing where it is always done.
    pub at_least: Option<f64>,
    /// The newest rounds (turns with tools that the model answered) and the newest steps whose results
    /// stay: what is in both.
    pub keep_rounds: u32,
    pub keep_steps: u32,
    /// Tools whose results and arguments stay; a name, or its beginning with a `*`.
    pub exclude: Vec<String>,
    /// Whether long values in the arguments of the same calls are shortened.
    pub inputs: bool,
}

/// Bounds of three layers of a prompt: two kinds of named parts, and the prompt as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    Light,
    Standard,
    Complex,
}

impl Preset {
    /// Tokens of each layer: parts named `schema`, parts named `static_context`, the whole prompt.
    const fn layers(self) -> [u32; 3] {
        match self {
            Self::Light => [4_000, 12_000, 8_000],
            Self::Standard => [4_000, 16_000, 12_000],
            Self::Complex => [6_000, 20_000, 16_000],
        }
    }

    /// Names, and tokens that a part of that name may have.
    pub const fn caps(self) -> [(&'static str, u32); 2] {
        let [schema, context, _] = self.layers();
        [("schema", schema), ("static_context", context)]
    }

    /// Tokens that the whole prompt may have.
    pub const fn max_prompt_tokens(self) -> u32 {
        self.layers()[2]
    }
}

/// Which prompt tokens a client reads in `usage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageMode {
    /// As the provider counted them.
    AsSent,
    /// With the estimate of what was left out, for clients whose own meter steers them.
    AsReceived,
}

impl Default for GuardConfig {
    /// As in the shipped settings.
    fn default() -> Self {
        Config::default().guard
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RecoveryConfig {
    pub enabled: bool,
    /// Unset: each conversation's own.
    pub language: Option<Language>,
    pub tools: AddTools,
    /// Generations from one caution prompt to the next.
    pub caution_cadence: u32,
    /// Generations of a countdown.
    pub critical_countdown: u32,
    /// Calls to the provider within one client request, that the model spends on our tools alone.
    pub max_rounds: u32,
    /// New results are held to so many characters while a session is not healthy.
    pub max_tool_result_chars: usize,
    pub prompts: Arc<Prompts>,
    /// Where texts were read from that are not the built-in ones.
    pub prompts_dir: Option<PathBuf>,
}

/// From when on the tools of recovery are added to requests that have tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AddTools {
    /// From the first prompt on.
    WhenDue,
    Always,
    Never,
}

impl Default for RecoveryConfig {
    /// As in the shipped settings.
    fn default() -> Self {
        Config::default().recovery
    }
}

impl RecoveryConfig {
    /// How often prompts are due with a model.
    pub fn pace(&self, model: &ModelConfig) -> Pace {
        Pace {
            caution_cadence: model.caution_cadence.unwrap_or(self.caution_cadence),
            critical_countdown: self.critical_countdown,
        }
    }

    /// Whether recovery acts for a model and, where clients have keys, a client.
    pub fn acts(&self, model: &ModelConfig, client: Option<&ClientConfig>) -> bool {
        self.enabled
            && model.recovery.unwrap_or(true)
            && client.is_none_or(|client| client.recovery)
    }
}

/// Whether and how the older part of a conversation is summarised by a model.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionConfig {
    /// For sessions and requests that say nothing of their own.
    pub auto: bool,
    /// Share of the window without the reserve from which on it is done.
    pub threshold: f64,
    /// Who summarises, as a client would name it; unset: the conversation's own model.
    pub model: Option<String>,
    /// The longest summary; tokens.
    pub max_summary_tokens: u32,
    /// For all calls of one summary.
    pub timeout: Duration,
    /// How long a request past the threshold, or one that would be cut, waits for its summary; zero: it
    /// does not.
    pub wait: Duration,
    /// Summaries that are made at one time.
    pub max_running: usize,
}

/// What a threshold is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    CostFirst,
    Balanced,
    KeepInformation,
}

impl Strategy {
    /// In English and in Chinese.
    pub const fn names(self) -> [&'static str; 2] {
        match self {
            Self::CostFirst => ["cost first", "成本优先"],
            Self::Balanced => ["balanced", "平衡模式"],
            Self::KeepInformation => ["keep information", "信息保留"],
        }
    }
}

impl CompactionConfig {
    pub fn strategy(&self) -> Strategy {
        match self.threshold {
            ..=0.6 => Strategy::CostFirst,
            ..=0.75 => Strategy::Balanced,
            _ => Strategy::KeepInformation,
        }
    }
}

impl Default for CompactionConfig {
    /// As in the shipped settings.
    fn default() -> Self {
        Config::default().compaction
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    pub place: StorePlace,
    /// Sessions remembered; a server bounds what it holds itself.
    pub max_sessions: usize,
    /// Of memory or disk, by the place; a server bounds what it holds itself.
    pub max_bytes: usize,
    /// Since a session was last used.
    pub max_age: Duration,
    /// How long a request waits for an answer before it goes on without a state.
    pub timeout: Duration,
    /// Encrypts what is stored of a session.
    pub encrypt_key: Option<secret::SecretKey>,
}

/// Where sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// Gone when the process ends.
    Memory,
    /// In the data directory.
    File,
    /// By a server that replicas share: Redis, Valkey, or what speaks like them.
    Redis(Box<RedisConfig>),
}

/// How a server of sessions is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConfig {
    /// `redis://` or `rediss://` with host, port, database and user; of a cluster, one for each node
    /// that may be asked for the others. Never empty. A password may stand in them.
    pub nodes: Vec<secret::Secret>,
    pub cluster: bool,
    /// In the place of one in the address.
    pub password: Option<secret::Secret>,
    /// Before every key.
    pub prefix: String,
    /// Certificates to trust instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

impl RedisConfig {
    /// Whether it is spoken to with TLS.
    pub fn is_tls(&self) -> bool {
        let first = self.nodes.first();
        first.is_some_and(|node| node.reveal().starts_with("rediss:"))
    }

    /// Hosts and ports of all nodes, without users and passwords.
    pub fn hosts(&self) -> Vec<String> {
        let shown = |node: &secret::Secret| {
            let url = reqwest::Url::parse(node.reveal()).ok()?;
            let port = url.port().unwrap_or(6379);
            Some(format!("{}:{port}", url.host_str()?))
        };
        self.nodes.iter().filter_map(shown).collect()
    }
}

impl StoreConfig {
    /// How long one call of a server may take: less than requests wait, so that the store knows first.
    pub fn call_timeout(&self) -> Duration {
        self.timeout * 4 / 5
    }

    /// How long the end of an answer waits for its state to be stored.
    pub fn save_timeout(&self) -> Duration {
        self.timeout / 5
    }
}

impl Default for StoreConfig {
    /// As in the shipped settings.
    fn default() -> Self {
        Config::default().store
    }
}

impl Default for Config {
    /// What holds when nothing is configured: loopback, and the simulated provider alone.
    fn default() -> Self {
        let nothing = Environment::default();
        let (config, _) = load::merge(None, &nothing, None)
            .expect("the built-in defaults pass their own checks, as a test holds");
        config
    }
}
