//! What providers taught of their windows, by refusing or by cutting.
//!
//! One error proves little: servers misprint their window, gateways quote that of another provider.
//! So a number is believed only where it contradicts nothing that was answered, says less than was
//! claimed, and expires. Where none can be believed, a limit is inferred from what was refused, for a
//! shorter time, and raised by whatever is answered above it.
//!
//! Of a bounded number of models; what is known can be told to other replicas. No clock of its own.

use std::{
    num::NonZeroUsize,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use lru::LruCache;

use super::{Window, overflow::Overflow};

mod dated;
mod lesson;

pub use dated::{Dated, Lessons, Moment};

use lesson::Entry;

/// Models that are remembered.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not zero");

/// What is known of a model's window beyond what anybody claims; in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Prompt and answer together.
    pub window: Option<u32>,
    /// The largest prompt.
    pub input: Option<u32>,
}

/// A request that was refused as too long.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    pub overflow: Overflow,
    /// What was believed of the model when the request was planned.
    pub claimed: Window,
    /// Estimated tokens of the prompt as it was sent.
    pub expected: u32,
    /// Tokens of the answer that it asked for.
    pub answer: u32,
    /// The least that the next request keeps free for the answer: less than `answer` where that is lowered
    /// before the prompt is cut.
    pub reserve: u32,
}

impl Refused {
    /// The prompt as the provider counted it. Where this is far from `expected` the estimate was off,
    /// and has to be put right as well: limits are in the provider's tokens.
    pub fn counted(&self) -> Option<u32> {
        let overflow = self.overflow;
        let whole = overflow.requested;
        let counted = overflow
            .prompt_tokens
            .or_else(|| whole?.checked_sub(self.answer));
        counted.filter(|&tokens| tokens > 0)
    }
}

/// What a refusal taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// The provider named a window that can be believed.
    Window(u32),
    /// A largest prompt: named by the provider, or inferred from what it refused.
    Input(u32),
}

/// Windows learnt, in memory, of a bounded number of models.
#[derive(Debug)]
pub struct Learnt {
    /// In milliseconds.
    max_age: AtomicU64,
    models: Mutex<LruCache<Key, Entry>>,
}

/// Where a provider is, and a model. Not by its name alone: an answer that began under settings before
/// teaches nothing of whoever has the name now.
type Key = (Box<str>, Box<str>);

impl Learnt {
    /// `max_age`: how long a lesson is believed.
    pub fn new(max_age: Duration) -> Self {
        let learnt = Self {
            max_age: AtomicU64::default(),
            models: Mutex::new(LruCache::new(MAX_MODELS)),
        };
        learnt.believe_for(max_age);
        learnt
    }

    /// How long a lesson is believed from now on; those before keep the time that they were given.
    pub fn believe_for(&self, max_age: Duration) {
        let millis = u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX);
        self.max_age.store(millis, Relaxed);
    }

    /// Forgets what a provider taught that is no longer there.
    pub fn forget(&self, place: &str) {
        let mut models = self.models();
        let gone = models.iter().filter(|((of, _), _)| **of == *place);
        let gone: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
        for key in &gone {
            models.pop(key);
        }
    }

    /// A prompt of so many tokens, as reported, was answered.
    pub fn accepted(&self, place: &str, model: &str, prompt_tokens: u32, now: Instant) {
        let mut models = self.models();
        let entry = models.get_or_insert_mut(key(place, model), Entry::default);
        entry.accepted(prompt_tokens, self.max_age(), now);
    }

    /// A request was refused. What is known afterwards is tighter than what was sent: as the provider
    /// counted it where the error says so, else as was `expected`; but for prompts of a few hundred
    /// tokens, and where far more was answered before and the error names no number. An answer that fills the window by itself teaches nothing of the prompt.
    pub fn refused(&self, place: &str, model: &str, refused: &Refused, now: Instant) -> Lesson {
        let mut models = self.models();
        let entry = models.get_or_insert_mut(key(place, model), Entry::default);
        entry.refused(refused, self.max_age(), now)
    }

    /// The provider cuts prompts to so many tokens in silence.
    pub fn truncated(&self, place: &str, model: &str, tokens: u32, now: Instant) {
        let mut models = self.models();
        let entry = models.get_or_insert_mut(key(place, model), Entry::default);
        entry.truncated(tokens, self.max_age(), now);
    }

    pub fn known(&self, place: &str, model: &str, now: Instant) -> Known {
        let mut models = self.models();
        let entry = models.get(&key(place, model));
        entry.map_or_else(Known::default, |entry| entry.known(now))
    }

    fn max_age(&self) -> Duration {
        Duration::from_millis(self.max_age.load(Relaxed))
    }

    /// What is known of a model, to be told to others; `None` where nothing was ever learnt.
    pub fn lessons(&self, place: &str, model: &str, now: Moment) -> Option<Lessons> {
        let mut models = self.models();
        let entry = models.get(&key(place, model));
        entry.map(|entry| entry.dated(now))
    }

    /// Another replica wrote this, at `written_ms` by the wall clock.
    pub fn hear(
        &self,
        place: &str,
        model: &str,
        (theirs, written_ms): (Lessons, u64),
        now: Moment,
    ) {
        let mut models = self.models();
        let entry = models.get_or_insert_mut(key(place, model), Entry::default);
        let merged = entry.dated(now).merged(theirs, written_ms);
        *entry = Entry::undated(merged, self.max_age(), now);
    }

    fn models(&self) -> MutexGuard<'_, LruCache<Key, Entry>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(place: &str, model: &str) -> Key {
    (place.into(), model.into())
}

#[cfg(test)]
mod tests;
