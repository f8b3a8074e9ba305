//! What stands in the file's rows: places, keys, and the checksums that hold them together.
//!
//! SECURITY: a row counts only where its checksum fits the tenant that asks, the session and the
//! key. SQLite checks little of what it reads; a page that was changed or lost gives no state here,
//! never a wrong one.

use xxhash_rust::xxh3::Xxh3;

use crate::store::{Account, SessionId, StateKey, StateKeys, StateToSave, Tenant, key::KeyKind};

/// Generations of one session that can be told apart, as bits.
const NUMBER_BITS: u32 = 24;

/// The row of a generation: those of one session lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GenerationRow(pub(super) i64);

impl GenerationRow {
    /// The first and the last that a session may have.
    pub(super) const fn session_range(session: i64) -> (Self, Self) {
        let first = session << NUMBER_BITS;
        (Self(first), Self(first | ((1 << NUMBER_BITS) - 1)))
    }

    pub(super) const fn session_number(self) -> i64 {
        self.0 >> NUMBER_BITS
    }

    /// As a key's row names it.
    pub(super) const fn to_target(self, kind: KeyKind) -> i64 {
        self.0 << 2 | kind as i64
    }

    pub(super) fn from_target(target: i64) -> Option<(Self, KeyKind)> {
        let kind = KeyKind::ALL.get((target & 3) as usize)?;
        Some((Self(target >> 2), *kind))
    }
}

/// Brings together all keys of conversations that begin alike, of one tenant.
pub(super) fn hash_prefix_group(tenant: &Tenant, opening: u64) -> u64 {
    let mut mixed = Xxh3::new();
    mixed.update(tenant.id());
    mixed.update(&opening.to_le_bytes());
    mixed.digest()
}

/// Where the row of a key stands: its circle and half of the key, since the whole is compared with its
/// generation's.
pub(super) type KeyPlace = [u8; 16];

pub(super) fn key_place(circle: u64, key: &StateKey) -> KeyPlace {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&circle.to_be_bytes());
    place[8..].copy_from_slice(&key.as_bytes()[..8]);
    place
}

/// All of a generation but its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GenerationHead {
    pub(super) prefix_group: u64,
    /// Half the answer's digest, enough to tell two answers to the same request apart.
    pub(super) answer: u64,
    /// The bare key saw two answers: remembered so that no third makes it good again.
    pub(super) ambiguous: bool,
    pub(super) keys: StateKeys,
}

impl GenerationHead {
    pub(super) const BYTES: usize = 8 + 8 + 1 + 3 * 16;
    /// Of the checksum, which follows.
    const SUM_BYTES: usize = 8;

    pub(super) fn from_saved(saved: &StateToSave, ambiguous: bool) -> Self {
        Self {
            prefix_group: hash_prefix_group(&saved.tenant, saved.opening),
            answer: saved.answer as u64,
            ambiguous,
            keys: saved.keys,
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES + Self::SUM_BYTES);
        bytes.extend_from_slice(&self.prefix_group.to_le_bytes());
        bytes.extend_from_slice(&self.answer.to_le_bytes());
        bytes.push(u8::from(self.ambiguous) | u8::from(self.keys.gap.is_some()) << 1);
        bytes.extend_from_slice(self.keys.exact.as_bytes());
        bytes.extend_from_slice(self.keys.bare.as_bytes());
        if let Some(gap) = &self.keys.gap {
            bytes.extend_from_slice(gap.as_bytes());
        }
        bytes
    }

    /// The stored form, with a checksum over it, whose it is, and the state.
    pub(super) fn to_checked_bytes(&self, owner: &GenerationOwner, state: &[u8]) -> Vec<u8> {
        let mut bytes = self.to_bytes();
        let sum = owner.checksum(&bytes, state);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a stored form, without holding it to its checksum.
    pub(super) fn parse_unchecked(sealed: &[u8]) -> Option<Self> {
        let (head, _) = sealed.split_last_chunk::<{ Self::SUM_BYTES }>()?;
        let (circle, rest) = head.split_first_chunk::<8>()?;
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
            prefix_group: u64::from_le_bytes(*circle),
            answer: u64::from_le_bytes(*answer),
            ambiguous: flags & 1 == 1,
            keys: StateKeys {
                exact: StateKey::from_bytes(*exact),
                gap,
                bare: StateKey::from_bytes(*bare),
            },
        })
    }

    /// Reads a stored form, if it and the state are as they were written for that owner.
    pub(super) fn parse_checked(
        sealed: &[u8],
        owner: &GenerationOwner,
        state: &[u8],
    ) -> Option<Self> {
        let (head, sum) = sealed.split_last_chunk::<{ Self::SUM_BYTES }>()?;
        (owner.checksum(head, state) == u64::from_le_bytes(*sum))
            .then(|| Self::parse_unchecked(sealed))
            .flatten()
    }
}

