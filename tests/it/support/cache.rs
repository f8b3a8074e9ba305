//! A provider's prompt cache: how much of a request it has read before.

use super::count::TokenCounter;

/// OpenAI caches prompts from this many tokens on,
const LEAST: u64 = 1_024;
/// in blocks of this many.
const BLOCK: u64 = 128;

/// Remembers the previous request of a session.
pub(crate) struct PromptCache<'a> {
    counter: &'a TokenCounter,
    previous: Vec<u8>,
}

/// How many tokens of a request the cache held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheHit {
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
    /// Whether this request does not begin with the previous one.
    pub(crate) changed: bool,
}

impl<'a> PromptCache<'a> {
    pub(crate) const fn new(counter: &'a TokenCounter) -> Self {
        Self {
            counter,
            previous: Vec::new(),
        }
    }

    /// The longest prefix in common with the previous request, in whole blocks.
    pub(crate) fn request(&mut self, body: &[u8]) -> CacheHit {
        let now = self.counter.pieces(body);
        let before = self.counter.pieces(&self.previous);
        let mut common = 0;
        let mut same = 0;
        for (one, other) in now.iter().zip(&before) {
            if one.0 == other.0 {
                common += one.1;
                same += 1;
                continue;
            }
            let bytes = one
                .0
                .iter()
                .zip(other.0)
                .take_while(|(a, b)| a == b)
                .count();
            common += one.1 * bytes as u64 / one.0.len().max(1) as u64;
            break;
        }
        let hit = CacheHit {
            prompt: now.iter().map(|piece| piece.1).sum(),
            cached: if common < LEAST {
                0
            } else {
                common / BLOCK * BLOCK
            },
            changed: same < before.len(),
        };
        self.previous = body.to_vec();
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::{PromptCache, TokenCounter};

    #[test]
    fn only_the_common_prefix_is_cached() {
        let counter = TokenCounter::o200k();
        let mut cache = PromptCache::new(&counter);
        let long = "word ".repeat(3_000);
        let body = |texts: &[&str]| {
            let message = |text: &&str| format!(r#"{{"role":"user","content":"{text}"}}"#);
            let messages: Vec<String> = texts.iter().map(message).collect();
            format!(r#"{{"messages":[{}]}}"#, messages.join(",")).into_bytes()
        };
        let first = cache.request(&body(&[&long, "one"]));
        assert_eq!((first.cached, first.changed), (0, false));
        let grown = cache.request(&body(&[&long, "one", "two"]));
        assert!(grown.cached > 2_900 && grown.cached.is_multiple_of(128) && !grown.changed);
        let cut = cache.request(&body(&[&long, "two"]));
        assert!(cut.cached > 2_900 && cut.changed);
        let other = cache.request(&body(&["else", &long, "two"]));
        assert_eq!((other.cached, other.changed), (0, true));
    }
}
