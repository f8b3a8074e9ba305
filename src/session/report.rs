//! A session as the API shows it.

use serde::Serialize;

use super::state::State;
use crate::health::Level;

/// The body of `GET /plimsoll/api/sessions/{id}`. What is unknown is `null`, never a guess.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub id: String,
    pub generations: u32,
    pub messages: u32,
    pub model: String,
    pub provider: String,
    pub health: Level,
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    /// Cached over prompt tokens of the last generation.
    pub cached_share: Option<f64>,
    /// The window in tokens; `null` where it is only assumed.
    pub context_limit: Option<u32>,
    pub hard_util: Option<f64>,
    pub optimal_util: Option<f64>,
    /// The first message kept after the pinned start, counted without system messages, where
    /// something is folded.
    pub folded_until: Option<u32>,
    /// Tool results that are held to a limit of their own.
    pub tightened: usize,
    /// Seconds since 1970.
    pub updated_s: u64,
}

/// What the API tells of a session.
pub fn report(state: &State) -> Report {
    let health = state.health();
    let cached_share = match (state.cached_tokens, state.prompt_tokens) {
        (Some(cached), Some(prompt)) if prompt > 0 => Some(f64::from(cached) / f64::from(prompt)),
        _ => None,
    };
    Report {
        id: state.session.to_string(),
        generations: state.generations,
        messages: state.messages,
        model: state.model.to_string(),
        provider: state.provider.to_string(),
        health: health.level,
        prompt_tokens: state.prompt_tokens,
        completion_tokens: state.completion_tokens,
        cached_tokens: state.cached_tokens,
        cached_share,
        context_limit: health.window,
        hard_util: health.hard_util,
        optimal_util: health.optimal_util,
        folded_until: state.guard.boundary(),
        tightened: state.guard.tightened(),
        updated_s: state.updated_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionId;

    #[test]
    fn what_is_unknown_is_null() {
        let state = State::new(SessionId::from_bytes([1; 16]));
        let body = serde_json::to_value(report(&state)).unwrap();
        assert_eq!(body["health"], "unknown");
        assert_eq!(body["id"], "01".repeat(16));
        for unknown in [
            "prompt_tokens",
            "cached_share",
            "context_limit",
            "hard_util",
        ] {
            assert!(body[unknown].is_null(), "{unknown}");
        }
    }

    #[test]
    fn ratios_are_of_the_last_generation() {
        let state = State {
            window: Some(1_000),
            optimal_max_tokens: Some(800),
            prompt_tokens: Some(400),
            cached_tokens: Some(300),
            health: Level::Healthy,
            ..State::new(SessionId::from_bytes([1; 16]))
        };
        let report = report(&state);
        assert_eq!(report.cached_share, Some(0.75));
        assert_eq!(report.hard_util, Some(0.4));
        assert_eq!(report.optimal_util, Some(0.5));
    }
}
