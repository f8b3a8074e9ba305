//! Context health: the reported usage, judged by the window and the limits, as a level.
//!
//! Health is never guessed: without usage there are no numbers, and the level is `unknown`. An assumed window gives no
//! hard utilisation, and no critical level but where the provider says that an answer filled the window. No I/O and no clock here.

use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

pub mod limits;
pub mod silent_truncation;

use limits::HealthLimits;

/// How full the window is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthLevel {
    Healthy,
    Caution,
    Critical,
    #[default]
    Unknown,
}

impl HealthLevel {
    /// The word used in headers, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Caution => "caution",
            Self::Critical => "critical",
            Self::Unknown => "unknown",
        }
    }
}

/// The health of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Health {
    pub level: HealthLevel,
    /// As the provider reported it.
    pub prompt_tokens: Option<u32>,
    /// In tokens; `None` if it is only assumed.
    pub window: Option<u32>,
    /// Prompt tokens over the window.
    pub hard_util: Option<f64>,
    /// Prompt tokens over the optimal limit.
    pub optimal_util: Option<f64>,
}

/// Judges the usage of one generation. `window` is `None` if it is only assumed.
///
/// Critical begins above `critical_max_tokens`, caution above `optimal_max_tokens`.
pub fn assess_health(
    prompt_tokens: Option<u32>,
    window: Option<u32>,
    limits: &HealthLimits,
) -> Health {
    let optimal = limits.optimal_max_tokens;
    let critical = window.and(limits.critical_max_tokens);
    let level = match prompt_tokens {
        None => HealthLevel::Unknown,
        Some(used) if critical.is_some_and(|most| used > most) => HealthLevel::Critical,
        Some(used) if used > optimal => HealthLevel::Caution,
        Some(_) => HealthLevel::Healthy,
    };
    Health::from_level(level, prompt_tokens, window, Some(optimal))
}

impl Health {
    /// A level that was judged after an answer, with its ratios.
    pub fn from_level(
        level: HealthLevel,
        prompt_tokens: Option<u32>,
        window: Option<u32>,
        optimal_max_tokens: Option<u32>,
    ) -> Self {
        let ratio = |limit: Option<u32>| {
            let limit = limit.filter(|limit| *limit > 0)?;
            Some(f64::from(prompt_tokens?) / f64::from(limit))
        };
        Self {
            level,
            prompt_tokens,
            window,
            hard_util: ratio(window),
            optimal_util: ratio(optimal_max_tokens),
        }
    }
}

/// The generation whose health is in the headers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthSource {
    /// The generation of this response.
    Response,
    /// The generation before, since a stream's headers precede its usage.
    Previous,
}

impl HealthSource {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Previous => "previous",
        }
    }
}

/// The health headers of a response, or its trailers.
pub fn build_health_headers(
    health: &Health,
    from: HealthSource,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let word = |word| Some(HeaderValue::from_static(word));
    let number = |tokens: Option<u32>| tokens.map(HeaderValue::from).or(word("unknown"));
    let ratio = |value: Option<f64>| HeaderValue::try_from(format!("{:.3}", value?)).ok();
    [
        ("x-plimsoll-health", word(health.level.as_str())),
        ("x-plimsoll-health-from", word(from.as_str())),
        ("x-plimsoll-prompt-tokens", number(health.prompt_tokens)),
        ("x-plimsoll-context-limit", number(health.window)),
        ("x-plimsoll-hard-util", ratio(health.hard_util)),
        ("x-plimsoll-optimal-util", ratio(health.optimal_util)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((HeaderName::from_static(name), value?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: HealthLimits = HealthLimits {
        optimal_max_tokens: 60,
        critical_max_tokens: Some(90),
    };

    #[test]
    fn levels_begin_above_their_limit() {
        for (used, level) in [
            (0, HealthLevel::Healthy),
            (60, HealthLevel::Healthy),
            (61, HealthLevel::Caution),
            (90, HealthLevel::Caution),
            (91, HealthLevel::Critical),
            (u32::MAX, HealthLevel::Critical),
        ] {
            let health = assess_health(Some(used), Some(100), &LIMITS);
            assert_eq!(health.level, level, "{used}");
        }
    }

    #[test]
    fn critical_wins_over_caution() {
        let limits = HealthLimits {
            optimal_max_tokens: 90,
            critical_max_tokens: Some(60),
        };
        let health = assess_health(Some(70), Some(100), &limits);
        assert_eq!(health.level, HealthLevel::Critical);
    }

    fn headers(health: &Health, from: HealthSource) -> Vec<(String, String)> {
        build_health_headers(health, from)
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(name, value)| (format!("x-plimsoll-{name}"), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn headers_of_a_known_level() {
        let health = assess_health(Some(70), Some(128), &LIMITS);
        let expected = pairs(&[
            ("health", "caution"),
            ("health-from", "response"),
            ("prompt-tokens", "70"),
            ("context-limit", "128"),
            ("hard-util", "0.547"),
            ("optimal-util", "1.167"),
        ]);
        assert_eq!(headers(&health, HealthSource::Response), expected);
    }

    #[test]
    fn headers_without_usage() {
        let expected = pairs(&[
            ("health", "unknown"),
            ("health-from", "previous"),
            ("prompt-tokens", "unknown"),
            ("context-limit", "128"),
        ]);
        let health = assess_health(None, Some(128), &LIMITS);
        assert_eq!(headers(&health, HealthSource::Previous), expected);
    }

    #[test]
    fn headers_of_an_assumed_window() {
        let health = assess_health(Some(1_000), None, &LIMITS);
        let expected = pairs(&[
            ("health", "caution"),
            ("health-from", "response"),
            ("prompt-tokens", "1000"),
            ("context-limit", "unknown"),
            ("optimal-util", "16.667"),
        ]);
        assert_eq!(headers(&health, HealthSource::Response), expected);
    }

    proptest! {
        #[test]
        fn health_is_never_guessed(used: Option<u32>, window: Option<u32>, optimal: u32, critical: Option<u32>) {
            let limits = HealthLimits { optimal_max_tokens: optimal, critical_max_tokens: critical };
            let health = assess_health(used, window, &limits);
            prop_assert_eq!(used.is_none(), health.level == HealthLevel::Unknown);
            prop_assert_eq!(health.prompt_tokens, used);
            if window.is_none() {
                prop_assert!(health.level != HealthLevel::Critical && health.hard_util.is_none());
            }
            if used.is_none() {
                prop_assert!(health.hard_util.is_none() && health.optimal_util.is_none());
            }
            prop_assert!(build_health_headers(&health, HealthSource::Response).count() >= 4);
        }
    }
}
