//! Names and encoding of shared values in the store.
//!
//! A name holds a digest of the provider's address, since a lesson holds at one address only. A value begins with a version
//! byte.

use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    provider::{
        Provider,
        learnt_windows::{LessonScope, Lessons},
    },
    unix_time::to_unix_ms,
};

/// First byte of every value; changes with the meaning of any byte after it.
const VERSION: u8 = 3;

/// A ratio is published if it moved by this part. Within [`RECENT_MS`] of the last publication it must have moved by
/// [`MOVED_FAR`], since every publication makes all replicas read.
const MOVED: f64 = 0.005;
const MOVED_FAR: f64 = 0.05;
const RECENT_MS: u64 = 5_000;

/// The kinds of values.
pub(super) const WINDOW: u8 = b'w';
pub(super) const RATIO: u8 = b't';

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RowName {
    pub(super) kind: u8,
    pub(super) address_digest: u64,
    pub(super) provider: Box<str>,
    pub(super) model: Box<str>,
    /// The scope for which a window was learnt. A ratio holds for everybody.
    pub(super) scope: LessonScope,
}

/// What was learnt of a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum SharedFact {
    Window(Lessons),
    /// The provider's tokens over the guard's raw tokens.
    Ratio(f64),
}

/// A published value. Its stamp follows the wall clock, and is later than those of all values before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StampedFact {
    pub(super) at_ms: u64,
    pub(super) learnt: SharedFact,
}

impl RowName {
    pub(super) fn new(kind: u8, provider: &Provider, model: &str, scope: LessonScope) -> Self {
        Self {
            scope: match kind {
                RATIO => LessonScope::default(),
                _ => scope,
            },
            kind,
            address_digest: digest_address(provider),
            provider: (&*provider.name).into(),
            model: model.into(),
        }
    }

    /// Whether it is about that provider at its present address.
    pub(super) fn is_about(&self, provider: &Provider) -> bool {
        *self.provider == *provider.name && self.address_digest == digest_address(provider)
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        encode(self, Vec::new())
    }

    /// Returns `None` if the bytes are not the name of a row.
    pub(super) fn from_bytes(name: &[u8]) -> Option<Self> {
        postcard::from_bytes(name).ok()
    }
}

impl SharedFact {
    pub(super) const fn row_kind(&self) -> u8 {
        match self {
            Self::Window(_) => WINDOW,
            Self::Ratio(_) => RATIO,
        }
    }

    /// Whether it differs enough from the published value.
    pub(super) fn is_worth_publishing(
        &self,
        published: Option<&StampedFact>,
        now: SystemTime,
    ) -> bool {
        match (self, published.map(|published| published.learnt)) {
            (Self::Window(lessons), Some(Self::Window(known))) => lessons.is_news(&known),
            (Self::Window(lessons), _) => lessons.is_news(&Lessons::default()),
            (Self::Ratio(ratio), Some(Self::Ratio(known))) => {
                let at_ms = published.map_or(0, |published| published.at_ms);
                let is_recent = to_unix_ms(now).saturating_sub(at_ms) < RECENT_MS;
                (ratio / known - 1.0).abs() > if is_recent { MOVED_FAR } else { MOVED }
            }
            (Self::Ratio(_), _) => true,
        }
    }
}

impl StampedFact {
    /// Stamps a value later than the published one.
    pub(super) fn stamp_after(
        published: Option<&Self>,
        learnt: SharedFact,
        now: SystemTime,
    ) -> Self {
        let after = published.map_or(0, |published| published.at_ms.saturating_add(1));
        Self {
            at_ms: to_unix_ms(now).max(after),
            learnt,
        }
    }

    pub(super) fn to_bytes(self) -> Bytes {
        encode(&self, vec![VERSION])
    }

    /// Returns `None` if another release wrote the value with another version, or if the value is not of that kind.
    pub(super) fn from_bytes(kind: u8, value: &[u8]) -> Option<Self> {
        let rest = value.strip_prefix(&[VERSION])?;
        let (fact, rest): (Self, _) = postcard::take_from_bytes(rest).ok()?;
        (rest.is_empty() && fact.learnt.row_kind() == kind).then_some(fact)
    }
}

fn encode(value: &impl Serialize, before: Vec<u8>) -> Bytes {
    let bytes = postcard::to_extend(value, before);
    bytes.expect("numbers and texts always serialise").into()
}

fn digest_address(provider: &Provider) -> u64 {
    let base_url = provider.config.base_url.as_deref();
    xxh3_64(base_url.unwrap_or_default().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;
    use crate::store::Account;

    #[test]
    fn small_moves_of_a_ratio_are_published_rarely() {
        let published = StampedFact {
            at_ms: 1_000_000,
            learnt: SharedFact::Ratio(1.0),
        };
        let moved = |ratio, ms| {
            let now = UNIX_EPOCH + Duration::from_millis(ms);
            SharedFact::Ratio(ratio).is_worth_publishing(Some(&published), now)
        };
        assert!(!moved(1.004, 9_000_000));
        assert!(moved(1.006, 9_000_000));
        assert!(moved(0.994, 9_000_000));
        assert!(!moved(1.006, 1_000_001));
        assert!(moved(1.06, 1_000_001));
    }

    #[test]
    fn the_encoding_of_values_is_stable() {
        let ratio = StampedFact {
            at_ms: 300,
            learnt: SharedFact::Ratio(1.5),
        };
        let spelled = b"\x03\xac\x02\x01\0\0\0\0\0\0\xf8\x3f";
        assert_eq!(ratio.to_bytes(), &spelled[..]);
        assert_eq!(StampedFact::from_bytes(RATIO, spelled), Some(ratio));
        let window = StampedFact {
            at_ms: 300,
            learnt: SharedFact::Window(Lessons::default()),
        };
        assert_eq!(window.to_bytes(), &b"\x03\xac\x02\0\0\0\0\0\0\0"[..]);
        assert_eq!(
            StampedFact::from_bytes(WINDOW, &window.to_bytes()),
            Some(window)
        );
    }

    proptest! {
        #[test]
        fn names_are_read_as_written(
            provider: String,
            address_digest: u64,
            model: String,
            kind: u8,
            account: Option<[u8; 16]>,
            betas: u8,
        ) {
            let name = RowName {
                kind,
                address_digest,
                provider: provider.into(),
                model: model.into(),
                scope: LessonScope {
                    account: account.map(Account::from_bytes),
                    betas,
                    session: None,
                },
            };
            prop_assert_eq!(RowName::from_bytes(&name.to_bytes()), Some(name));
        }

        #[test]
        fn reading_anything_never_panics(bytes: Vec<u8>) {
            let _ = RowName::from_bytes(&bytes);
            let _ = RowName::from_bytes(&[b"w12345678", &bytes[..]].concat());
            for kind in [WINDOW, RATIO] {
                let _ = StampedFact::from_bytes(kind, &bytes);
                let _ = StampedFact::from_bytes(kind, &[&[VERSION], &bytes[..]].concat());
            }
        }
    }
}
