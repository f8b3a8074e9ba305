//! The wall clock in numbers: time since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds; 0 for a time before 1970.
pub fn to_unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub fn unix_ms_now() -> u64 {
    to_unix_ms(SystemTime::now())
}

pub fn unix_seconds_now() -> u64 {
    unix_ms_now() / 1_000
}
