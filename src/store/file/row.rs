//! The encoding of rows: places, keys and checksums.
//!
//! SECURITY: a row counts only if its checksum fits the requesting tenant, the session and the key. SQLite checks
//! little of what it reads. With these checksums a changed or lost page gives no state instead of a wrong one.

use rusqlite::Row;
use xxhash_rust::xxh3::Xxh3;

use super::sql::column_bytes;
use crate::store::{Account, SessionId, StateKey, StateKeys, StateToSave, Tenant, key::KeyKind};

/// Bits of a generation's number within its session.
const NUMBER_BITS: u32 = 24;

/// The row of a generation. The rows of one session lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GenerationRow(pub(super) i64);

impl GenerationRow {
    /// The first and the last row that a session may have.
    pub(super) const fn session_range(session: i64) -> (Self, Self) {
        let first = session << NUMBER_BITS;
        (Self(first), Self(first | ((1 << NUMBER_BITS) - 1)))
    }

    pub(super) const fn session_number(self) -> i64 {
        self.0 >> NUMBER_BITS
    }

    /// The value of a key's row.
    pub(super) const fn to_target(self, kind: KeyKind) -> i64 {
        self.0 << 2 | kind as i64
    }

    pub(super) fn from_target(target: i64) -> Option<(Self, KeyKind)> {
        let kind = KeyKind::ALL.get((target & 3) as usize)?;
        Some((Self(target >> 2), *kind))
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GenerationHead {
    pub(super) prefix_group: u64,
    /// Half the answer's digest: enough to distinguish two answers to the same request.
    pub(super) answer: u64,
    /// The bare key has seen two answers. This stays, so that a third answer does not make it valid again.
    pub(super) ambiguous: bool,
    pub(super) keys: StateKeys,
}

impl GenerationHead {
    pub(super) const BYTES: usize = 8 + 8 + 1 + 3 * 16;
    /// The checksum behind the head.
    const SUM_BYTES: usize = 8;

    pub(super) fn from_saved(saved: &StateToSave, ambiguous: bool) -> Self {
        Self {
            prefix_group: hash_prefix_group(&saved.tenant, saved.opening),
            answer: saved.answer as u64,
            ambiguous,
            keys: saved.keys,
        }
    }

    /// The stored form, with a checksum over it, its owner and the state.
    pub(super) fn encode_checked(&self, owner: &GenerationOwner, state: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES + Self::SUM_BYTES);
        bytes.extend_from_slice(&self.prefix_group.to_le_bytes());
        bytes.extend_from_slice(&self.answer.to_le_bytes());
        bytes.push(u8::from(self.ambiguous) | u8::from(self.keys.gap.is_some()) << 1);
        bytes.extend_from_slice(self.keys.exact.as_bytes());
        bytes.extend_from_slice(self.keys.bare.as_bytes());
        if let Some(gap) = &self.keys.gap {
            bytes.extend_from_slice(gap.as_bytes());
        }
        let sum = owner.checksum(&bytes, state);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses a stored form without a check of its checksum.
    pub(super) fn parse_unchecked(stored: &[u8]) -> Option<Self> {
        let (head, _) = stored.split_last_chunk::<{ Self::SUM_BYTES }>()?;
        let (prefix_group, rest) = head.split_first_chunk::<8>()?;
        let (answer, rest) = rest.split_first_chunk::<8>()?;
        let (flags, rest) = rest.split_first()?;
        let (exact, rest) = rest.split_first_chunk::<16>()?;
        let (bare, gap) = rest.split_first_chunk::<16>()?;
        let gap = match flags & 2 {
            0 if gap.is_empty() => None,
            0 => return None,
            _ => Some(StateKey::from_bytes(gap.try_into().ok()?)),
        };
        Some(Self {
            prefix_group: u64::from_le_bytes(*prefix_group),
            answer: u64::from_le_bytes(*answer),
            ambiguous: flags & 1 == 1,
            keys: StateKeys {
                exact: StateKey::from_bytes(*exact),
                gap,
                bare: StateKey::from_bytes(*bare),
            },
        })
    }

    /// Parses a stored form if its checksum fits the owner and the state.
    pub(super) fn parse_checked(
        stored: &[u8],
        owner: &GenerationOwner,
        state: &[u8],
    ) -> Option<Self> {
        let (head, sum) = stored.split_last_chunk::<{ Self::SUM_BYTES }>()?;
        (owner.checksum(head, state) == u64::from_le_bytes(*sum))
            .then(|| Self::parse_unchecked(stored))
            .flatten()
    }
}

/// Tenant and session of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GenerationOwner {
    pub(super) tenant: Tenant,
    pub(super) session: SessionId,
}

impl GenerationOwner {
    pub(super) fn from_saved(saved: &StateToSave) -> Self {
        let StateToSave {
            tenant, session, ..
        } = *saved;
        Self { tenant, session }
    }

