//! What is counted of the requests of clients, each when it ends.

use std::{fmt, sync::Arc, time::Duration};

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};

use super::{Metrics, Series, make::Make};
use crate::{health::Level, telemetry::record::Answered};

/// Shares of the window.
const SHARES: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

const LEVELS: [Level; 4] = [
    Level::Healthy,
    Level::Caution,
    Level::Critical,
    Level::Unknown,
];

pub(super) struct Requests {
    ended: IntCounterVec,
    /// The most frequent of them.
    done: IntCounter,
    levels: [IntCounter; 4],
    hard: Histogram,
    in_flight: IntGauge,
}

/// A request that is not answered to its end yet.
pub struct InFlight(Arc<Metrics>);

/// How a request ended.
#[derive(Debug)]
pub struct Ended<'a> {
    /// One of our own words.
    pub outcome: &'static str,
    pub status: Option<u16>,
    /// Whose generation it was.
    pub series: Option<&'a Series>,
    /// `None`: it did what it was to do.
    pub error: Option<&'static str>,
    pub took: Duration,
    /// To the first byte of a stream.
    pub first_chunk: Option<Duration>,
    pub guard: Option<Duration>,
    pub answered: Option<&'a Answered>,
}

impl Requests {
    pub(super) fn new(make: &Make<'_>) -> prometheus::Result<Self> {
        let ended = make.counters(
            "plimsoll_requests_total",
            "Requests of clients, by how they ended (done, client_left, broken, upgraded, or the \
             code of our error) and by the class of their status.",
            &["outcome", "status"],
        )?;
        let answers = make.counters(
            "plimsoll_answers_total",
            "Generations, by the health that their usage came to.",
            &["health"],
        )?;
        Ok(Self {
            done: ended.with_label_values(&["done", "2xx"]),
            ended,
            levels: LEVELS.map(|level| answers.with_label_values(&[level.word()])),
            hard: make.histogram(
                "plimsoll_hard_utilisation_ratio",
                "Prompt tokens as their provider counted them, over the window; where both are known.",
                &SHARES,
            )?,
            in_flight: make.gauge(
                "plimsoll_requests_in_flight",
                "Requests of clients that are not answered to their end yet.",
            )?,
        })
    }

    fn count(&self, outcome: &'static str, status: Option<u16>) {
        let class = match status {
            Some(200..=299) => "2xx",
            Some(300..=399) => "3xx",
            Some(400..=499) => "4xx",
            Some(500..=599) => "5xx",
            Some(_) => "other",
            None => "none",
        };
        if (outcome, class) == ("done", "2xx") {
            self.done.inc();
        } else {
            self.ended.with_label_values(&[outcome, class]).inc();
        }
    }
}

impl Metrics {
    /// Counts a request as being in flight until what comes back is dropped.
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.requests.in_flight.inc();
        InFlight(Arc::clone(self))
    }
}

impl InFlight {
    /// The request is over: all that is counted of it.
    pub fn ended(self, ended: &Ended<'_>) {
        let requests = &self.0.requests;
        requests.count(ended.outcome, ended.status);
        if let Some(took) = ended.guard {
            self.0.guard.took(took);
        }
        if let Some(answered) = ended.answered {
            let at = LEVELS.iter().position(|level| *level == answered.level);
            requests.levels[at.unwrap_or(LEVELS.len() - 1)].inc();
            if let Some(hard) = answered.hard_util {
                requests.hard.observe(hard);
            }
        }
        if let Some(series) = ended.series {
            series.ended(ended);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.requests.in_flight.dec();
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").finish_non_exhaustive()
    }
}
