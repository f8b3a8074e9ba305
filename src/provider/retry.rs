//! Whether a failed request is retried, and when. Pure: callers pass the time and the random number in.
//!
//! Retries multiply: three of a client, three of this proxy and three of a gateway behind it are 27
//! requests. So they are off unless configured, none is made for a client library that says it is
//! already retrying, and none that would begin after the client's timeout.

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, header::RETRY_AFTER};

use crate::config::RetryConfig;

/// Used by several providers and by OpenAI's client libraries.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// How often the client library has already tried: 0 in a first request.
const SDK_RETRIES: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// Seconds after which the client library gives up.
const SDK_TIMEOUT: HeaderName = HeaderName::from_static("x-stainless-timeout");

/// The longest time that is read from a header.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// What an answer's status means for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// Goes to the client, even as an error: no retry, no fallback.
    Final,
    /// Too many requests: retry later, or fall back.
    Busy,
    /// The provider failed: retry, or fall back.
    Failed,
    /// The configured key or its account is refused: no retry, but a fallback.
    Denied,
}

/// Attempts and time left for one client request.
#[derive(Debug)]
pub struct RetryBudget {
    rules: RetryConfig,
    begun: Instant,
    attempts: u32,
    /// Counted from `begun`.
    client_timeout: Option<Duration>,
}

/// `configured_key`: the credentials are those of the settings, not the client's.
///
/// An overflow may have any of these statuses, so it is detected before.
pub const fn classify_status(status: StatusCode, configured_key: bool) -> RetryClass {
    match status.as_u16() {
        429 => RetryClass::Busy,
        // Not implemented, and the wrong version of HTTP: another attempt would not change that.
        501 | 505 => RetryClass::Final,
        // 408: the server did not receive the request in time. 529 is "overloaded": the whole
        // provider is at its limit, while a 429 is about this account.
        408 | 500..=599 => RetryClass::Failed,
        401..=403 if configured_key => RetryClass::Denied,
        _ => RetryClass::Final,
    }
}

/// How long a provider asks to wait (`retry-after-ms`, `Retry-After` in seconds or as a date).
///
/// A past date is zero; a day is the most; `None` for unreadable values.
pub fn parse_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let milliseconds = header_text(headers, RETRY_AFTER_MS);
    milliseconds
        .and_then(|text| parse_seconds(text, 1e-3))
        .or_else(|| {
            let after = header_text(headers, RETRY_AFTER)?;
            parse_seconds(after, 1.0).or_else(|| {
                let date = httpdate::parse_http_date(after).ok()?;
                let left = date.duration_since(now).unwrap_or_default();
                Some(left.min(MAX_RETRY_AFTER))
            })
        })
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

impl RetryBudget {
    /// `headers` are the client's: an SDK that retries by itself says so in them.
    pub fn new(mut rules: RetryConfig, headers: &HeaderMap, now: Instant) -> Self {
        let retries = header_text(headers, SDK_RETRIES).and_then(|text| text.parse::<u64>().ok());
        if retries.is_some_and(|count| count > 0) {
            rules.max_retries = 0;
        }
        let timeout = header_text(headers, SDK_TIMEOUT);
        Self {
            rules,
            begun: now,
            attempts: 0,
            client_timeout: timeout.and_then(|seconds| parse_seconds(seconds, 1.0)),
        }
    }

    pub const fn count_attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(1);
    }

    /// Whether another attempt may begin. The first one always may.
    pub fn has_attempts_left(&self, now: Instant) -> bool {
        self.attempts == 0
            || (self.attempts < self.rules.max_attempts
                && self.elapsed_time(now) < self.rules.max_time)
    }

    /// The wait before the next retry of the same candidate; `None`: no retry. `retries` is the number
    /// of retries so far, `chance` is in 0..1.
    ///
    /// `after`, which the provider asked for, is honoured. Without it, or with zero, the wait doubles
    /// with each retry, and up to half of it is jitter.
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
            Some(after) if after > self.rules.max_delay => return None,
            Some(after) => after,
            None => self.backoff_delay(retries, chance),
        };
        let end = self.elapsed_time(now).saturating_add(wait);
        let in_time = end < self.client_timeout.unwrap_or(Duration::MAX);
        (in_time && end < self.rules.max_time).then_some(wait)
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