    /// Reads the columns `account`, `tenant` and `session` from index `first` on; `None` if one has another length.
    pub(super) fn from_columns(row: &Row<'_>, first: usize) -> Option<Self> {
        let digest = |at| column_bytes(row, first + at).try_into().ok();
        let account = Account::from_bytes(digest(0)?);
        Some(Self {
            tenant: Tenant::from_parts(digest(1)?, account),
            session: SessionId::from_bytes(digest(2)?),
        })
    }

    fn checksum(&self, head: &[u8], state: &[u8]) -> u64 {
        let mut sum = Xxh3::new();
        sum.update(self.tenant.id());
        sum.update(self.tenant.account().as_bytes());
        sum.update(self.session.as_bytes());
        sum.update(head);
        sum.update(state);
        sum.digest()
    }

    /// The stored form of commands: behind a checksum; empty without commands.
    pub(super) fn encode_commands(&self, commands: &[u8]) -> Vec<u8> {
        if commands.is_empty() {
            return Vec::new();
        }
        let sum = self.checksum(b"orders", commands).to_le_bytes();
        [&sum[..], commands].concat()
    }

    /// Commands whose checksum does not fit are dropped.
    pub(super) fn decode_commands<'a>(&self, stored: &'a [u8]) -> &'a [u8] {
        let Some((sum, commands)) = stored.split_first_chunk() else {
            return &[];
        };
        match self.checksum(b"orders", commands) == u64::from_le_bytes(*sum) {
            true => commands,
            false => &[],
        }
    }
}

/// The time of a session's use: a second and a counter, which keeps the order within a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp(pub(super) i64);

impl Stamp {
    const BITS: u32 = 20;

    pub(super) const fn from_second(second: u64) -> Self {
        const MAX: u64 = (1 << (63 - Stamp::BITS)) - 1;
        let second = if second > MAX { MAX } else { second };
        Self((second as i64) << Self::BITS)
    }

    pub(super) const fn second(self) -> u64 {
        (self.0.unsigned_abs()) >> Self::BITS
    }

    /// The stamp of the same second with this counter.
    pub(super) const fn with_offset(self, nth: i64) -> Self {
        Self(self.0 | nth & ((1 << Self::BITS) - 1))
    }

    /// A stamp of `second`, after this one if that is of the same second.
    pub(super) fn next_stamp(self, second: u64) -> Self {
        let first = Self::from_second(second);
        match self.second() == first.second() {
            true => first.with_offset(self.0 + 1),
            false => first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{saved, session, tenant};

    #[test]
    fn a_head_is_read_only_for_its_owner_and_state() {
        let parse = GenerationHead::parse_checked;
        for (gap, ambiguous) in [(true, false), (false, true)] {
            let mut saved = saved(tenant("a"), session(1), 10);
            saved.keys.gap = saved.keys.gap.filter(|_| gap);
            let head = GenerationHead::from_saved(&saved, ambiguous);
            let owner = GenerationOwner::from_saved(&saved);
            let stored = head.encode_checked(&owner, b"state");
            assert_eq!(parse(&stored, &owner, b"state"), Some(head));
            assert_eq!(GenerationHead::parse_unchecked(&stored), Some(head));
            assert_eq!(parse(&stored, &owner, b"other"), None);
            for (tenant, session) in [(tenant("b"), session(1)), (tenant("a"), session(2))] {
                let owner = GenerationOwner { tenant, session };
                assert_eq!(parse(&stored, &owner, b"state"), None);
            }
            for at in 0..stored.len() {
                assert_eq!(parse(&stored[..at], &owner, b"state"), None);
                let mut changed = stored.clone();
                changed[at] ^= 1;
                assert_eq!(parse(&changed, &owner, b"state"), None);
            }
        }
    }

    #[test]
    fn stamps_keep_their_order_within_a_second() {
        let mut stamp = Stamp::default();
        for second in [7, 7, 7, 8, 8] {
            let next = stamp.next_stamp(second);
            assert!(next.0 > stamp.0 && next.second() == second);
            stamp = next;
        }
        assert_eq!(stamp.next_stamp(3).second(), 3);
    }
}
