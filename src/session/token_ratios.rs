//! Ratio of reported to raw (estimated) tokens per provider and model, for sessions without an
//! answer yet.
//!
//! Smoothed over the answers of all sessions and shared with other replicas. Without a ratio the
//! estimate is used as it is.

use std::num::NonZeroUsize;

use parking_lot::Mutex;

use lru::LruCache;

use crate::guard::estimate::{Calibration, SLOPES};

/// Beyond this the least recently used model is forgotten.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");
/// Smaller requests teach nothing, since framing outweighs text in them; raw tokens.
const LEAST_RAW: u32 = 1_000;
/// Weight of one answer in the running mean.
const WEIGHT: f64 = 0.2;

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
    /// The calibration with which a new session of this model begins.
    pub fn initial_calibration(&self, provider: &str, model: &str) -> Calibration {
        let mut ratios = self.0.lock();
        let ratio = ratios.get(&(provider.into(), model.into())).copied();
        ratio.map(Calibration::from_ratio).unwrap_or_default()
    }

    /// Learns from an answer: the raw tokens of its request and the prompt tokens reported.
    pub fn learn_ratio(&self, provider: &str, model: &str, raw: u32, reported: u32) {
        if raw < LEAST_RAW || reported == 0 {
            return;
        }
        // Without the clamp an absurd report would distort the mean for a hundred answers.
        let sample = (f64::from(reported) / f64::from(raw)).clamp(*SLOPES.start(), *SLOPES.end());
        let mut ratios = self.0.lock();
        let ratio = ratios.get_or_insert_mut((provider.into(), model.into()), || sample);
        *ratio += (sample - *ratio) * WEIGHT;
    }

    /// The ratio to share with other replicas.
    pub fn known_ratio(&self, provider: &str, model: &str) -> Option<f64> {
        let ratios = self.0.lock();
        ratios.peek(&(provider.into(), model.into())).copied()
    }

    /// Takes over a ratio from another replica, clamped; ignores one that is not finite.
    pub fn apply_replicated(&self, provider: &str, model: &str, ratio: f64) {
        if !ratio.is_finite() {
            return;
        }
        let ratio = ratio.clamp(*SLOPES.start(), *SLOPES.end());
        let mut ratios = self.0.lock();
        ratios.put((provider.into(), model.into()), ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_session_begins_with_the_ratio_of_others() {
        let ratios = TokenRatios::default();
        assert_eq!(ratios.initial_calibration("p", "m"), Calibration::default());
        ratios.learn_ratio("p", "m", 100, 1_000);
        assert_eq!(ratios.initial_calibration("p", "m"), Calibration::default());
        for _ in 0..40 {
            ratios.learn_ratio("p", "m", 10_000, 12_000);
        }
        assert!((ratios.initial_calibration("p", "m").slope() - 1.2).abs() < 0.01);
        let other = ratios.initial_calibration("p", "other");
        assert_eq!(other, Calibration::default());
    }

    #[test]
    fn a_replicated_ratio_is_used_and_bounded() {
        let ratios = TokenRatios::default();
        assert_eq!(ratios.known_ratio("p", "m"), None);
        ratios.apply_replicated("p", "m", 1.3);
        let calibration = ratios.initial_calibration("p", "m");
        assert_eq!(calibration, Calibration::from_ratio(1.3));
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
