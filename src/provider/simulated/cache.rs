//! The prefix cache of the simulated provider: which blocks of a prompt it has read before.
//!
//! Bounded, least recently used out first. Blocks are keyed by the hash of everything before
//! them, so a byte changed early loses all that follows, as at a real provider.

use std::{
    num::NonZeroUsize,
    sync::{LazyLock, Mutex, PoisonError},
};

use lru::LruCache;

use super::prompt::{BLOCK, Prompt};

/// Prompts below this many cached tokens are billed in full.
const LEAST: u32 = 1024;
/// Eight million tokens; a few megabytes of memory.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

static CACHE: LazyLock<Mutex<LruCache<u64, ()>>> =
    LazyLock::new(|| Mutex::new(LruCache::new(CAPACITY)));

/// How many tokens of this prompt were cached for this owner; all of it is from now on.
pub(super) fn read(prompt: &Prompt, owner: u64) -> u32 {
    // A panic elsewhere leaves a cache of hashes in order.
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    read_from(&mut cache, prompt, owner)
}

fn read_from(cache: &mut LruCache<u64, ()>, prompt: &Prompt, owner: u64) -> u32 {
    // The last token is always computed, so a block that ends with the prompt is none.
    let whole = (prompt.tokens().saturating_sub(1) / BLOCK) as usize;
    let keys = prompt.blocks.iter().take(whole);
    let keys: Vec<u64> = keys.map(|block| block ^ owner).collect();
    let hits = keys.iter().take_while(|key| cache.contains(key)).count();
    // From the end, so that what all continuations share is dropped last.
    for key in keys.into_iter().rev() {
        cache.put(key, ());
    }
    let cached = u32::try_from(hits)
        .unwrap_or(u32::MAX)
        .saturating_mul(BLOCK);
    if cached < LEAST { 0 } else { cached }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn conversation(texts: &[&str]) -> Vec<Value> {
        let message = |text: &&str| json!({"role": "user", "content": text.repeat(800)});
        texts.iter().map(message).collect()
    }

    fn prompt(texts: &[&str]) -> Prompt {
        Prompt::of(7, &[], &conversation(texts))
    }

    #[test]
    fn a_grown_conversation_hits_and_a_changed_start_does_not() {
        let mut cache = LruCache::new(CAPACITY);
        let first = prompt(&["alpha beta "]);
        assert_eq!(read_from(&mut cache, &first, 1), 0);
        let again = read_from(&mut cache, &first, 1);
        assert!(again >= LEAST && again < first.tokens() && again.is_multiple_of(BLOCK));
        let grown = prompt(&["alpha beta ", "gamma "]);
        let hit = read_from(&mut cache, &grown, 1);
        assert!(hit >= again - BLOCK && hit <= first.tokens());
        assert_eq!(
            read_from(&mut cache, &prompt(&["Alpha beta ", "gamma "]), 1),
            0
        );
        assert_eq!(read_from(&mut cache, &grown, 2), 0, "another owner");
    }

    #[test]
    fn short_prompts_are_never_cached_and_the_cache_is_bounded() {
        let mut cache = LruCache::new(NonZeroUsize::new(4).unwrap());
        let short = Prompt::of(7, &[], &[json!({"role": "user", "content": "hi"})]);
        for _ in 0..2 {
            assert_eq!(read_from(&mut cache, &short, 1), 0);
        }
        for _ in 0..2 {
            // Only four blocks are remembered: fewer than are billed as cached.
            assert_eq!(read_from(&mut cache, &prompt(&["alpha beta "]), 1), 0);
        }
        assert_eq!(cache.len(), 4);
    }
}
