//! The encoding of rows: places, keys and checksums.
//!
//! SECURITY: a row counts only if its checksum fits the requesting tenant, the session and the key. SQLite checks
//! little of what it reads. With these checksums a changed or lost page gives no state instead of a wrong one.

use rusqlite::{Result, Row};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::store::{
    Account, LOOSE_OPENING, LooseKeys, SessionId, StateKey, StateKeys, StateToSave, Tenant,
};

/// Bits of a generation's number within its session.
pub(super) const NUMBER_BITS: u32 = 28;

/// The first and the last place that a generation of the session may have in its table.
pub(super) const fn generation_places(session: i64) -> (i64, i64) {
    (session << NUMBER_BITS, ((session + 1) << NUMBER_BITS) - 1)
}

/// The time of a session's use: its second, and a counter, which keeps the order within a second.
pub(super) const fn stamp(second: u64) -> i64 {
    const MAX: u64 = (1 << (63 - STAMP_BITS)) - 1;
    let second = if second > MAX { MAX } else { second };
    (second as i64) << STAMP_BITS
}

const STAMP_BITS: u32 = 20;

pub(super) const fn stamp_second(stamp: i64) -> u64 {
    stamp.unsigned_abs() >> STAMP_BITS
}

/// Groups the keys of a tenant's conversations with the same opening.
pub(super) fn hash_prefix_group(tenant: &Tenant, opening: u64) -> u64 {
    let mut mixed = Xxh3::new();
    mixed.update(tenant.id());
    mixed.update(&opening.to_le_bytes());
    mixed.digest()
}

/// The primary key of a key's row: its prefix group and half of the key. A find compares the whole key with that of
/// the generation.
pub(super) type KeyPlace = [u8; 16];

pub(super) fn key_place(prefix_group: u64, key: &StateKey) -> KeyPlace {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&prefix_group.to_be_bytes());
    place[8..].copy_from_slice(&key.as_bytes()[..8]);
    place
}

/// All of a generation but its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GenerationHead {
    pub(super) prefix_group: u64,
    /// Half the answer's digest: enough to distinguish two answers to the same request.
    pub(super) answer: u64,
    /// The bare key has seen two answers. It stays ambiguous, so that a third answer does not make it valid again.
    pub(super) ambiguous: bool,
    pub(super) keys: StateKeys,
    /// Encoded behind the rest, where it is there.
    #[serde(skip)]
    pub(super) loose: Option<LooseHead>,
}

/// The loose keys of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LooseHead {
    prefix_group: u64,
    keys: LooseKeys,
    /// Which of them two sessions have saved under.
    ambiguous: [bool; 2],
}

impl LooseHead {
    /// `is_ambiguous` tells it of the key's row.
    pub(super) fn new<E>(
        tenant: &Tenant,
        keys: LooseKeys,
        is_ambiguous: impl Fn(KeyPlace, &StateKey) -> Result<bool, E>,
    ) -> Result<Self, E> {
        let prefix_group = hash_prefix_group(tenant, LOOSE_OPENING);
        let ask = |key: &StateKey| is_ambiguous(key_place(prefix_group, key), key);
        Ok(Self {
            prefix_group,
            ambiguous: [ask(&keys[0])?, ask(&keys[1])?],
            keys,
        })
    }

    /// Whether the key is one of these, and ambiguous.
    pub(super) fn find_key(&self, key: &StateKey) -> Option<bool> {
        let at = self.keys.iter().position(|own| own == key)?;
        Some(self.ambiguous[at])
    }
}

impl GenerationHead {
    pub(super) fn from_saved(saved: &StateToSave, ambiguous: bool) -> Self {
        Self {
            prefix_group: hash_prefix_group(&saved.tenant, saved.opening),
            answer: saved.answer as u64,
            ambiguous,
            keys: saved.keys,
            loose: None,
        }
    }

    pub(super) fn key_places(&self) -> impl Iterator<Item = KeyPlace> {
        let keys = self.keys.iter();
        let keys = keys.map(|(_, key)| key_place(self.prefix_group, key));
        let loose = self.loose.into_iter();
        keys.chain(loose.flat_map(|it| it.keys.map(|key| key_place(it.prefix_group, &key))))
    }

    pub(super) fn has_key(&self, key: &StateKey) -> bool {
        self.keys.iter().any(|(_, own)| own == key)
    }

