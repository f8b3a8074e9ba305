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
    time::{Duration, SystemTime},
};

use lru::LruCache;

use super::{Bounds, Window, overflow::Overflow};

mod dated;
mod lesson;

pub use dated::{Dated, Lessons, wall_ms};

/// Models that are remembered.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not zero");

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
        let whole = self.overflow.requested;
        let beside = whole.and_then(|whole| whole.checked_sub(self.answer));
        let counted = self.overflow.prompt_tokens.or(beside);
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
    models: Mutex<LruCache<Key, Lessons>>,
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
        self.max_age.store(dated::millis(max_age), Relaxed);
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
    pub fn accepted(&self, place: &str, model: &str, prompt_tokens: u32, now: SystemTime) {
        self.update(place, model, |lessons, max_age| {
            lessons.accepted(prompt_tokens, max_age, now);
        });
    }

    /// A request was refused. What is known afterwards is tighter than what was sent: as the provider
    /// counted it where the error says so, else as was `expected`; but for prompts of a few hundred
    /// tokens, and where far more was answered before and the error names no number. An answer that fills the window by itself teaches nothing of the prompt.
    pub fn refused(&self, place: &str, model: &str, refused: &Refused, now: SystemTime) -> Lesson {
        self.update(place, model, |lessons, max_age| {
            lessons.refused(refused, max_age, now)
        })
    }

    /// The provider cuts prompts to so many tokens in silence.
    pub fn truncated(&self, place: &str, model: &str, tokens: u32, now: SystemTime) {
        self.update(place, model, |lessons, max_age| {
            lessons.truncated(tokens, max_age, now);
        });
    }

    /// Another replica wrote this, at `written_ms` by the wall clock. What is known with it.
    pub fn hear(
        &self,
        place: &str,
        model: &str,
        theirs: Lessons,
        written_ms: u64,
        now: SystemTime,
    ) -> Lessons {
        self.update(place, model, |lessons, max_age| {
            let ours = lessons.bounded(Duration::MAX, now);
            *lessons = ours.merged(theirs, written_ms).bounded(max_age, now);
            *lessons
        })
    }

    /// What is known of a model's window beyond what anybody claims.
    pub fn known(&self, place: &str, model: &str, now: SystemTime) -> Bounds {
        let lessons = self.lessons(place, model, now).unwrap_or_default();
        lessons.known(now)
    }

    /// What is known of a model, to be told to others; `None` where nothing was ever learnt.
    pub fn lessons(&self, place: &str, model: &str, now: SystemTime) -> Option<Lessons> {
        let mut models = self.models();
        let lessons = models.get(&key(place, model));
        lessons.map(|lessons| lessons.bounded(Duration::MAX, now))
    }

    /// Changes what is known of a model, given how long a lesson is believed.
    fn update<T>(
        &self,
        place: &str,
        model: &str,
        change: impl FnOnce(&mut Lessons, Duration) -> T,
    ) -> T {
        let max_age = Duration::from_millis(self.max_age.load(Relaxed));
        let mut models = self.models();
        change(
            models.get_or_insert_mut(key(place, model), Lessons::default),
            max_age,
        )
    }

    fn models(&self) -> MutexGuard<'_, LruCache<Key, Lessons>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(place: &str, model: &str) -> Key {
    (place.into(), model.into())
}

#[cfg(test)]
mod tests;
