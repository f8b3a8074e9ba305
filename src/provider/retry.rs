//! Whether a request that failed is sent again, and when. Pure: no clock, no chance of its own.
//!
//! Retries multiply: three of a client, three of ours and three of a gateway behind us are 27
//! requests. So they are off unless configured, none is made for a client library that says it is
//! already retrying, and none that ends after the client has given up.

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, header::RETRY_AFTER};

use crate::config::RetryConfig;

/// What several providers and the client libraries of OpenAI use beside `Retry-After`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// How often the client library has already tried: 0 in a first request.
const SDK_RETRIES: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// Seconds after which the client library gives up.
const SDK_TIMEOUT: HeaderName = HeaderName::from_static("x-stainless-timeout");

/// Whatever a header says, no longer than this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// What an answer's status means for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// The client's answer, be it an error: nobody is asked again.
    Final,
    /// Too many requests: another attempt later, or elsewhere.
    Busy,
    /// The provider's own failure.
    Failed,
    /// Our key or our account there is not accepted: nothing to retry here, but elsewhere.
    Denied,
}

/// What is left for one client request: attempts, time.
#[derive(Debug)]
pub struct RetryBudget {
    rules: RetryConfig,
    begun: Instant,
    attempts: u32,
    /// From `begun` on, until the client gives up.
    client_timeout: Option<Duration>,
}

/// `ours`: the credentials that were sent are ours.
///
/// An overflow may have any of these statuses; whoever looks for one does so before.
pub const fn classify_status(status: StatusCode, ours: bool) -> RetryClass {
    match status.as_u16() {
        429 => RetryClass::Busy,
        // Not implemented, and the wrong version of HTTP: the next attempt would be told the same.
        501 | 505 => RetryClass::Final,
        // 408 is a server that waited in vain for the request. 529 is "overloaded": there the
        // provider as a whole has no room, while a 429 is about this account.
        408 | 500..=599 => RetryClass::Failed,
        401..=403 if ours => RetryClass::Denied,
        _ => RetryClass::Final,
    }
}

/// How long a provider asks to be left alone (`retry-after-ms`, `Retry-After` in seconds or as a date).
///
/// A date that is past is zero; a day is the most; what cannot be read is nothing.
pub fn parse_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let in_ms = text(RETRY_AFTER_MS).and_then(|ms| parse_seconds(ms, 1e-3));
    in_ms.or_else(|| {
        let after = text(RETRY_AFTER)?;
        parse_seconds(after, 1.0).or_else(|| {
            let date = httpdate::parse_http_date(after).ok()?;
            let left = date.duration_since(now).unwrap_or_default();
            Some(left.min(MAX_RETRY_AFTER))
        })
    })
}

impl RetryBudget {
    /// `headers` are the client's: an SDK that retries by itself says so in them.
    pub fn new(mut rules: RetryConfig, headers: &HeaderMap, now: Instant) -> Self {
        let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
        let retries = text(SDK_RETRIES).and_then(|count| count.parse::<u64>().ok());
        if retries.is_some_and(|count| count > 0) {
            rules.max_retries = 0;
        }
        Self {
            rules,
            begun: now,
            attempts: 0,
            client_timeout: text(SDK_TIMEOUT).and_then(|timeout| parse_seconds(timeout, 1.0)),
        }
    }

    /// Counts an attempt that is begun now.
    pub const fn count_attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether another place may be tried. The first attempt always may.
    pub fn has_attempts_left(&self, now: Instant) -> bool {
        self.attempts == 0
            || (self.attempts < self.rules.max_attempts
                && self.elapsed_time(now) < self.rules.max_time)
    }

    /// How long to wait before the same place is tried again; `None`: it is not. `retries`: how often
    /// it was before. `chance` is in 0..1.
    ///
    /// `after` is what the provider asked for, and is kept to; a zero tells nothing, and the wait
    /// is then of our own choice: twice as long each time, of which at least half.
    pub fn retry_delay(
        &self,
        retries: u32,
        after: Option<Duration>,
        now: Instant,
        chance: f64,
    ) -> Option<Duration> {
        if retries >= self.rules.max_retries || !self.has_attempts_left(now) {
            return None;
        }
        let wait = match after.filter(|after| !after.is_zero()) {
            Some(after) => Some(after).filter(|after| *after <= self.rules.max_delay)?,
            None => self.backoff_delay(retries, chance),
        };
        let ends = self.elapsed_time(now).saturating_add(wait);
        let in_time = ends < self.rules.max_time
            && self.client_timeout.is_none_or(|patience| ends < patience);
        in_time.then_some(wait)
    }

    fn backoff_delay(&self, retries: u32, chance: f64) -> Duration {
        let factor = 2_u32.saturating_pow(retries);
        let longest = self.rules.base_delay.saturating_mul(factor);
        let half = longest.min(self.rules.max_delay) / 2;
        half + half.mul_f64(chance.clamp(0.0, 1.0))
    }

    fn elapsed_time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }
}

/// A decimal number of `unit` seconds.
fn parse_seconds(text: &str, unit: f64) -> Option<Duration> {
    let number: f64 = text.parse().ok()?;
    let sound = number.is_finite() && number >= 0.0;
    sound.then(|| Duration::from_secs_f64((number * unit).min(MAX_RETRY_AFTER.as_secs_f64())))
}

#[cfg(test)]
mod tests;
