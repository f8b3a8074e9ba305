//! What is known of a model's tokens before a session has an answer of its own.
//!
//! Reported over raw tokens, per provider and model, smoothed over the answers of all sessions.
//! What is known can be told to other replicas; one that knows nothing begins with the estimate as
//! it is.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
};

use lru::LruCache;

use crate::guard::estimate::{Calibration, SLOPES};

/// Models remembered; beyond, the one not used for longest goes.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");
/// Requests smaller than this say more of what frames them than of their text; raw tokens.
const LEAST_RAW: u32 = 1_000;
/// What one answer changes.
const WEIGHT: f64 = 0.2;

/// Ratios by provider and model.
#[derive(Debug)]
pub struct TokenRatios(Mutex<LruCache<RatioKey, f64>>);

/// A provider's name and a model's.
type RatioKey = (Box<str>, Box<str>);

impl Default for TokenRatios {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_MODELS)))
    }
}

impl TokenRatios {
    /// The calibration a new session of this model begins with.
    pub fn initial_calibration(&self, provider: &str, model: &str) -> Calibration {
        let mut ratios = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ratios
            .get(&(provider.into(), model.into()))
            .map_or_else(Calibration::default, |ratio| {
                Calibration::from_ratio(*ratio)
            })
    }

    /// Learns from an answer: so many raw tokens were sent, and so many were reported.
    pub fn learn_ratio(&self, provider: &str, model: &str, raw: u32, reported: u32) {
        if raw < LEAST_RAW || reported == 0 {
            return;
        }
        // One absurd report must not stay for a hundred answers.
        let sample = (f64::from(reported) / f64::from(raw)).clamp(*SLOPES.start(), *SLOPES.end());
        let mut ratios = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ratio = ratios.get_or_insert_mut((provider.into(), model.into()), || sample);
        *ratio += (sample - *ratio) * WEIGHT;
    }

    /// What is known of a model, to be told to others.
    pub fn known_ratio(&self, provider: &str, model: &str) -> Option<f64> {
        let ratios = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ratios.peek(&(provider.into(), model.into())).copied()
    }

    /// Another replica learnt this.
    pub fn apply_replicated(&self, provider: &str, model: &str, ratio: f64) {
        if !ratio.is_finite() {
            return;
        }
        let ratio = ratio.clamp(*SLOPES.start(), *SLOPES.end());
        let mut ratios = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ratios.put((provider.into(), model.into()), ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_session_begins_with_what_others_taught() {
        let ratios = TokenRatios::default();
        assert_eq!(ratios.initial_calibration("p", "m"), Calibration::default());
        ratios.learn_ratio("p", "m", 100, 1_000);
        assert_eq!(ratios.initial_calibration("p", "m"), Calibration::default());
        for _ in 0..40 {
            ratios.learn_ratio("p", "m", 10_000, 12_000);
        }
        assert!((ratios.initial_calibration("p", "m").slope() - 1.2).abs() < 0.01);
        assert_eq!(
            ratios.initial_calibration("p", "other"),
            Calibration::default()
        );
    }

    #[test]
    fn what_others_learnt_is_taken_over() {
        let ratios = TokenRatios::default();
        assert_eq!(ratios.known_ratio("p", "m"), None);
        ratios.apply_replicated("p", "m", 1.3);
        assert_eq!(
            ratios.initial_calibration("p", "m"),
            Calibration::from_ratio(1.3)
        );
        for (absurd, known) in [
            (f64::NAN, 1.3),
            (f64::INFINITY, 1.3),
            (1e9, 2.5),
            (-1.0, 0.4),
        ] {
            ratios.apply_replicated("p", "m", absurd);
            assert_eq!(ratios.known_ratio("p", "m"), Some(known));
        }
    }

    #[test]
    fn an_absurd_report_is_forgotten_soon() {
        let ratios = TokenRatios::default();
        ratios.learn_ratio("p", "m", 10_000, u32::MAX);
        for _ in 0..20 {
            ratios.learn_ratio("p", "m", 10_000, 10_000);
        }
        assert!((ratios.initial_calibration("p", "m").slope() - 1.0).abs() < 0.05);
    }
}
