//! Settings of recovery: bounds, and the prompts.

use std::{ops::RangeInclusive, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    ClientConfig, ModelConfig,
    loading::section::{Visibility, settings},
    prompts::{Prompts, read_prompts},
};

/// The range of a caution cadence, for all models and for one.
pub(super) const CADENCE: RangeInclusive<u32> = 1..=10_000;
pub(super) const WHY_CADENCE: &str =
    "it is the number of answers from one caution prompt to the next";

settings! {
    pub struct RecoveryConfig read from s {
        pub enabled: bool = s.read_plain("enabled", true);
        /// Unset: the language of each conversation.
        pub language: Option<Language> = s.read_plain("language", WrittenLanguage::Auto).to_language();
        pub tools: AddTools = s.read_plain("tools", AddTools::WhenDue);
        /// Whether requests without tools get prompts and courses in small windows, too.
        pub chats: bool = s.read_plain("chats", false);
        /// Generations from one caution prompt to the next.
        pub caution_cadence: u32 = s.read_number("caution_cadence", 10, CADENCE, WHY_CADENCE);
        /// Generations from the first critical prompt to a new course.
        pub critical_countdown: u32 = s.read_number("critical_countdown", 5, 1..=100,
            "it is the number of answers from the first critical prompt to a new course");
        /// Calls to the provider for one client request in which the model calls injected tools only.
        pub max_rounds: u32 = s.read_number("max_rounds", 8, 1..=32,
            "it is how often the model may call nothing but the tools of recovery within one request");
        /// The length of a new tool result while the health is critical; 0: as at any other time.
        pub max_tool_result_chars: usize = s.read_number("max_tool_result_chars", 10_000, 0..=100_000_000,
            "it is the length of a new tool result while the health is \"critical\", in characters");
        /// The directory of `prompts`; unset: the built-in ones.
        pub prompts_dir: Option<PathBuf> =
            s.explain_unset("built in").read_option::<String>("prompts_dir", Visibility::Plain).map(PathBuf::from);
        pub prompts: Arc<Prompts> = Arc::new(read_prompts(s, prompts_dir.as_deref()));
    }
}

/// The language of prompts and prefaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    English,
    Chinese,
}

/// The choices of the setting `language`.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum WrittenLanguage {
    Auto,
    En,
    Zh,
}

impl WrittenLanguage {
    const fn to_language(self) -> Option<Language> {
        match self {
            Self::Auto => None,
            Self::En => Some(Language::English),
            Self::Zh => Some(Language::Chinese),
        }
    }
}

/// When the tools of recovery are added to requests that have tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AddTools {
    /// From the first prompt of a session on.
    WhenDue,
    Always,
    Never,
}

impl RecoveryConfig {
    /// Whether recovery acts for a model and a client; `client` is `None` without client keys.
    pub fn is_enabled_for(&self, model: &ModelConfig, client: Option<&ClientConfig>) -> bool {
        self.enabled
            && model.recovery.unwrap_or(true)
            && client.is_none_or(|client| client.recovery)
    }
}
