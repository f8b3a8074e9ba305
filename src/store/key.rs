//! Ids and keys of a state: its tenant, its session and the keys that it is saved under.
//!
//! All are digests or random bits. The store compares them and never makes one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The client that pays: 128 bits of a keyed digest, without the end user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Account([u8; 16]);

impl Account {
    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// An account and one of its end users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tenant {
    id: [u8; 16],
    account: Account,
}

impl Tenant {
    pub(crate) const fn from_parts(id: [u8; 16], account: Account) -> Self {
        Self { id, account }
    }

    /// The prefix of every key in the store.
    pub const fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// The account may read the sessions of all its tenants through the API.
    pub const fn account(&self) -> Account {
        self.account
    }
}

/// The id of a session: 128 bits that cannot be guessed, displayed as 32 hex digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId([u8; 16]);

impl SessionId {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Half of the id, as a number that is the same for all requests of the session.
    pub fn seed(&self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads 32 lower-case hex digits.
    pub fn parse_hex(text: &str) -> Option<Self> {
        let lower = text.bytes().all(|byte| !byte.is_ascii_uppercase());
        let mut bytes = [0; 16];
        (lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(Self(bytes))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names a state within its tenant.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct StateKey([u8; 16]);

impl StateKey {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// The keys of the state after one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateKeys {
    /// The request's messages and the answer.
    pub exact: StateKey,
    /// The messages up to the last answer, and the new answer: for clients that add text to their last message and
    /// remove it later.
    pub gap: Option<StateKey>,
    /// The messages alone: for clients that change the echoed answer. Valid only while it has seen a single answer.
    pub bare: StateKey,
}

/// The loose keys of a state: of its answer alone, and of its answer and the one before it; the first key twice where there
/// is none before it. They depend on no other message, so that they lead to the state of a conversation that the client
/// has edited. Such a find is only a guess until more of the conversation is compared.
pub type LooseKeys = [StateKey; 2];

/// The opening by which loose keys are looked up.
pub const LOOSE_OPENING: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Exact,
    Gap,
    Bare,
    /// The first of the [`LooseKeys`].
    Alone,
    /// The second of them.
    Pair,
}

impl KeyKind {
    pub(super) const ALL: [Self; 5] = [Self::Exact, Self::Gap, Self::Bare, Self::Alone, Self::Pair];

    /// The place among the [`LooseKeys`].
    pub(super) const fn loose_place(self) -> Option<usize> {
        match self {
            Self::Alone => Some(0),
            Self::Pair => Some(1),
            Self::Exact | Self::Gap | Self::Bare => None,
        }
    }
}

impl StateKeys {
    pub(super) const fn get(&self, kind: KeyKind) -> Option<&StateKey> {
        match kind {
            KeyKind::Exact => Some(&self.exact),
            KeyKind::Gap => self.gap.as_ref(),
            KeyKind::Bare => Some(&self.bare),
            KeyKind::Alone | KeyKind::Pair => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (KeyKind, &StateKey)> {
        let key = |kind| self.get(kind).map(|key| (kind, key));
        KeyKind::ALL.into_iter().filter_map(key)
    }
}
