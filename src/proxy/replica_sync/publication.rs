//! Values as they are published, each with its stamp.

use std::time::SystemTime;

use bytes::Bytes;
use lru::LruCache;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Known,
    spelling::{Model, read_value, value},
};
use crate::provider::learnt::{Lessons, wall_ms};

/// A ratio is published where it moved by this part, and within [`NOW_AND_THEN_MS`] of the last time only where it
/// moved by [`MOVED_FAR`]: every publication makes all replicas read.
const MOVED: f64 = 0.005;
const MOVED_FAR: f64 = 0.05;
const NOW_AND_THEN_MS: u64 = 5_000;

/// A stamp that is further ahead does not come from the clock of a replica.
const MOST_AHEAD_MS: u64 = 24 * 60 * 60 * 1_000;

/// A published value, and when it was published: by the wall clock, and later than all values before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stamped<T> {
    pub(super) at_ms: u64,
    pub(super) what: T,
}

/// A value to be published.
pub(super) struct Publication {
    pub(super) model: Model,
    what: What,
    pub(super) name: Bytes,
    pub(super) value: Bytes,
}

pub(super) enum What {
    Lessons(Stamped<Lessons>),
    Ratio(Stamped<f64>),
}

impl Publication {
    /// `None`: it cannot be serialised.
    pub(super) fn of(model: &Model, name: Bytes, what: What) -> Option<Self> {
        let value = match &what {
            What::Lessons(lessons) => value(lessons),
            What::Ratio(ratio) => value(ratio),
        };
        Some(Self {
            model: model.clone(),
            name,
            value: value?.into(),
            what,
        })
    }

    /// Remembers it as what was published last.
    pub(super) fn note(&self, known: &mut Known) {
        let name = self.name.clone();
        match self.what {
            What::Lessons(lessons) => drop(known.windows.put(name, lessons)),
            What::Ratio(ratio) => drop(known.ratios.put(name, ratio)),
        }
    }
}

/// The value that stands in the store, if it is newer than what is known; it is known from now on.
///
/// # Errors
/// It is not newer; whether it is older, so that what is known here is published again.
pub(super) fn newer<T: Copy + PartialEq + DeserializeOwned>(
    told: &mut LruCache<Bytes, Stamped<T>>,
    name: &Bytes,
    value: &[u8],
    now: SystemTime,
) -> Result<Stamped<T>, bool> {
    let theirs: Stamped<T> = read_value(value).ok_or(false)?;
    if theirs.at_ms > wall_ms(now).saturating_add(MOST_AHEAD_MS) {
        return Err(false);
    }
    if let Some(ours) = told.get_mut(name)
        && theirs.at_ms <= ours.at_ms
    {
        let older = theirs.at_ms < ours.at_ms;
        ours.what = theirs.what;
        return Err(older);
    }
    told.put(name.clone(), theirs);
    Ok(theirs)
}

/// With a stamp that is later than that of what was published before.
pub(super) fn stamped<T>(what: T, told: Option<&Stamped<T>>, now: SystemTime) -> Stamped<T> {
    let after = told.map_or(0, |told| told.at_ms.saturating_add(1));
    Stamped {
        at_ms: wall_ms(now).max(after),
        what,
    }
}

/// Whether a ratio is far enough from what was published.
pub(super) fn moved(ratio: f64, told: &Stamped<f64>, now: SystemTime) -> bool {
    let by = (ratio / told.what - 1.0).abs();
    let recent = wall_ms(now).saturating_sub(told.at_ms) < NOW_AND_THEN_MS;
    by > if recent { MOVED_FAR } else { MOVED }
}
