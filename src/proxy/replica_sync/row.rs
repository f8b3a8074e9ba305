//! How what is shared is named and written in the store.
//!
//! A name is a letter for what it is, a digest of where the provider is, the length of its name, that
//! name, and the model's: what was learnt at one address holds at no other. A value is a version byte and a
//! compact encoding of its stamp and what was learnt.

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

/// A ratio is published where it moved by this part, and within [`NOW_AND_THEN_MS`] of the last time only where it
/// moved by [`MOVED_FAR`]: every publication makes all replicas read.
const MOVED: f64 = 0.005;
const MOVED_FAR: f64 = 0.05;
const NOW_AND_THEN_MS: u64 = 5_000;

/// The letters that names begin with.
pub(super) const WINDOW: u8 = b'w';
pub(super) const RATIO: u8 = b'r';

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowName {
    /// What is said of the model.
    pub(super) letter: u8,
    /// Digest of where the provider is.
    pub(super) address_digest: u64,
    pub(super) provider: Box<str>,
    pub(super) model: Box<str>,
}

/// What was learnt of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SharedFact {
    /// What refusals taught of its window.
    Window(Lessons),
    /// Its tokens over ours.
    Ratio(f64),
}

/// A published value, and when it was published: by the wall clock, and later than all values before it.
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

    /// Whether it is about that provider, where it is now.
    pub(super) fn is_about(&self, provider: &Provider) -> bool {
        *self.provider == *provider.name && self.address_digest == digest_address(provider)
    }

    /// `None`: a provider's name of that length cannot be written.
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
        let (place, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (provider, model) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        Some(Self {
            letter,
            address_digest: u64::from_be_bytes(*place),
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

    /// Whether it is far enough from what was published.
    pub(super) fn is_worth_publishing(
        &self,
        published: Option<&StampedFact>,
        now: SystemTime,
    ) -> bool {
        match (self, published.map(|published| published.learnt)) {
            (Self::Window(lessons), Some(Self::Window(told))) => lessons.is_news(&told),
            (Self::Window(lessons), _) => lessons.is_news(&Lessons::default()),
            (Self::Ratio(ratio), Some(Self::Ratio(told))) => {
                let at_ms = published.map_or(0, |published| published.at_ms);
                let recent = wall_ms(now).saturating_sub(at_ms) < NOW_AND_THEN_MS;
                (ratio / told - 1.0).abs() > if recent { MOVED_FAR } else { MOVED }
            }
            (Self::Ratio(_), _) => true,
        }
    }
}

impl StampedFact {
    /// With a stamp that is later than that of what was published before.
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

    /// `None`: a later release wrote it, or nobody did.
    pub(super) fn from_bytes(letter: u8, value: &[u8]) -> Option<Self> {
        fn decode_value<T: DeserializeOwned>(
            value: &[u8],
            learnt: fn(T) -> SharedFact,
        ) -> Option<StampedFact> {
            let rest = value.strip_prefix(&[VERSION])?;
            let ((at_ms, what), rest) = postcard::take_from_bytes(rest).ok()?;
            let learnt = learnt(what);
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
    fn small_moves_are_told_now_and_then() {
        let told = StampedFact {
            at_ms: 1_000_000,
            learnt: SharedFact::Ratio(1.0),
        };
        let moved = |ratio, ms| {
            let now = UNIX_EPOCH + Duration::from_millis(ms);
            SharedFact::Ratio(ratio).is_worth_publishing(Some(&told), now)
        };
        assert!(!moved(1.004, 9_000_000));
        assert!(moved(1.006, 9_000_000));
        assert!(moved(0.994, 9_000_000));
        assert!(!moved(1.006, 1_000_001));
        assert!(moved(1.06, 1_000_001));
    }

    #[test]
    fn values_are_spelled_as_every_release_spells_them() {
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
            place: u64,
            model: String,
            letter: u8,
        ) {
            let name = RowName {
                letter,
                address_digest: place,
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
