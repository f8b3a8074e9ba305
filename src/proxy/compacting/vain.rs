//! Summaries that nobody came back for.
//!
//! A summary is taken over by what goes on from the generation that asked for it. A client that
//! rewrites its history with every request, or asks for many answers to the same one, never comes
//! back; each of its requests would have a summary made, and pay for it. The state of a branch
//! cannot tell of the others, so it is counted here.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use lru::LruCache;

use crate::session::{Account, Inherited, SessionId};

/// Summaries in a row that nobody came back for, after which none is begun.
const MOST: u32 = 8;
/// For so long since the last of them.
const PAUSE: Duration = Duration::from_secs(600);
/// Of whom they are counted.
const MAX_COUNTED: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");

/// Who may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::proxy) enum Whose {
    /// A conversation that is followed.
    Session(SessionId),
    /// Anyone's conversation of which nothing is known from before.
    Account(Account),
}

impl Whose {
    pub(in crate::proxy) fn of(inherited: &Inherited) -> Self {
        match inherited.state {
            Some(_) => Self::Session(inherited.session),
            None => Self::account(inherited),
        }
    }

    pub(in crate::proxy) fn account(inherited: &Inherited) -> Self {
        Self::Account(inherited.lineage.tenant().account())
    }
}

/// How many there are of each, and since when.
#[derive(Debug)]
pub(super) struct Vain(LruCache<Whose, (u32, Instant)>);

impl Default for Vain {
    fn default() -> Self {
        Self(LruCache::new(MAX_COUNTED))
    }
}

impl Vain {
    pub(super) fn too_many(&mut self, whose: Whose, now: Instant) -> bool {
        let counted = self.0.get(&whose);
        counted.is_some_and(|&(count, last)| count >= MOST && now < last + PAUSE)
    }

    pub(super) fn begun(&mut self, whose: Whose, now: Instant) {
        let counted = self.0.get_or_insert_mut(whose, || (0, now));
        let before = if now < counted.1 + PAUSE {
            counted.0
        } else {
            0
        };
        *counted = (before.saturating_add(1), now);
    }

    pub(super) fn claimed(&mut self, whose: Whose) {
        self.0.pop(&whose);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_comes_back_for_ends_for_a_while() {
        let mut vain = Vain::default();
        let now = Instant::now();
        let [one, other] = [1, 2].map(|of| Whose::Session(SessionId::from_bytes([of; 16])));
        for _ in 0..MOST {
            assert!(!vain.too_many(one, now));
            vain.begun(one, now);
        }
        assert!(vain.too_many(one, now) && !vain.too_many(other, now));
        assert!(vain.too_many(one, now + PAUSE / 2));
        assert!(!vain.too_many(one, now + PAUSE));
        vain.begun(one, now + PAUSE);
        assert!(!vain.too_many(one, now + PAUSE));
        for _ in 0..MOST {
            vain.begun(other, now);
        }
        vain.claimed(other);
        assert!(!vain.too_many(other, now));
    }
}
