//! Checked settings, one field per stage. No stage checks them again.
//!
//! [`load`] reads them from the file, the environment and the flags, in that order. Each section has a file
//! with its type, and with the one place that says of each of its keys: default, bounds, unit, and what an
//! administrator sees of it (`section`).

mod change;
mod client;
mod compaction;
mod explain;
mod guard;
mod layer;
mod load;
mod model;
pub mod names;
mod problem;
pub mod profile;
pub mod prompts;
mod provider;
mod recovery;
mod retry;
pub mod secret;
mod section;
mod server;
mod setting;
mod store;
mod traces;
mod watch;

#[cfg(test)]
mod tests;

pub use change::Change;
pub use client::{AdminConfig, ClientConfig};
pub use compaction::CompactionConfig;
pub use guard::{ClearConfig, GuardConfig, Preset, UsageMode};
pub use load::{Environment, Flags, LoadedConfig, load_config};
pub use model::{Deployment, ModelConfig};
pub use problem::{Problem, Problems};
pub use provider::{Auth, PROXY_HEADER_PREFIX, ProviderConfig, SIMULATED};
pub use recovery::{AddTools, Language, RecoveryConfig};
pub use retry::{CatalogueConfig, RetryConfig};
pub use server::ServerConfig;
pub use setting::Setting;
pub use store::{RedisConfig, StoreConfig, StorePlace};
pub use traces::TracesConfig;
pub use watch::ConfigWatcher;

use std::{collections::BTreeMap, sync::Arc};

use load::WrittenSettings;
use section::{Section, settings};

/// The sections of the settings.
const SECTIONS: [&str; 13] = [
    "server",
    "admin",
    "clients",
    "providers",
    "aliases",
    "models",
    "retry",
    "catalogue",
    "guard",
    "recovery",
    "compaction",
    "store",
    "traces",
];

settings! {
    /// Everything the proxy was told, as used.
    pub struct Config read from s {
        /// Serves paths without a model, and bare model names that nobody else claims.
        pub default_provider: Option<String> = provider::read_provider(s, "default_provider");
        pub server: ServerConfig = s.read_section("server", ServerConfig::read);
        pub admin: AdminConfig = s.read_section("admin", AdminConfig::read);
        /// By name; empty: only loopback may be listened on, and any client may come.
        pub clients: BTreeMap<String, ClientConfig> = s.read_sections("clients", ClientConfig::read);
        /// By name; always has `simulated`.
        pub providers: BTreeMap<String, ProviderConfig> = provider::read_providers(s);
        /// Names of models that stand for others; one may end with `*`, and so may what it stands for.
        pub aliases: BTreeMap<String, String> = names::read_aliases(s);
        /// By the name a client uses (`gpt-4o`, `openai/gpt-4o`), or by its beginning with a trailing `*`.
        pub models: BTreeMap<String, ModelConfig> = s.read_sections("models", ModelConfig::read);
        pub retry: RetryConfig = s.read_section("retry", RetryConfig::read);
        pub catalogue: CatalogueConfig = s.read_section("catalogue", CatalogueConfig::read);
        pub guard: GuardConfig = s.read_section("guard", GuardConfig::read);
        pub recovery: RecoveryConfig = s.read_section("recovery", RecoveryConfig::read);
        pub compaction: CompactionConfig = s.read_section("compaction", CompactionConfig::read);
        pub store: StoreConfig = s.read_section("store", StoreConfig::read);
        pub traces: TracesConfig = s.read_section("traces", TracesConfig::read);
        /// All of this as an administrator sees it, with where each comes from; without secrets.
        pub settings: Arc<[Setting]> = Arc::default();
    }
}

impl Config {
    /// Reads all settings, and says every problem at once.
    fn read_checked(mut section: Section) -> Result<Self, Problems> {
        let mut config = Self::read(&mut section);
        names::check_references(&config, &mut section);
        let (settings, problems) = section.finish_reading();
        config.settings = settings.into();
        match problems.is_empty() {
            true => Ok(config),
            false => Err(Problems(problems)),
        }
    }

    /// Whether the settings say something of a key, which stands for its default otherwise.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        let mut settings = self.settings.iter();
        settings
            .any(|setting| setting.key == key && setting.from != setting::SettingSource::Default)
    }
}

impl Default for Config {
    /// What holds when nothing is configured: loopback, and the simulated provider alone.
    fn default() -> Self {
        let nothing = Environment::default();
        let checked = WrittenSettings::from_text(None, &nothing, None)
            .and_then(|it| it.check_settings(&nothing));
        let loaded = checked.expect("the built-in defaults pass their own checks, as a test holds");
        loaded.config
    }
}

/// The defaults of a section alone, as in the shipped settings.
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
