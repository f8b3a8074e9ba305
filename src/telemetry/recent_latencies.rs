//! Recent latencies of providers, for the dashboard. Only the durations of their last answers are kept.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;

use serde::Serialize;

/// Answers kept per provider.
const ANSWERS: usize = 128;
const MAX_PROVIDERS: usize = 1_024;

/// By provider: microseconds to the heads of its last answers, newest first.
#[derive(Debug, Default)]
pub struct RecentLatencies(Mutex<HashMap<Box<str>, VecDeque<u32>>>);

/// Milliseconds from a request to the head of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    pub median: f64,
    pub p95: f64,
    /// The number of answers.
    pub count: usize,
}

impl RecentLatencies {
    /// `took`: from the request to the head of its answer.
    pub fn record_latency(&self, provider: &str, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let mut providers = self.0.lock();
        if providers.len() >= MAX_PROVIDERS && !providers.contains_key(provider) {
            return;
        }
        let answers = providers.entry(provider.into()).or_default();
        answers.truncate(ANSWERS - 1);
        answers.push_front(took);
    }

    /// `None` without an answer so far.
    pub fn latency_of_provider(&self, provider: &str) -> Option<Latency> {
        let mut took = Vec::from(self.0.lock().get(provider)?.clone());
        took.sort_unstable();
        let at = |share: usize| {
            // The nearest rank, counted from 1.
            let rank = (took.len() * share).div_ceil(100).max(1);
            took.get(rank - 1).map(|&took| f64::from(took) / 1_000.0)
        };
        Some(Latency {
            median: at(50)?,
            p95: at(95)?,
            count: took.len(),
        })
    }

    pub fn forget_provider(&self, provider: &str) {
        self.0.lock().remove(provider);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_p95_are_of_the_last_answers() {
        let recent = RecentLatencies::default();
        assert_eq!(recent.latency_of_provider("up"), None);
        recent.record_latency("up", Duration::from_millis(7));
        let one = Latency {
            median: 7.0,
            p95: 7.0,
            count: 1,
        };
        assert_eq!(recent.latency_of_provider("up"), Some(one));
        for ms in (1..=128).rev() {
            recent.record_latency("up", Duration::from_millis(ms));
        }
        let all = Latency {
            median: 64.0,
            p95: 122.0,
            count: 128,
        };
        assert_eq!(recent.latency_of_provider("up"), Some(all));
        for _ in 0..127 {
            recent.record_latency("up", Duration::from_micros(1_500));
        }
        // Of the earlier latencies only the newest is left.
        let newest = recent.latency_of_provider("up").unwrap();
        assert_eq!((newest.median, newest.p95), (1.5, 1.5));
        assert_eq!(recent.latency_of_provider("other"), None);
        recent.forget_provider("up");
        assert_eq!(recent.latency_of_provider("up"), None);
    }
}
