//! Checked settings, one field per section. No other module checks them again.
//!
//! [`load_config`] merges the defaults, the file, the environment and the flags, in that order. Each section has
//! a file with its type. The macro `settings!` there declares each key once: default, bounds, unit, and what an
//! administrator sees of its value.

mod client;
mod compaction;
mod format;
mod guard;
mod loading;
mod model;
pub mod names;
mod outgoing;
pub mod profile;
pub mod prompts;
mod provider;
mod recovery;
mod responses;
mod retry;
pub mod secret;
mod server;
mod store;
pub mod tokens;
mod traces;

#[cfg(test)]
mod tests;

pub use client::{AdminConfig, ClientConfig};
pub use compaction::{CompactionConfig, SummaryMaker};
pub use format::{Api, FORMATS, Format};
pub use guard::{
    ClearConfig, CutOrder, GuardConfig, Keep, PROMPT_MARGIN, Preset, RecallMode, ToolsMode,
    UsageMode, WhenUnsure,
};
pub(crate) use loading::problem::find_nearest;
pub use loading::{
    change::Change,
    environment::Environment,
    load::{Flags, LoadedConfig, load_config},
    problem::{Problem, Problems},
    schema::make_settings_schema,
    setting::Setting,
    watch::ConfigWatcher,
};
pub use model::{Deployment, ModelConfig};
pub use outgoing::{Outgoing, ProxySetting, Route};
pub use provider::{
    Auth, CacheMarkers, OPEN_WEIGHTS, PROXY_HEADER_PREFIX, PROXY_KEY, ProviderConfig, SIMULATED,
    Threads,
};
pub use recovery::{AddTools, Language, RecoveryConfig};
pub use responses::{ClientCompaction, ResponsesConfig, ResponsesWebsocket};
pub use retry::{CatalogueConfig, RetryConfig};
pub use server::{DataDir, ServerConfig};
pub use store::{RedisConfig, StoreConfig, StorePlace};
pub use traces::TracesConfig;

use std::{collections::BTreeMap, sync::Arc};

use loading::{
    load::WrittenSettings,
    section::{Section, settings},
    setting::SettingSource,
};

settings! {
    /// All settings, checked.
    pub struct Config read from s {
        /// Serves paths without a model, and bare model names that no provider and no model setting claims.
        pub default_provider: Option<String> = provider::read_provider(s, "default_provider");
        pub server: ServerConfig = s.read_section("server", ServerConfig::read);
        pub admin: AdminConfig = s.read_section("admin", AdminConfig::read);
        /// By name. Empty: the proxy may listen on loopback only, and needs no key.
        pub clients: BTreeMap<String, ClientConfig> = s.read_sections("clients", ClientConfig::read);
        /// By name; `simulated` is always there, if the build has it.
        pub providers: BTreeMap<String, ProviderConfig> = provider::read_providers(s,
            server.known_providers && default_provider.is_none() && clients.is_empty() && server.listens_on_loopback());
        /// Other names of models. A key may end with `*`, and so may its value.
        pub aliases: BTreeMap<String, String> = names::read_aliases(s);
        /// By the name a client uses (`gpt-4o`, `openai/gpt-4o`), or by the beginning of names with a `*`.
        pub models: BTreeMap<String, ModelConfig> = s.read_sections("models", ModelConfig::read);
        pub responses: ResponsesConfig = s.read_section("responses", ResponsesConfig::read);
        pub retry: RetryConfig = s.read_section("retry", RetryConfig::read);
        pub catalogue: CatalogueConfig = s.read_section("catalogue", CatalogueConfig::read);
        pub guard: GuardConfig = s.read_section("guard", GuardConfig::read);
        pub recovery: RecoveryConfig = s.read_section("recovery", RecoveryConfig::read);
        pub compaction: CompactionConfig = s.read_section("compaction", CompactionConfig::read);
        pub store: StoreConfig = s.read_section("store", StoreConfig::read);
        pub traces: TracesConfig = s.read_section("traces", TracesConfig::read);
        /// Every setting as an administrator sees it: with its source, without secrets.
        pub settings: Arc<[Setting]> = Arc::default();
    }
}

impl Config {
    /// Checks what was read from `section`. Returns the settings whose variables are not set, too. Fails with all
    /// problems at once.
    fn check_settings(mut self, mut section: Section) -> Result<(Self, Vec<Problem>), Problems> {
        names::check_references(&self, &mut section);
        let (settings, mut problems, missing) = section.finish_reading();
        self.settings = settings.into();
        if problems.is_empty() {
            return Ok((self, missing));
        }
        problems.extend(missing);
        Err(Problems(problems))
    }

    /// Whether more than the list of models would lie in the data directory.
    fn keeps_files(&self) -> bool {
        self.server.secret.is_none() || self.store.place == StorePlace::File
    }

    /// Whether any source sets the key, so that it is not at its default.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        let is_written =
            |setting: &Setting| setting.key == key && setting.from != SettingSource::Default;
        self.settings.iter().any(is_written)
    }
}

impl Default for Config {
    /// The settings without a file, variables and flags: loopback, and only the simulated provider. None that the proxy
    /// chooses by itself: who makes settings of these says which providers they have.
    fn default() -> Self {
        let environment = Environment::default();
        let mut config = WrittenSettings::from_text(None, &environment, None)
            .and_then(|written| written.check(&environment))
            .expect("a test checks that the defaults are valid")
            .config;
        config.providers.retain(|_, provider| !provider.is_known);
        config
    }
}

/// `Default` of a section: its part of the default settings.
macro_rules! section_defaults {
    ($($section:ident: $field:ident),*) => {
        $(impl Default for $section {
            fn default() -> Self {
                Config::default().$field
            }
        })*
    };
}

section_defaults!(GuardConfig: guard, RecoveryConfig: recovery, CompactionConfig: compaction, StoreConfig: store);
