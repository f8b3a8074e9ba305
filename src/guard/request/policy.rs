//! The limits and settings that a request is planned for.

use crate::{
    config::{GuardConfig, WhenUnsure, profile::Profile, tokens::TokenRule},
    guard::{
        request::estimate::Weights,
        rules::{RULES, Rules},
    },
};

/// The limits and settings that a request is planned for.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    pub profile: &'a Profile,
    /// Tokens that the model can hold.
    pub window: u32,
    /// No source names this very model's window.
    pub window_is_guessed: bool,
    /// The largest prompt in tokens, where the provider sets a limit below the window.
    pub input_limit: Option<u32>,
    /// How the model counts tokens.
    pub tokens: &'static TokenRule,
    pub settings: &'a GuardConfig,
    /// How requests are cut: [`RULES`](crate::guard::rules::RULES), except in a bench.
    pub rules: &'a Rules,
}

impl<'a> Policy<'a> {
    /// The policy of a model whose window is known, at a provider that sets no other limit. `window` in tokens.
    pub const fn new(
        profile: &'a Profile,
        window: u32,
        tokens: &'static TokenRule,
        settings: &'a GuardConfig,
    ) -> Self {
        Self {
            profile,
            window,
            window_is_guessed: false,
            input_limit: None,
            tokens,
            settings,
            rules: &RULES,
        }
    }

    pub fn token_weights(&self) -> Weights {
        Weights::new(self.tokens, self.profile, self.settings.chars_per_token)
    }

    /// Whether a request is sent although it may be too long by the error of an estimate: only if the provider surely
    /// refuses a request that is too long, and if the settings say so, or by default if such a refusal is free.
    pub(in crate::guard) fn sends_when_unsure(&self) -> bool {
        let profile = self.profile;
        let wish = self.settings.when_unsure.map(|it| it == WhenUnsure::Send);
        profile.refuses_overflow && wish.unwrap_or(profile.overflow_is_free)
    }

    /// Whether a request is cut before it passes the window. A provider that refuses what is too long says how much
    /// fits, so a guessed window cuts nothing there.
    pub const fn cuts_by_window(&self) -> bool {
        !self.window_is_guessed || !self.profile.refuses_overflow
    }

    /// Whether nothing limits the prompt but the provider's refusal.
    pub fn is_open(&self) -> bool {
        let limit = self.input_limit.or(self.settings.max_prompt_tokens);
        !self.cuts_by_window() && limit.is_none()
    }

    /// Tokens of a share of the window; infinite if the window cuts nothing.
    pub(in crate::guard) fn window_share(&self, share: f64) -> f64 {
        if self.cuts_by_window() {
            share * f64::from(self.window)
        } else {
            f64::INFINITY
        }
    }

    pub(in crate::guard) const fn with_profile(self, profile: &'a Profile) -> Self {
        Self { profile, ..self }
    }
}
