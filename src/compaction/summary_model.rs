//! Which model writes a summary, and how much it is given.

use super::Summariser;
use crate::{
    config::{Auth, CompactionConfig, Config},
    guard::estimate::Calibration,
    provider::{Registry, Target},
    recovery::Language,
};

/// The part of a window that is left free, one in so many, since sizes are estimates.
const MARGIN: u32 = 32;

/// The configured summary model, else the conversation's `own`. `seed`: of the session.
///
/// SECURITY: the client's credentials are for the provider of its conversation. A configured
/// model at another provider that would get them is not asked.
pub fn choose_summary_model(
    registry: &Registry,
    settings: &CompactionConfig,
    own: &Target,
    seed: u64,
) -> Target {
    let configured = settings.model.as_deref();
    let choice = configured.and_then(|name| registry.choose_candidates(name, None).ok());
    let places = choice
        .map(|choice| choice.order_by_seed(seed))
        .unwrap_or_default();
    let own_provider = &own.provider.config;
    let place = places.into_iter().find(|place| {
        let other = &place.provider.config;
        !matches!(other.auth, Auth::Client)
            || matches!(own_provider.auth, Auth::Client) && other.base_url == own_provider.base_url
    });
    place.unwrap_or_else(|| own.clone())
}

impl Summariser {
    /// The limits of a model. `own`: it is the conversation's own, at the place that answered.
    /// `calibration`: of this model.
    pub fn for_model(
        target: &Target,
        own: bool,
        calibration: Calibration,
        language: Language,
        config: &Config,
        nonce: [u8; 8],
    ) -> Self {
        let (window, profile) = (&target.window, target.provider.config.profile);
        let most = config.compaction.max_summary_tokens;
        let answer = match profile.answer_inside_window {
            true => most,
            false => 0,
        };
        let prompt = window.tokens.saturating_sub(answer);
        let prompt = prompt.min(window.input.unwrap_or(u32::MAX));
        let prompt = prompt - prompt / MARGIN;
        Self {
            is_conversation_model: own,
            model: target.model.as_str().into(),
            profile,
            room: (f64::from(prompt) / calibration.slope().max(1.0)) as u32,
            // An answer of more than half of a small window would leave no room for the record.
            max_tokens: most.min(window.tokens / 2),
            language,
            chars_per_token: config.guard.chars_per_token,
            nonce,
        }
    }
}
