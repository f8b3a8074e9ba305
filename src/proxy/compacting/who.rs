//! Who writes a summary.

use http::HeaderMap;

use super::Kept;
use crate::{
    compaction::Summariser, config::Auth, guard::estimate::Calibration, provider::Target,
    proxy::App, recovery::Language,
};

/// What is left free of a window, as a share of it: an estimate is a guess.
const MARGIN: u32 = 32;

/// A model that is to summarise, and how it is asked.
pub(super) struct Who {
    pub(super) target: Target,
    /// The conversation's own model at the place that answered it.
    pub(super) own: bool,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
}

impl Who {
    /// The summary model of a conversation with `own`, and how it is asked.
    pub(super) fn of(app: &App, own: &Target, seed: u64, kept: &Kept) -> Self {
        let target = target(app, own, seed);
        let same = target.provider.place == own.provider.place && target.model == own.model;
        let (path, headers) = kept.way(app, &own.provider, &target.provider);
        Self {
            own: same,
            target,
            path,
            headers,
        }
    }

    /// What the work is cut to. `learnt`: of the conversation's own model.
    pub(super) fn summariser(
        &self,
        app: &App,
        (language, learnt): (Language, Calibration),
        nonce: [u8; 8],
    ) -> Summariser {
        let Target {
            provider, window, ..
        } = &self.target;
        let profile = provider.config.profile;
        let most = app.config.compaction.max_summary_tokens;
        let answer = if profile.answer_inside_window {
            most
        } else {
            0
        };
        let prompt = window.tokens.saturating_sub(answer);
        let prompt = prompt.min(window.input.unwrap_or(u32::MAX));
        let prompt = prompt - prompt / MARGIN;
        let calibration = match self.own {
            true => learnt,
            false => app.ratios.of(&provider.name, &self.target.model),
        };
        Summariser {
            own: self.own,
            model: self.target.model.as_str().into(),
            profile,
            room: (f64::from(prompt) / calibration.slope().max(1.0)) as u32,
            // An answer of more than half of a small window would leave none for what it is of.
            max_tokens: most.min(window.tokens / 2),
            language,
            chars_per_token: app.config.guard.chars_per_token,
            nonce,
        }
    }
}

/// The configured model, else the conversation's `own`.
///
/// SECURITY: the client's credentials are for the provider of its conversation. A configured
/// model at another one that would get them is not asked.
pub(super) fn target(app: &App, own: &Target, seed: u64) -> Target {
    let configured = app.config.compaction.model.as_deref();
    let choice = configured.and_then(|name| app.registry.choose(name, None).ok());
    let places = choice.map(|choice| choice.order(seed)).unwrap_or_default();
    let place = places.into_iter().find(|place| may_ask(own, place));
    place.unwrap_or_else(|| own.clone())
}

/// Whether a place may be asked for a summary of a conversation with `own`.
fn may_ask(own: &Target, place: &Target) -> bool {
    let (theirs, ours) = (&place.provider.config, &own.provider.config);
    match theirs.auth {
        Auth::Client => matches!(ours.auth, Auth::Client) && theirs.base_url == ours.base_url,
        Auth::Key(_) | Auth::None => true,
    }
}
