//! Choices that look free and are not: a small generator seeded by the request.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The same seed always throws the same numbers, on every machine.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        xxh3_64_with_seed(&self.0.to_le_bytes(), 0x5157)
    }

    /// Below `sides`, which is taken as one where it is zero.
    pub(super) fn below(&mut self, sides: usize) -> usize {
        (self.next() % sides.max(1) as u64) as usize
    }

    /// True in `percent` of a hundred throws.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them; `None` only of nothing.
    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// An id of a kind, as `call_…`: 24 characters from the generator.
    pub(super) fn id(&mut self, prefix: &str) -> String {
        const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let letters = (0..24).map(|_| char::from(LETTERS[self.below(LETTERS.len())]));
        prefix.chars().chain(letters).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same() {
        let (mut a, mut b) = (Dice::new(5), Dice::new(5));
        assert_eq!(a.id("call_"), b.id("call_"));
        assert_ne!(a.id("call_"), Dice::new(6).id("call_"));
        assert_eq!(a.id("call_").len(), 29);
        assert!(a.pick::<u8>(&[]).is_none());
        assert!((0..1000).all(|_| a.below(3) < 3));
        let hits = (0..1000).filter(|_| a.chance(30)).count();
        assert!((200..400).contains(&hits));
    }
}
