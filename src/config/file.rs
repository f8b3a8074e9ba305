//! The settings as written: the TOML shape, in the order of `config.toml`.
//!
//! Every section has defaults and refuses unknown keys, so a misspelt setting is never ignored.
//! Nothing is checked here beyond types; [`super::check`] makes a [`super::Config`] of it.
//! No secret ever stands here: keys are named by environment variable or by digest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AddTools, Preset, UsageMode};

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) default_provider: Option<String>,
    pub(super) server: Server,
    pub(super) admin: Admin,
    pub(super) clients: BTreeMap<String, Client>,
    pub(super) providers: BTreeMap<String, Provider>,
    pub(super) aliases: BTreeMap<String, String>,
    pub(super) models: BTreeMap<String, Model>,
    pub(super) retry: Retry,
    pub(super) catalogue: Catalogue,
    pub(super) guard: Guard,
    pub(super) recovery: Recovery,
    pub(super) compaction: Compaction,
    pub(super) store: Store,
    pub(super) traces: Traces,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Server {
    pub(super) listen: String,
    pub(super) max_body_bytes: Option<u64>,
    pub(super) max_bytes_in_flight: u64,
    pub(super) max_connections: u64,
    pub(super) max_header_bytes: u64,
    pub(super) header_timeout_ms: u64,
    pub(super) body_timeout_ms: u64,
    pub(super) drain_timeout_ms: u64,
    pub(super) data_dir: String,
    pub(super) secret_env: Option<String>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:1876".to_owned(),
            max_body_bytes: None,
            max_bytes_in_flight: 512 << 20,
            max_connections: 4096,
            max_header_bytes: 64 << 10,
            header_timeout_ms: 15_000,
            body_timeout_ms: 30_000,
            drain_timeout_ms: 30_000,
            data_dir: "data".to_owned(),
            secret_env: None,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admin {
    pub(super) key_sha256: Option<String>,
    pub(super) show_content: bool,
    pub(super) local: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Client {
    /// Required; its absence is reported together with all other problems.
    pub(super) key_sha256: Option<String>,
    pub(super) models: Vec<String>,
    pub(super) paths: Vec<String>,
    pub(super) max_in_flight: Option<u32>,
    pub(super) recovery: bool,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            key_sha256: None,
            models: vec!["*".to_owned()],
            paths: ["chat/completions", "embeddings", "models"]
                .map(str::to_owned)
                .to_vec(),
            max_in_flight: None,
            recovery: true,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Provider {
    /// Required; its absence is reported together with all other problems.
    pub(super) base_url: Option<String>,
    /// Exactly one of `auth` and `api_key_env`.
    pub(super) auth: Option<Auth>,
    pub(super) api_key_env: Option<String>,
    pub(super) key_header: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) query: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) models: Vec<String>,
    pub(super) connect_timeout_ms: u64,
    pub(super) first_byte_timeout_ms: u64,
    pub(super) idle_timeout_ms: u64,
    pub(super) ask_models: Option<bool>,
    pub(super) breaker_failures: u32,
    pub(super) breaker_open_ms: u64,
}

impl Default for Provider {
    fn default() -> Self {
        Self {
            base_url: None,
            auth: None,
            api_key_env: None,
            key_header: None,
            headers: BTreeMap::new(),
            query: None,
            profile: None,
            models: Vec::new(),
            connect_timeout_ms: 10_000,
            first_byte_timeout_ms: 600_000,
            idle_timeout_ms: 300_000,
            ask_models: None,
            breaker_failures: 5,
            breaker_open_ms: 30_000,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Auth {
    Client,
    None,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Model {
    pub(super) provider: Option<String>,
    pub(super) context_length: Option<u32>,
    pub(super) input_length: Option<u32>,
    pub(super) optimal_max_tokens: Option<u32>,
    pub(super) critical_max_tokens: Option<u32>,
    pub(super) caution_cadence: Option<u32>,
    pub(super) recovery: Option<bool>,
    pub(super) deployments: Vec<Deployment>,
    pub(super) fallback: Vec<String>,
    pub(super) larger: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Deployment {
    pub(super) model: String,
    #[serde(default = "one")]
    pub(super) weight: u32,
}

const fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retry {
    pub(super) max_retries: u32,
    pub(super) max_attempts: u32,
    pub(super) max_time_ms: u64,
    pub(super) base_delay_ms: u64,
    pub(super) max_delay_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_retries: 0,
            max_attempts: 6,
            max_time_ms: 60_000,
            base_delay_ms: 500,
            max_delay_ms: 8_000,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Catalogue {
    pub(super) url: Option<String>,
    pub(super) max_age_s: u64,
    pub(super) learnt_max_age_s: u64,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self {
            url: None,
            max_age_s: 604_800,
            learnt_max_age_s: 86_400,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Guard {
    pub(super) enabled: bool,
    pub(super) max_tool_result_chars: u64,
    pub(super) truncate_head_chars: u64,
    pub(super) truncate_tail_chars: u64,
    pub(super) reserve_tokens: u32,
    pub(super) clamp_max_tokens: bool,
    pub(super) low_water: Option<f64>,
    pub(super) chars_per_token: f64,
    pub(super) max_prompt_tokens: Option<u32>,
    pub(super) usage: UsageMode,
    pub(super) clear_tools: bool,
    pub(super) clear_tools_at: f64,
    pub(super) clear_at_least: Option<f64>,
    pub(super) keep_tool_rounds: u32,
    pub(super) keep_tool_steps: u32,
    pub(super) exclude_tools: Vec<String>,
    pub(super) clear_tool_inputs: bool,
    pub(super) preset: Option<Preset>,
    pub(super) system_share: Option<f64>,
    pub(super) trim_system: bool,
    pub(super) caps: BTreeMap<String, u32>,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            enabled: true,
            max_tool_result_chars: 50_000,
            truncate_head_chars: 2_000,
            truncate_tail_chars: 2_000,
            reserve_tokens: 8_192,
            clamp_max_tokens: true,
            low_water: None,
            chars_per_token: 3.0,
            max_prompt_tokens: None,
            usage: UsageMode::AsSent,
            clear_tools: true,
            clear_tools_at: 0.6,
            clear_at_least: None,
            keep_tool_rounds: 2,
            keep_tool_steps: 10,
            exclude_tools: Vec::new(),
            clear_tool_inputs: false,
            preset: None,
            system_share: None,
            trim_system: false,
            caps: BTreeMap::new(),
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Recovery {
    pub(super) enabled: bool,
    pub(super) language: Speech,
    pub(super) tools: AddTools,
    pub(super) caution_cadence: u32,
    pub(super) critical_countdown: u32,
    pub(super) max_rounds: u32,
    pub(super) max_tool_result_chars: u64,
    pub(super) prompts_dir: Option<String>,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            enabled: true,
            language: Speech::Auto,
            tools: AddTools::WhenDue,
            caution_cadence: 10,
            critical_countdown: 5,
            max_rounds: 8,
            max_tool_result_chars: 10_000,
            prompts_dir: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Speech {
    Auto,
    En,
    Zh,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Compaction {
    pub(super) auto: bool,
    pub(super) threshold: f64,
    pub(super) model: Option<String>,
    pub(super) max_summary_tokens: u32,
    pub(super) timeout_ms: u64,
    pub(super) wait_ms: u64,
    pub(super) max_running: u32,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            auto: false,
            threshold: 0.6,
            model: None,
            max_summary_tokens: 4_000,
            timeout_ms: 120_000,
            wait_ms: 0,
            max_running: 4,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Store {
    pub(super) url: String,
    pub(super) max_sessions: Option<u64>,
    pub(super) max_bytes: Option<u64>,
    pub(super) max_age_s: u64,
    pub(super) timeout_ms: u64,
    pub(super) prefix: String,
    pub(super) password_env: Option<String>,
    pub(super) ca_file: Option<String>,
    pub(super) encrypt_key_env: Option<String>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            url: "file".to_owned(),
            max_sessions: None,
            max_bytes: None,
            max_age_s: 604_800,
            timeout_ms: 250,
            prefix: "plimsoll:".to_owned(),
            password_env: None,
            ca_file: None,
            encrypt_key_env: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Traces {
    pub(super) endpoint: String,
    pub(super) headers_env: Option<String>,
    pub(super) service_name: String,
    pub(super) sample: f64,
}

impl Default for Traces {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            headers_env: None,
            service_name: "plimsoll".to_owned(),
            sample: 1.0,
        }
    }
}
