//! Random ids of sessions and generations, and nonces.

use std::sync::atomic::{AtomicU64, Ordering};

/// Ids are output of a keyed digest over a counter: no id can be derived from another one, and making an id cannot
/// fail.
pub(super) struct IdGenerator {
    seed: [u8; 32],
    count: AtomicU64,
}

impl IdGenerator {
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let count = AtomicU64::new(0);
        Ok(Self { seed, count })
    }

    /// The next `N` random bytes.
    pub(super) fn next_bytes<const N: usize>(&self) -> [u8; N] {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; N];
        blake3::Hasher::new_keyed(&self.seed)
            .update(&number.to_le_bytes())
            .finalize_xof()
            .fill(&mut id);
        id
    }
}
