//! The limits of the memory and file stores, with their clock.

use std::sync::Arc;

use crate::{config::StoreConfig, unix_time::unix_seconds_now};

/// Seconds since 1970; tests set their own.
pub(super) type UnixClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A find counts as a use only where the last use is older than this part of the maximal age, so that finds seldom write.
pub(super) const YOUNG_SHARE: u64 = 64;

/// Most seconds by which the use of a session that the file has may be older than its last use.
const MAX_USE_DELAY_S: u64 = 60;

#[derive(Clone)]
pub(super) struct StoreLimits {
    pub(super) sessions: usize,
    pub(super) bytes: usize,
    /// How long a session is kept after its last use.
    pub(super) age_s: u64,
    clock: UnixClock,
}

impl StoreLimits {
    pub(super) fn new(config: &StoreConfig) -> Self {
        Self::with_clock(config, Arc::new(unix_seconds_now))
    }

    pub(super) fn with_clock(config: &StoreConfig, clock: UnixClock) -> Self {
        Self {
            sessions: config.max_sessions,
            bytes: config.max_bytes,
            age_s: config.max_age.as_secs(),
            clock,
        }
    }

    pub(super) fn now_s(&self) -> u64 {
        (self.clock)()
    }

    /// How long the stored use of a session may be behind.
    pub(super) fn use_delay_s(&self) -> u64 {
        MAX_USE_DELAY_S.min(self.age_s / YOUNG_SHARE)
    }

    /// Sessions last used before this second have expired.
    pub(super) fn expiry_horizon(&self) -> u64 {
        self.now_s().saturating_sub(self.age_s)
    }
}
