//! Rules for the generations that a session keeps, as pure functions over lists, oldest first.
//!
//! A session keeps a few newest ancestors of each of its conversations. All stores apply these rules, so they keep
//! the same generations.

use super::StateKey;

/// Ancestors kept of one conversation if they fit in [`KEPT_BYTES`].
pub(super) const MAX_KEPT: usize = 16;
/// Ancestors kept of one conversation whatever their size.
pub(super) const MIN_KEPT: usize = 8;
/// Answers kept of the same request: regenerating must not evict the state that the request continues.
pub(super) const MAX_SIBLINGS: usize = 4;
/// Keeps an idle session of nine small states under 5 KB, of which what tells its edited history from others takes 1.2 KB.
pub(super) const KEPT_BYTES: usize = 5_000;
/// Conversations kept of one session, where a hint groups several.
pub(super) const MAX_CONVERSATIONS: usize = 32;
/// Most bytes of one session. The newest generation is kept whatever its size.
pub(super) const SESSION_BYTES: usize = 4 << 20;

/// The size of a generation without its state, keys included; about the same in every store.
const OVERHEAD_BYTES: usize = 168;

/// The facts of a generation that these rules need.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetainedGeneration {
    /// Distinguishes the conversations of one session.
    pub(super) opening: u64,
    pub(super) bare: StateKey,
    /// As [`generation_size`] counts.
    pub(super) bytes: usize,
}

/// What two loose keys add to it.
pub(super) const LOOSE_BYTES: usize = 64;

pub(super) const fn generation_size(state_bytes: usize) -> usize {
    OVERHEAD_BYTES + state_bytes
}

/// The index of a generation to drop, if a bound is passed: by the conversation saved last, by the number of
/// conversations, or by all of them together. Never the newest.
///
/// Call it again until the result is `None`.
pub(super) fn find_superfluous<T>(
    generations: &[T],
    kept: impl Fn(&T) -> RetainedGeneration,
) -> Option<usize> {
    let newest = kept(generations.last()?);
    let siblings = generations.iter().enumerate();
    let mut siblings = siblings.filter(|(_, other)| kept(other).bare == newest.bare);
    if let Some((oldest, _)) = siblings.next()
        && siblings.count() >= MAX_SIBLINGS
    {
        return Some(oldest);
    }
    let (mut count, mut bytes, mut all) = (0, 0, 0);
    let mut openings = Vec::with_capacity(MAX_CONVERSATIONS);
    for (at, generation) in generations.iter().enumerate().rev() {
        let generation = kept(generation);
        if generation.opening == newest.opening {
            count += 1;
            bytes += generation.bytes;
            if count > MAX_KEPT || (count > MIN_KEPT && bytes > KEPT_BYTES) {
                return Some(at);
            }
        }
        if !openings.contains(&generation.opening) {
            if openings.len() == MAX_CONVERSATIONS {
                return Some(at);
            }
            openings.push(generation.opening);
        }
        all += generation.bytes;
    }
    (all > SESSION_BYTES && generations.len() > 1).then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generations kept of those saved, each as conversation, request and bytes.
    fn left(saved: &[(u64, u8, usize)]) -> Vec<(u64, u8, usize)> {
        let mut left = Vec::new();
        for generation in saved {
            left.push(*generation);
            let kept = |&(opening, bare, bytes): &(u64, u8, usize)| RetainedGeneration {
                opening,
                bare: StateKey::from_bytes([bare; 16]),
                bytes,
            };
            while let Some(at) = find_superfluous(&left, kept) {
                left.remove(at);
            }
            assert_eq!(left.last(), Some(generation), "the newest stays");
        }
        left
    }

    #[test]
    fn ancestors_are_bounded_by_count_and_by_bytes() {
        let of = |count: u8, bytes| -> Vec<_> { (0..count).map(|n| (1, n, bytes)).collect() };
        assert_eq!(left(&of(40, 100)), of(40, 100)[24..]);
        assert_eq!(left(&of(40, 500)), of(40, 500)[30..]);
        assert_eq!(left(&of(40, 100_000)), of(40, 100_000)[32..]);
    }

    #[test]
    fn siblings_and_conversations_are_bounded() {
        let same: Vec<_> = (0..9).map(|_| (1, 7, 1)).collect();
        assert_eq!(left(&same).len(), MAX_SIBLINGS);
        let many: Vec<_> = (0..99_u8).map(|n| (n.into(), n, 1)).collect();
        assert_eq!(left(&many), many[99 - MAX_CONVERSATIONS..]);
    }

    #[test]
    fn a_session_is_bounded_over_all_conversations() {
        let many: Vec<_> = (0..200_u8)
            .map(|n| (u64::from(n) / 8, n, 128 << 10))
            .collect();
        assert_eq!(left(&many), many[200 - 32..]);
        let one = [(1, 1, SESSION_BYTES + 1)];
        assert_eq!(left(&one), one);
        let two = [(1, 1, 1), (1, 2, SESSION_BYTES)];
        assert_eq!(left(&two), two[1..]);
    }
}