    /// Whether the generation is a find of the key.
    pub(super) fn answers_key(&self, key: &StateKey) -> bool {
        let loose = self.loose.and_then(|loose| loose.find_key(key));
        loose == Some(false) || self.has_key(key) && !(self.ambiguous && self.keys.bare == *key)
    }

    pub(super) fn encode(&self, owner: &StateOwner, state: &[u8]) -> Vec<u8> {
        // This encoding has no errors.
        let mut bytes = postcard::to_stdvec(self).unwrap_or_default();
        let loose = self.loose.map(|loose| postcard::to_stdvec(&loose));
        bytes.extend(loose.into_iter().flatten().flatten());
        owner.seal(&bytes, state)
    }

    pub(super) fn decode(stored: &[u8], owner: &StateOwner, state: &[u8]) -> Option<Self> {
        Self::read(owner.unseal(stored, state)?)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (mut head, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        if !rest.is_empty() {
            head.loose = Some(postcard::from_bytes(rest).ok()?);
        }
        Some(head)
    }

    /// Decodes without a check of the checksum. What cannot be read has no key.
    pub(super) fn decode_unchecked(stored: &[u8]) -> Self {
        let head = stored.get(SUM_BYTES..).and_then(Self::read);
        head.unwrap_or_default()
    }
}

/// Tenant and session of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateOwner {
    pub(super) tenant: Tenant,
    pub(super) session: SessionId,
}

impl StateOwner {
    /// Reads the columns `account`, `tenant` and `session`, the first ones of the row.
    pub(super) fn from_row(row: &Row<'_>) -> Result<Self> {
        let account = Account::from_bytes(row.get(0)?);
        Ok(Self {
            tenant: Tenant::from_parts(row.get(1)?, account),
            session: SessionId::from_bytes(row.get(2)?),
        })
    }

    /// As the function [`seal`]; the checksum also covers the owner.
    pub(super) fn seal(&self, body: &[u8], rest: &[u8]) -> Vec<u8> {
        seal(body, &[&self.to_bytes(), rest])
    }

    pub(super) fn unseal<'a>(&self, stored: &'a [u8], rest: &[u8]) -> Option<&'a [u8]> {
        unseal(stored, &[&self.to_bytes(), rest])
    }

    fn to_bytes(self) -> Vec<u8> {
        let account = self.tenant.account();
        [
            self.tenant.id(),
            &account.as_bytes()[..],
            self.session.as_bytes(),
        ]
        .concat()
    }
}

const SUM_BYTES: usize = 8;

/// A column's bytes behind a checksum over them and over what belongs to them.
pub(super) fn seal(body: &[u8], rest: &[&[u8]]) -> Vec<u8> {
    [&checksum(body, rest), body].concat()
}

/// The bytes behind the checksum, if it fits.
pub(super) fn unseal<'a>(stored: &'a [u8], rest: &[&[u8]]) -> Option<&'a [u8]> {
    let (sum, body) = stored.split_first_chunk()?;
    (checksum(body, rest) == *sum).then_some(body)
}

fn checksum(body: &[u8], rest: &[&[u8]]) -> [u8; SUM_BYTES] {
    let mut sum = Xxh3::new();
    sum.update(&(body.len() as u64).to_le_bytes());
    sum.update(body);
    for part in rest {
        sum.update(part);
    }
    sum.digest().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{saved, session, tenant};

    #[test]
    fn a_head_is_read_only_for_its_owner_and_state() {
        let decode = GenerationHead::decode;
        for (gap, ambiguous) in [(true, false), (false, true)] {
            let mut saved = saved(tenant("a"), session(1), 10);
            saved.keys.gap = saved.keys.gap.filter(|_| gap);
            let head = GenerationHead::from_saved(&saved, ambiguous);
            let (tenant, session) = (saved.tenant, saved.session);
            let owner = StateOwner { tenant, session };
            let stored = head.encode(&owner, b"state");
            assert_eq!(decode(&stored, &owner, b"state"), Some(head));
            assert_eq!(GenerationHead::decode_unchecked(&stored), head);
            assert_eq!(decode(&stored, &owner, b"other"), None);
            for (tenant, session) in [(self::tenant("b"), session), (tenant, self::session(2))] {
                let owner = StateOwner { tenant, session };
                assert_eq!(decode(&stored, &owner, b"state"), None);
            }
            for at in 0..stored.len() {
                assert_eq!(decode(&stored[..at], &owner, b"state"), None);
                let mut changed = stored.clone();
                changed[at] ^= 1;
                assert_eq!(decode(&changed, &owner, b"state"), None);
            }
        }
    }
}