/// Whose a generation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GenerationOwner {
    pub(super) tenant: Tenant,
    pub(super) session: SessionId,
}

impl GenerationOwner {
    pub(super) fn from_saved(saved: &StateToSave) -> Self {
        Self {
            tenant: saved.tenant,
            session: saved.session,
        }
    }

    /// The owner that a row of `sessions` names; `None` where the row is not one.
    pub(super) fn from_columns(account: &[u8], tenant: &[u8], session: &[u8]) -> Option<Self> {
        let account = Account::from_bytes(account.try_into().ok()?);
        Some(Self {
            tenant: Tenant::from_parts(tenant.try_into().ok()?, account),
            session: SessionId::from_bytes(session.try_into().ok()?),
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

    /// Orders as they are stored: with a checksum, and as nothing where there are none.
    pub(super) fn encode_commands(&self, orders: &[u8]) -> Vec<u8> {
        match orders {
            [] => Vec::new(),
            orders => [&self.checksum(b"orders", orders).to_le_bytes()[..], orders].concat(),
        }
    }

    /// Orders that cannot be read are none.
    pub(super) fn decode_commands<'a>(&self, sealed: &'a [u8]) -> &'a [u8] {
        match sealed.split_first_chunk::<8>() {
            Some((sum, orders)) if self.checksum(b"orders", orders) == u64::from_le_bytes(*sum) => {
                orders
            }
            _ => &[],
        }
    }
}

/// When a session was used, finer than the clock's seconds, so that an order is kept among those of
/// the same second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp(pub(super) i64);

impl Stamp {
    const BITS: u32 = 20;

    pub(super) const fn from_second(second: u64) -> Self {
        const MOST: u64 = (1 << (63 - Stamp::BITS)) - 1;
        let second = if second > MOST { MOST } else { second };
        Self((second as i64) << Self::BITS)
    }

    pub(super) const fn second(self) -> u64 {
        (self.0.unsigned_abs()) >> Self::BITS
    }

    /// One of this second, as far behind its first.
    pub(super) const fn with_offset(self, nth: i64) -> Self {
        Self(self.0 | nth & ((1 << Self::BITS) - 1))
    }

    /// The one after this in that second.
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
    fn heads_are_read_as_written_and_for_their_owner_alone() {
        for (gap, ambiguous) in [(true, false), (false, true)] {
            let mut saved = saved(tenant("a"), session(1), 10);
            saved.keys.gap = saved.keys.gap.filter(|_| gap);
            let (head, owner) = (
                GenerationHead::from_saved(&saved, ambiguous),
                GenerationOwner::from_saved(&saved),
            );
            let sealed = head.to_checked_bytes(&owner, b"state");
            assert_eq!(
                GenerationHead::parse_checked(&sealed, &owner, b"state"),
                Some(head)
            );
            assert_eq!(GenerationHead::parse_unchecked(&sealed), Some(head));
            assert_eq!(
                GenerationHead::parse_checked(&sealed, &owner, b"other"),
                None
            );
            for (tenant, session) in [(tenant("b"), session(1)), (tenant("a"), session(2))] {
                let owner = GenerationOwner { tenant, session };
                assert_eq!(
                    GenerationHead::parse_checked(&sealed, &owner, b"state"),
                    None
                );
            }
            for at in 0..sealed.len() {
                assert_eq!(
                    GenerationHead::parse_checked(&sealed[..at], &owner, b"state"),
                    None
                );
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(
                    GenerationHead::parse_checked(&changed, &owner, b"state"),
                    None
                );
            }
        }
    }

    #[test]
    fn stamps_keep_an_order_within_a_second() {
        let mut stamp = Stamp::default();
        for second in [7, 7, 7, 8, 8] {
            let next = stamp.next_stamp(second);
            assert!(next.0 > stamp.0 && next.second() == second);
            stamp = next;
        }
        assert_eq!(stamp.next_stamp(3).second(), 3);
    }
}
