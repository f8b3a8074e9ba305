//! One session in memory: its newest generations, each with its keys and its state.

use bytes::Bytes;

use super::{
    super::{Key, Row, Saved},
    cost,
};
use crate::session::{SessionId, Tenant};

/// Ancestors kept of one conversation, if they fit in [`KEPT_BYTES`]…
pub(super) const MAX_KEPT: usize = 16;
/// …and these few in any case.
pub(super) const MIN_KEPT: usize = 8;
/// Answers kept of those given to the same request: regenerating must not push out what the
/// request itself goes on from.
pub(super) const MAX_SIBLINGS: usize = 4;
/// Lets an idle session stay under 4 KB all told.
pub(super) const KEPT_BYTES: usize = 3_700;
/// Conversations kept of one session, where a hint groups several.
pub(super) const MAX_CONVERSATIONS: usize = 32;

pub(super) struct Record {
    pub(super) tenant: Tenant,
    pub(super) session: SessionId,
    pub(super) saved_s: u64,
    /// Saved to, or found.
    pub(super) used_s: u64,
    next: u32,
    pub(super) orders: Box<[u8]>,
    /// Oldest first; never with room to spare, since most sessions are idle.
    pub(super) generations: Vec<Generation>,
}

pub(super) struct Generation {
    /// Unlike any other's of the record.
    pub(super) number: u32,
    /// Part of the digest: enough to tell the conversations of one session apart.
    opening: u32,
    exact: Key,
    gap: Option<Key>,
    bare: Key,
    /// The bare key saw two answers: remembered so that no third makes it good again.
    pub(super) ambiguous: bool,
    /// Half the answer's digest, enough to tell two answers to the same request apart.
    pub(super) answer: u64,
    pub(super) state: Box<[u8]>,
}

/// Which of a generation's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exact,
    Gap,
    Bare,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Exact, Self::Gap, Self::Bare];
}

impl Generation {
    pub(super) const fn key(&self, kind: Kind) -> Option<Key> {
        match kind {
            Kind::Exact => Some(self.exact),
            Kind::Gap => self.gap,
            Kind::Bare => Some(self.bare),
        }
    }
}

impl Record {
    pub(super) fn new(saved: &Saved) -> Self {
        Self {
            tenant: saved.tenant,
            session: saved.session,
            saved_s: 0,
            used_s: 0,
            next: 0,
            orders: Box::default(),
            generations: Vec::new(),
        }
    }

    pub(super) fn generation(&self, number: u32) -> Option<&Generation> {
        self.generations
            .iter()
            .rev()
            .find(|generation| generation.number == number)
    }

    /// The place of the generation that a retry with the same answer replaces.
    pub(super) fn same(&self, saved: &Saved) -> Option<usize> {
        self.generations
            .iter()
            .position(|generation| generation.exact == saved.keys.exact)
    }

    /// Adds a generation; gives back its number, which is under `numbers`.
    pub(super) fn append(&mut self, saved: &Saved, ambiguous: bool, numbers: u32) -> u32 {
        let number = self.next;
        self.next = (number + 1) % numbers;
        self.generations.reserve_exact(1);
        self.generations.push(Generation {
            number,
            opening: saved.opening as u32,
            exact: saved.keys.exact,
            gap: saved.keys.gap,
            bare: saved.keys.bare,
            ambiguous,
            answer: saved.answer as u64,
            state: saved.state.as_ref().into(),
        });
        number
    }

    pub(super) fn row(&self) -> Option<Row> {
        let newest = self.generations.last()?;
        Some(Row {
            tenant: self.tenant,
            session: self.session,
            saved_s: self.saved_s,
            state: Bytes::copy_from_slice(&newest.state),
            orders: Bytes::copy_from_slice(&self.orders),
        })
    }

    /// The place of a generation to drop, if one of the bounds is passed: by the conversation
    /// just saved to, or by the number of conversations.
    pub(super) fn superfluous(&self) -> Option<usize> {
        let newest = self.generations.last()?;
        let current = newest.opening;
        let siblings = self.generations.iter().enumerate();
        let mut siblings = siblings.filter(|(_, other)| other.bare == newest.bare);
        if let Some((oldest, _)) = siblings.next()
            && siblings.count() >= MAX_SIBLINGS
        {
            return Some(oldest);
        }
        let (mut kept, mut bytes) = (0, 0);
        let mut openings = Vec::with_capacity(MAX_CONVERSATIONS);
        for (at, generation) in self.generations.iter().enumerate().rev() {
            if generation.opening == current {
                kept += 1;
                bytes += cost::generation(generation.state.len());
                if kept > MAX_KEPT || (kept > MIN_KEPT && bytes > KEPT_BYTES) {
                    return Some(at);
                }
            }
            if !openings.contains(&generation.opening) {
                if openings.len() == MAX_CONVERSATIONS {
                    return Some(at);
                }
                openings.push(generation.opening);
            }
        }
        None
    }
}
