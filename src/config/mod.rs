//! Checked settings, one field per stage. After `check` no stage checks them again.
//!
//! [`load`] reads them from the file, the environment and the flags, in that order.

mod check;
mod file;
mod layer;
mod load;
mod problem;
pub mod secret;
mod warn;

#[cfg(test)]
mod tests;

pub use load::{Environment, Flags, Loaded, load};
pub use problem::{Problem, Problems};
pub use warn::warnings;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use serde::Deserialize;

use crate::recovery::{Language, Prompts, clock::Pace};

/// Everything the proxy was told, as used.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: ServerConfig,
    pub admin: AdminConfig,
    /// By name; empty: only loopback may be listened on, and any client may come.
    pub clients: BTreeMap<String, ClientConfig>,
    /// By name; always has `simulated`.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Serves paths without a model, and bare model names that nobody else claims.
    pub default_provider: Option<String>,
    /// By the name a client uses (`gpt-4o`, `openai/gpt-4o`).
    pub models: BTreeMap<String, ModelConfig>,
    pub guard: GuardConfig,
    pub recovery: RecoveryConfig,
    pub store: StoreConfig,
}

#[derive(Clone, Debug)]
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
}

#[derive(Clone, Debug, Default)]
pub struct AdminConfig {
    /// SHA-256 of the admin key.
    pub key_sha256: Option<[u8; 32]>,
}

#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// SHA-256 of the client key.
    pub key_sha256: [u8; 32],
    /// Names or patterns with a trailing `*`.
    pub models: Vec<String>,
    /// Whether recovery may act for this client.
    pub recovery: bool,
}

#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// Without a slash at its end; `None` for the built-in `simulated`.
    pub base_url: Option<String>,
    pub auth: Auth,
    /// A row of the profile table: `openai`, `template`, …
    pub profile: &'static crate::guard::profile::Profile,
    /// Models this provider serves under their bare names; patterns with a trailing `*`.
    pub models: Vec<String>,
    pub connect_timeout: Duration,
    /// From the last byte of the request to the first of the answer.
    pub first_byte_timeout: Duration,
    /// Between two reads of an answer.
    pub idle_timeout: Duration,
}

/// Whose credentials go to a provider.
#[derive(Clone, Debug)]
pub enum Auth {
    /// The client's own `Authorization` is passed on.
    Client,
    /// Ours.
    Key(secret::Secret),
    None,
}

/// What is told of one model; everything else comes from the catalogue.
#[derive(Clone, Debug, Default)]
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
}

#[derive(Clone, Debug)]
pub struct GuardConfig {
    pub enabled: bool,
    pub max_tool_result_chars: usize,
    pub truncate_head_chars: usize,
    pub truncate_tail_chars: usize,
    pub reserve_tokens: u32,
    /// Share of the window a new cut goes down to; unset: 0.5 up to 64k, else 0.7.
    pub low_water: Option<f64>,
    /// Latin text; the other kinds have their own.
    pub chars_per_token: f64,
    /// A cap on the prompt, whatever the window.
    pub max_prompt_tokens: Option<u32>,
}

impl Default for GuardConfig {
    /// As in the shipped settings.
    fn default() -> Self {
        Config::default().guard
    }
}

#[derive(Clone, Debug)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
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

#[derive(Clone, Debug)]
pub struct StoreConfig {
    pub max_sessions: usize,
    pub max_bytes: usize,
    pub max_age: Duration,
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
