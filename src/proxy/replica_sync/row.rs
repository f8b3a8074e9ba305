//! Names and encoding of shared values in the store.
//!
//! A name is a letter for the kind of value, a digest of the provider's address, the length of its name, that name,
//! and the model's: a lesson holds at one address only. A value is a version byte and a compact encoding of its stamp
//! and the lesson.

use std::time::SystemTime;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use xxhash_rust::xxh3::xxh3_64;

use crate::provider::{
    Provider,
    learnt_windows::{Lessons, wall_ms},
};

/// First byte of every value; changes with the meaning of any byte after it.
const VERSION: u8 = 1;

/// A ratio is published where it moved by this part, and within [`RECENT_MS`] of the last publication only where it
/// moved by [`MOVED_FAR`]: every publication makes all replicas read.
const MOVED: f64 = 0.005;
const MOVED_FAR: f64 = 0.05;
const RECENT_MS: u64 = 5_000;

/// The first letter of a name.
pub(super) const WINDOW: u8 = b'w';
/// Releases that estimated by characters wrote `r`: their ratios say nothing about the estimate by words.
pub(super) const RATIO: u8 = b't';

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowName {
    /// The kind of value.
    pub(super) letter: u8,
    pub(super) address_digest: u64,
    pub(super) provider: Box<str>,
    pub(super) model: Box<str>,
}

/// What was learnt of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SharedFact {
    Window(Lessons),
    /// The provider's tokens over the guard's raw tokens.
    Ratio(f64),
}

/// A published value. Its stamp follows the wall clock, and is later than those of all values before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StampedFact {
    pub(super) at_ms: u64,
    pub(super) learnt: SharedFact,
}

impl RowName {
    pub(super) fn new(letter: u8, provider: &Provider, model: &str) -> Self {
        Self {
            letter,
            address_digest: digest_address(provider),
            provider: (&*provider.name).into(),
            model: model.into(),
        }
    }

    /// Whether it is about that provider at its present address.
    pub(super) fn is_about(&self, provider: &Provider) -> bool {
        *self.provider == *provider.name && self.address_digest == digest_address(provider)
    }

    /// `None`: the provider's name is too long.
    pub(super) fn to_bytes(&self) -> Option<Bytes> {
        let length = u16::try_from(self.provider.len()).ok()?.to_be_bytes();
        let parts = [
            &[self.letter],
            &self.address_digest.to_be_bytes()[..],
            &length[..],
            self.provider.as_bytes(),
            self.model.as_bytes(),
        ];
        Some(parts.concat().into())
    }

    /// `None`: it is no such name.
    pub(super) fn from_bytes(name: &[u8]) -> Option<Self> {
        let (&letter, rest) = name.split_first()?;
        let (address_digest, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (provider, model) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        Some(Self {
            letter,
            address_digest: u64::from_be_bytes(*address_digest),
            provider: std::str::from_utf8(provider).ok()?.into(),
            model: std::str::from_utf8(model).ok()?.into(),
        })
    }
}

impl SharedFact {
    pub(super) const fn row_letter(&self) -> u8 {
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
                let is_recent = wall_ms(now).saturating_sub(at_ms) < RECENT_MS;
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
            at_ms: wall_ms(now).max(after),
            learnt,
        }
    }

    pub(super) fn to_bytes(self) -> Bytes {
        fn encode_value(at_ms: u64, learnt: impl Serialize) -> Vec<u8> {
            postcard::to_extend(&(at_ms, learnt), vec![VERSION]).expect("numbers always serialise")
        }
        match self.learnt {
            SharedFact::Window(lessons) => encode_value(self.at_ms, lessons),
            SharedFact::Ratio(ratio) => encode_value(self.at_ms, ratio),
        }
        .into()
    }

    /// `None`: a later release wrote it, or it is no such value.
    pub(super) fn from_bytes(letter: u8, value: &[u8]) -> Option<Self> {
        fn decode_value<T: DeserializeOwned>(
            value: &[u8],
            learnt: fn(T) -> SharedFact,
        ) -> Option<StampedFact> {
            let rest = value.strip_prefix(&[VERSION])?;
            let ((at_ms, fact), rest) = postcard::take_from_bytes(rest).ok()?;
            let learnt = learnt(fact);
            rest.is_empty().then_some(StampedFact { at_ms, learnt })
        }
        match letter {
            WINDOW => decode_value(value, SharedFact::Window),
            RATIO => decode_value(value, SharedFact::Ratio),
            _ => None,
        }
    }
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
        let spelled = b"\x01\xac\x02\0\0\0\0\0\0\xf8\x3f";
        assert_eq!(ratio.to_bytes(), &spelled[..]);
        assert_eq!(StampedFact::from_bytes(RATIO, spelled), Some(ratio));
        let window = StampedFact {
            at_ms: 300,
            learnt: SharedFact::Window(Lessons::default()),
        };
        assert_eq!(window.to_bytes(), &b"\x01\xac\x02\0\0\0\0"[..]);
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
            letter: u8,
        ) {
            let name = RowName {
                letter,
                address_digest,
                provider: provider.into(),
                model: model.into(),
            };
            prop_assert_eq!(RowName::from_bytes(&name.to_bytes().unwrap()), Some(name));
        }

        #[test]
        fn reading_anything_never_panics(bytes: Vec<u8>) {
            let _ = RowName::from_bytes(&bytes);
            let _ = RowName::from_bytes(&[b"w12345678", &bytes[..]].concat());
            for letter in [WINDOW, RATIO] {
                let _ = StampedFact::from_bytes(letter, &bytes);
                let _ = StampedFact::from_bytes(letter, &[&[VERSION], &bytes[..]].concat());
            }
        }
    }
}
