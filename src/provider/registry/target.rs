//! A model at a provider, with its window and settings.

use std::sync::Arc;

use crate::{
    config::{
        Auth, GuardConfig, ModelConfig,
        profile::{AnswerRoom, Profile},
        tokens::{TokenRule, find_token_rule},
    },
    health::limits::{HealthLimits, choose_health_limits},
    provider::{
        Provider, Window,
        learnt_windows::{LessonKey, LessonScope},
    },
};

/// A model at a provider, with its window and settings.
#[derive(Clone, Debug)]
pub struct Target {
    pub provider: Arc<Provider>,
    /// The model's name at the provider.
    pub model: String,
    pub window: Window,
    pub settings: ModelConfig,
    /// For whom the window is looked up.
    pub scope: LessonScope,
    /// The client's name for the model has the suffix for a window of 1,000,000 tokens.
    pub asks_long_window: bool,
    /// Reported tokens of the session's last answer by this model; 0 if there is none.
    pub answered: u32,
}

impl Target {
    /// The full name: `provider/model`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.provider.name, self.model)
    }

    /// What refusals of this model are learnt by.
    pub fn lesson_key(&self) -> LessonKey {
        LessonKey::new(&self.provider.endpoint, &self.model, self.scope)
    }

    /// The provider's profile, as this model has it: by its name, else by what the provider's list says of it.
    pub fn profile(&self) -> &'static Profile {
        let profile = self.provider.config.profile;
        let by_name = self.provider.find_profile(&self.model);
        let is_unknown = by_name == profile;
        if is_unknown && self.provider.find_notes(&self.model).always_thinks {
            profile.with_constant_thinking()
        } else {
            by_name
        }
    }

    /// How the model counts tokens. The provider's name for it decides, whatever alias the client used.
    pub fn token_rule(&self) -> &'static TokenRule {
        find_token_rule(&self.model, self.provider.config.profile)
    }

    /// Whether caution says that a window fills up: of an unknown one it only says that the prompt is long.
    pub fn has_meaningful_caution(&self) -> bool {
        self.window.known_tokens().is_some() || self.settings.optimal_max_tokens.is_some()
    }

    /// The prompt sizes at which the health level changes; `budget` is that of one request, in tokens.
    pub fn compute_limits(&self, guard: &GuardConfig, budget: Option<u32>) -> HealthLimits {
        let (window, settings) = (self.window.known_tokens(), &self.settings);
        let usual = |window| {
            let reserve = match self.provider.config.profile.answer_room {
                AnswerRoom::Checked | AnswerRoom::Shared => guard.default_reserve(window),
                AnswerRoom::Apart => 0,
            };
            guard.limit_prompt(window - reserve, self.window.input)
        };
        let usual = || self.window.whole_tokens().map(usual);
        let budget = budget.or_else(usual).unwrap_or(u32::MAX);
        choose_health_limits(window, budget, settings)
    }
}

/// Whether a provider may be used beside those before it; `lent`: the base URL that gets the client's
/// credentials.
///
/// SECURITY: a client's own credentials are for one provider. Of several that would get them, all
/// but the first written are left out.
pub(in crate::provider) fn try_lend_credentials(
    lent: &mut Option<String>,
    provider: &Provider,
) -> bool {
    let Auth::Client = provider.config.auth else {
        return true;
    };
    let base_url = provider.config.base_url.as_deref().unwrap_or_default();
    lent.get_or_insert_with(|| base_url.to_owned()) == base_url
}
