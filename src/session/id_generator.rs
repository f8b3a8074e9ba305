//! Random names, of sessions and of generations, and what else must never come twice.

use std::sync::atomic::{AtomicU64, Ordering};

/// The output of a keyed digest over a counter, so that no name tells of another and making one
/// cannot fail.
pub(super) struct IdGenerator {
    seed: [u8; 32],
    made: AtomicU64,
}

impl IdGenerator {
    /// # Errors
    /// Where the system gives no random bits.
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        Ok(Self {
            seed,
            made: AtomicU64::new(0),
        })
    }

    /// So many bytes that never came before.
    pub(super) fn next_bytes<const N: usize>(&self) -> [u8; N] {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; N];
        blake3::Hasher::new_keyed(&self.seed)
            .update(&number.to_le_bytes())
            .finalize_xof()
            .fill(&mut id);
        id
    }
}
