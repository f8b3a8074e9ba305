//! One session in memory: its newest generations with their keys and states, and the pointers to them.

use bytes::Bytes;

use crate::store::{
    LooseKeys, SessionId, SessionRow, StateKey, StateKeys, StateToSave, Tenant,
    key::KeyKind,
    retention::{self, RetainedGeneration},
};

pub(super) struct SessionRecord {
    pub(super) tenant: Tenant,
    pub(super) session: SessionId,
    pub(super) saved_s: u64,
    /// The last save or find.
    pub(super) used_s: u64,
    next: u32,
    pub(super) commands: Box<[u8]>,
    /// Oldest first, without spare capacity, since most sessions are idle.
    pub(super) generations: Vec<Generation>,
}

pub(super) struct Generation {
    /// Unique within the record.
    pub(super) number: u32,
    /// Part of the digest: enough to distinguish the conversations of one session.
    opening: u32,
    pub(super) keys: StateKeys,
    /// The bare key has seen two answers. It stays ambiguous, so that a third answer does not make it valid again.
    pub(super) ambiguous: bool,
    /// Half the answer's digest: enough to distinguish two answers to the same request.
    pub(super) answer: u64,
    pub(super) state: Box<[u8]>,
    pub(super) loose: Option<Box<LooseRecord>>,
}

/// The loose keys of a generation.
pub(super) struct LooseRecord {
    pub(super) keys: LooseKeys,
    /// Which of them two sessions have saved under.
    pub(super) ambiguous: [bool; 2],
}

impl Generation {
    pub(super) fn find_key(&self, kind: KeyKind) -> Option<&StateKey> {
        match kind.loose_place() {
            Some(place) => self.loose.as_ref().map(|loose| &loose.keys[place]),
            None => self.keys.get(kind),
        }
    }

    pub(super) fn is_ambiguous(&self, kind: KeyKind) -> bool {
        match kind.loose_place() {
            Some(place) => self.loose.as_ref().is_some_and(|it| it.ambiguous[place]),
            None => kind == KeyKind::Bare && self.ambiguous,
        }
    }

    /// The bytes that loose keys add.
    pub(super) const fn loose_bytes(&self) -> usize {
        match self.loose {
            Some(_) => retention::LOOSE_BYTES,
            None => 0,
        }
    }
}

/// The generation of a key, and which of its keys it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyPointer {
    pub(super) record: u32,
    /// The generation's number and three bits of kind.
    key: u32,
}

impl KeyPointer {
    /// Numbers of generations in one session.
    const NUMBERS: u32 = 1 << 29;

    pub(super) const fn new(record: u32, number: u32, kind: KeyKind) -> Self {
        Self {
            record,
            key: number << 3 | kind as u32,
        }
    }

    pub(super) const fn generation_number(self) -> u32 {
        self.key >> 3
    }

    pub(super) const fn key_kind(self) -> KeyKind {
        KeyKind::ALL[(self.key & 7) as usize % KeyKind::ALL.len()]
    }
}

impl SessionRecord {
    pub(super) fn new(saved: &StateToSave) -> Self {
        Self {
            tenant: saved.tenant,
            session: saved.session,
            saved_s: 0,
            used_s: 0,
            next: 0,
            commands: Box::default(),
            generations: Vec::new(),
        }
    }

    pub(super) fn find_generation(&self, number: u32) -> Option<&Generation> {
        let mut newest_first = self.generations.iter().rev();
        newest_first.find(|generation| generation.number == number)
    }

    /// The index of the generation that a retry with the same answer replaces.
    pub(super) fn find_retried(&self, saved: &StateToSave) -> Option<usize> {
        let mut generations = self.generations.iter();
        generations.position(|generation| generation.keys.exact == saved.keys.exact)
    }

    /// Adds a generation; returns its number, which is under [`KeyPointer::NUMBERS`].
    pub(super) fn append_generation(
        &mut self,
        saved: &StateToSave,
        ambiguous: bool,
        loose: Option<LooseRecord>,
    ) -> u32 {
        let number = self.next;
        self.next = (number + 1) % KeyPointer::NUMBERS;
        self.generations.reserve_exact(1);
        self.generations.push(Generation {
            number,
            opening: saved.opening as u32,
            keys: saved.keys,
            ambiguous,
            answer: saved.answer as u64,
            state: saved.state.as_ref().into(),
            loose: loose.map(Box::new),
        });
        number
    }

    pub(super) fn to_row(&self) -> Option<SessionRow> {
        let newest = self.generations.last()?;
        Some(SessionRow {
            tenant: self.tenant,
            session: self.session,
            saved_s: self.saved_s,
            state: Bytes::copy_from_slice(&newest.state),
            commands: Bytes::copy_from_slice(&self.commands),
        })
    }

    pub(super) fn find_superfluous(&self) -> Option<usize> {
        retention::find_superfluous(&self.generations, |generation| RetainedGeneration {
            opening: generation.opening.into(),
            bare: generation.keys.bare,
            bytes: retention::generation_size(generation.state.len()) + generation.loose_bytes(),
        })
    }
}
