//! Ratio of reported to raw (estimated) tokens of each provider and model, for sessions that have no answer yet.
//!
//! The ratio is the median over the model's newest sessions, and is shared with other replicas. Each session has one vote,
//! however many answers it had. The ratio that another replica shared has two votes; without one, the ratio 1 has them.
//! Therefore one session whose text counts far from the estimate changes nothing for others. If there is no ratio, the
//! estimate is used as it is.

use std::{collections::VecDeque, num::NonZeroUsize};

use parking_lot::Mutex;

use lru::LruCache;

use crate::{
    guard::estimate::{Calibration, SLOPES},
    store::SessionId,
};

/// Beyond this the least recently used model is forgotten.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");
/// The newest sessions of a model that have a vote.
const MAX_VOTES: usize = 15;
/// Raw tokens. Smaller requests teach nothing, since their framing outweighs their text.
const LEAST_RAW: u32 = 1_000;
/// Weight of one answer in the running mean of its session.
const WEIGHT: f64 = 0.2;

#[derive(Debug)]
pub struct TokenRatios(Mutex<LruCache<RatioKey, Votes>>);

/// A provider's name and a model's.
type RatioKey = (Box<str>, Box<str>);

/// What is known of a model's ratio.
#[derive(Debug, Default)]
struct Votes {
    /// The ratio that another replica shared, from sessions there.
    told: Option<f64>,
    /// The newest session last.
    sessions: VecDeque<(SessionId, f64)>,
}

impl Votes {
    fn add_sample(&mut self, session: SessionId, sample: f64) {
        let known = self.sessions.iter().position(|(id, _)| *id == session);
        let vote = known.and_then(|at| self.sessions.remove(at));
        let ratio = vote.map_or(sample, |(_, ratio)| ratio + (sample - ratio) * WEIGHT);
        if self.sessions.len() == MAX_VOTES {
            self.sessions.pop_front();
        }
        self.sessions.push_back((session, ratio));
    }

    fn find_median(&self) -> f64 {
        let told = self.told.unwrap_or(1.0);
        let votes = self.sessions.iter().map(|(_, ratio)| *ratio);
        let mut votes: Vec<f64> = votes.chain([told, told]).collect();
        votes.sort_by(f64::total_cmp);
        let half = votes.len() / 2;
        match votes.len() % 2 {
            0 => f64::midpoint(votes[half - 1], votes[half]),
            _ => votes[half],
        }
    }
}

impl Default for TokenRatios {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_MODELS)))
    }
}

impl TokenRatios {
    /// The calibration with which a new session of this model begins.
    pub fn initial_calibration(&self, provider: &str, model: &str) -> Calibration {
        let mut ratios = self.0.lock();
        let votes = ratios.get(&(provider.into(), model.into()));
        let ratio = votes.map(Votes::find_median);
        ratio.map(Calibration::from_ratio).unwrap_or_default()
    }

    /// Learns from one answer of a session: from the raw tokens of the request, and the prompt tokens reported.
    pub fn learn_ratio(
        &self,
        provider: &str,
        model: &str,
        session: SessionId,
        raw: u32,
        reported: u32,
    ) {
        if raw < LEAST_RAW || reported == 0 {
            return;
        }
        let sample = (f64::from(reported) / f64::from(raw)).clamp(*SLOPES.start(), *SLOPES.end());
        let mut ratios = self.0.lock();
        let votes = ratios.get_or_insert_mut((provider.into(), model.into()), Votes::default);
        votes.add_sample(session, sample);
    }

    /// The ratio to share with other replicas.
    pub fn known_ratio(&self, provider: &str, model: &str) -> Option<f64> {
        let ratios = self.0.lock();
        let votes = ratios.peek(&(provider.into(), model.into()));
        votes.map(Votes::find_median)
    }

    /// Takes over a ratio from another replica, clamped to [`SLOPES`]. A ratio that is not finite is ignored.
    pub fn apply_replicated(&self, provider: &str, model: &str, ratio: f64) {
        if !ratio.is_finite() {
            return;
        }
        let ratio = ratio.clamp(*SLOPES.start(), *SLOPES.end());
        let mut ratios = self.0.lock();
        let votes = ratios.get_or_insert_mut((provider.into(), model.into()), Votes::default);
        votes.told = Some(ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    #[test]
    fn a_new_session_begins_with_what_others_agree_on() {
        let ratios = TokenRatios::default();
        assert_eq!(ratios.initial_calibration("p", "m"), Calibration::default());
        ratios.learn_ratio("p", "m", session(0), 100, 1_000);
        assert_eq!(ratios.initial_calibration("p", "m"), Calibration::default());
        for (number, expected) in [(1, 1.0), (2, 1.1), (3, 1.2), (4, 1.2)] {
            for _ in 0..40 {
                ratios.learn_ratio("p", "m", session(number), 10_000, 12_000);
            }
            let slope = ratios.initial_calibration("p", "m").slope();
            assert!((slope - expected).abs() < 0.01, "{number}: {slope}");
        }
        let other = ratios.initial_calibration("p", "other");
        assert_eq!(other, Calibration::default());
    }

    #[test]
    fn what_one_odd_session_teaches_others_do_not_pay() {
        let ratios = TokenRatios::default();
        for number in 1..5 {
            ratios.learn_ratio("p", "m", session(number), 10_000, 11_000);
        }
        for _ in 0..100 {
            ratios.learn_ratio("p", "m", session(9), 10_000, 24_000);
            ratios.learn_ratio("p", "m", session(10), 10_000, u32::MAX);
        }
        let slope = ratios.initial_calibration("p", "m").slope();
        assert!((slope - 1.1).abs() < 0.01, "{slope}");
    }

    #[test]
    fn the_newest_sessions_vote() {
        let ratios = TokenRatios::default();
        for number in 0..60 {
            let reported = if number < 30 { 15_000 } else { 10_000 };
            ratios.learn_ratio("p", "m", session(number), 10_000, reported);
        }
        assert_eq!(ratios.known_ratio("p", "m"), Some(1.0));
    }

    #[test]
    fn a_replicated_ratio_is_used_and_bounded() {
        let ratios = TokenRatios::default();
        assert_eq!(ratios.known_ratio("p", "m"), None);
        ratios.apply_replicated("p", "m", 1.3);
        let calibration = ratios.initial_calibration("p", "m");
        assert_eq!(calibration, Calibration::from_ratio(1.3));
        // One session here does not change what those of another replica agree on.
        ratios.learn_ratio("p", "m", session(1), 10_000, 20_000);
        assert_eq!(ratios.known_ratio("p", "m"), Some(1.3));
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
}
