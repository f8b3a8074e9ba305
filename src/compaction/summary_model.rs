//! Choice and limits of the summary model.

use crate::{
    config::{
        Auth, CompactionConfig, Config,
        profile::{AnswerFilling, AnswerRoom},
    },
    conversation::Format,
    format::AnswerLimit,
    guard::{
        estimate::{Calibration, Weights},
        profile::Profile,
    },
    provider::{Registry, Target},
    recovery::Language,
};

/// One part in this many of the window stays free, since sizes are estimates.
const MARGIN: u32 = 32;
/// Room for the thinking before a summary, in tokens. Without this room, a model spends the cap of a short summary on
/// thinking, and its answer is empty. Together with a summary of the usual size, the room stays below the least output
/// limit of such models (16,000).
const THINKING_TOKENS: u32 = 8_192;

/// The summary model and its limits.
#[derive(Clone, Debug)]
pub struct Summariser {
    /// The model answered the conversation: its prompt cache is warm, and it refuses nothing of the conversation.
    pub may_repeat_conversation: bool,
    /// The provider's name of the model.
    pub model: Box<str>,
    pub profile: &'static Profile,
    /// Raw tokens of a request without its answer.
    pub room: u32,
    /// Largest summary, in tokens.
    pub max_tokens: u32,
    /// Tokens that an answer may have in addition to the summary: the thinking of a model that thinks by default.
    pub thinking_tokens: u32,
    pub language: Language,
    /// Counts the texts of the conversation and of the summary.
    pub weights: Weights,
    /// Which answers of a repeated conversation get members that they lack.
    pub filling: AnswerFilling,
    /// Random, and drawn after the conversation was written, so that nothing in the conversation can repeat the key.
    pub nonce: [u8; 8],
}

/// The configured summary model, else the target that answered the conversation. The session's
/// `seed` orders the candidates.
///
/// SECURITY: the client's credentials are for the provider of its conversation. They are never sent to a configured model at
/// another provider: such a candidate is passed over. A candidate that does not support the `format` of the conversation is
/// passed over too.
pub fn choose_summary_model(
    registry: &Registry,
    settings: &CompactionConfig,
    answered: &Target,
    format: Format,
    seed: u64,
) -> Target {
    let configured = settings.model.as_deref();
    let choice = configured.and_then(|name| registry.choose_candidates(name, None).ok());
    let candidates = choice.map(|choice| choice.order_by_seed(seed));
    let trusted = &answered.provider.config;
    let is_trusted = |candidate: &Target| {
        let config = &candidate.provider.config;
        !matches!(config.auth, Auth::Client)
            || matches!(trusted.auth, Auth::Client) && config.base_url == trusted.base_url
    };
    let speaks = |candidate: &Target| candidate.provider.config.formats.contains(&format);
    let is_usable = |candidate: &Target| is_trusted(candidate) && speaks(candidate);
    let candidate = candidates.and_then(|all| all.into_iter().find(is_usable));
    candidate.unwrap_or_else(|| answered.clone())
}

impl Summariser {
    /// The limits of a model. `may_repeat_conversation` says that this target answered the conversation and accepts it
    /// again. `calibration` is the calibration of this model.
    pub fn for_model(
        target: &Target,
        may_repeat_conversation: bool,
        calibration: Calibration,
        language: Language,
        config: &Config,
        nonce: [u8; 8],
    ) -> Self {
        let window = &target.window;
        let profile = target.profile();
        let most = config.compaction.max_summary_tokens;
        let thinking_tokens = if profile.thinks_by_default {
            THINKING_TOKENS.min(window.tokens / 8)
        } else {
            0
        };
        let answer = match profile.answer_room {
            AnswerRoom::Checked | AnswerRoom::Shared => most.saturating_add(thinking_tokens),
            AnswerRoom::Apart => 0,
        };
        let prompt = window.tokens.saturating_sub(answer);
        let prompt = prompt.min(window.input.unwrap_or(u32::MAX));
        let prompt = prompt - prompt / MARGIN;
        Self {
            may_repeat_conversation,
            model: target.model.as_str().into(),
            profile,
            room: (f64::from(prompt) / calibration.slope().max(1.0)) as u32,
            // An answer of more than half of a small window would leave no room for the record.
            max_tokens: most.min(window.tokens / 2),
            thinking_tokens,
            filling: target.provider.find_notes(&target.model).answer_filling,
            language,
            weights: Weights::new(target.token_rule(), profile, config.guard.chars_per_token),
            nonce,
        }
    }

    pub(super) fn answer_limit(&self) -> AnswerLimit {
        AnswerLimit {
            tokens: self.max_tokens + self.thinking_tokens,
            names_completion_cap: self.profile.names_completion_cap,
        }
    }
}
