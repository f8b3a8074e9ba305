//! How what is shared is named and written in the store.
//!
//! A name is a letter for what it is, a digest of where the provider is, the length of its name, that
//! name, and the model's: what was learnt at one address holds at no other. A value is a version byte and a compact encoding.

use serde::{Serialize, de::DeserializeOwned};
use xxhash_rust::xxh3::xxh3_64;

use crate::provider::Provider;

/// First byte of every value; changes with the meaning of any byte after it.
const VERSION: u8 = 1;

/// Provider and model.
pub(super) type Model = (Box<str>, Box<str>);

/// What is said of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What refusals taught of its window.
    Window,
    /// Its tokens over ours.
    Ratio,
}

/// What tells where a provider is, now.
pub(super) fn place(provider: &Provider) -> u64 {
    xxh3_64(
        provider
            .config
            .base_url
            .as_deref()
            .unwrap_or_default()
            .as_bytes(),
    )
}

/// `None`: a provider's name of that length cannot be written.
pub(super) fn name(kind: Kind, place: u64, (provider, model): &Model) -> Option<Vec<u8>> {
    let letter = match kind {
        Kind::Window => b'w',
        Kind::Ratio => b'r',
    };
    let length = u16::try_from(provider.len()).ok()?.to_be_bytes();
    let parts = [
        &[letter],
        &place.to_be_bytes()[..],
        &length[..],
        provider.as_bytes(),
        model.as_bytes(),
    ];
    Some(parts.concat())
}

/// `None`: a later release wrote it, or nobody did.
pub(super) fn read_name(name: &[u8]) -> Option<(Kind, u64, Model)> {
    let (&letter, rest) = name.split_first()?;
    let kind = match letter {
        b'w' => Kind::Window,
        b'r' => Kind::Ratio,
        _ => return None,
    };
    let (place, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (provider, model) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let text = |bytes| std::str::from_utf8(bytes).ok().map(Box::from);
    let place = u64::from_be_bytes(*place);
    Some((kind, place, (text(provider)?, text(model)?)))
}

pub(super) fn value(what: &impl Serialize) -> Option<Vec<u8>> {
    postcard::to_extend(what, vec![VERSION]).ok()
}

pub(super) fn read_value<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    let rest = value.strip_prefix(&[VERSION])?;
    match postcard::take_from_bytes(rest) {
        Ok((what, [])) => Some(what),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_read_as_written(
            provider: String,
            place: u64,
            model: String,
            window: bool,
        ) {
            let kind = if window { Kind::Window } else { Kind::Ratio };
            let model: Model = (provider.into(), model.into());
            let name = name(kind, place, &model).unwrap();
            prop_assert_eq!(read_name(&name), Some((kind, place, model)));
        }

        #[test]
        fn reading_anything_never_panics(bytes: Vec<u8>) {
            let _ = read_name(&bytes);
            let _ = read_name(&[b"w12345678", &bytes[..]].concat());
            let _ = read_value::<(u64, f64)>(&bytes);
            let _ = read_value::<(u64, f64)>(&[&[VERSION], &bytes[..]].concat());
        }
    }
}
