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

mod dated_lessons;
mod lesson;

pub use dated_lessons::{DatedTokens, Lessons, wall_ms};

/// Models that are remembered.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not zero");

/// A request that was refused as too long.
#[derive(Clone, Copy, Debug)]
pub struct RefusedPrompt {
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

impl RefusedPrompt {
    /// The prompt as the provider counted it. Where this is far from `expected` the estimate was off,
    /// and has to be put right as well: limits are in the provider's tokens.
    pub fn count_prompt_tokens(&self) -> Option<u32> {
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
pub struct LearntWindows {
    /// In milliseconds.
    max_age: AtomicU64,
    models: Mutex<LruCache<LessonKey, Lessons>>,
}

/// Where a provider is, and a model. Not by its name alone: an answer that began under settings before
/// teaches nothing of whoever has the name now.
type LessonKey = (Box<str>, Box<str>);

impl LearntWindows {
    /// `max_age`: how long a lesson is believed.
    pub fn new(max_age: Duration) -> Self {
        let learnt = Self {
            max_age: AtomicU64::default(),
            models: Mutex::new(LruCache::new(MAX_MODELS)),
        };
        learnt.set_max_age(max_age);
        learnt
    }

    /// How long a lesson is believed from now on; those before keep the time that they were given.
    pub fn set_max_age(&self, max_age: Duration) {
        self.max_age
            .store(dated_lessons::to_millis(max_age), Relaxed);
    }

    /// Forgets what a provider taught that is no longer there.
    pub fn forget_endpoint(&self, place: &str) {
        let mut models = self.lock_models();
        let gone = models.iter().filter(|((of, _), _)| **of == *place);
        let gone: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
        for key in &gone {
            models.pop(key);
        }
    }

    /// A prompt of so many tokens, as reported, was answered.
    pub fn record_accepted_prompt(
        &self,
        place: &str,
        model: &str,
        prompt_tokens: u32,
        now: SystemTime,
    ) {
        self.update_lessons(place, model, |lessons, max_age| {
            lessons.record_accepted_prompt(prompt_tokens, max_age, now);
        });
    }

    /// A request was refused. What is known afterwards is tighter than what was sent: as the provider
    /// counted it where the error says so, else as was `expected`; but for prompts of a few hundred
    /// tokens, and where far more was answered before and the error names no number. An answer that fills the window by itself teaches nothing of the prompt.
    pub fn record_refused_prompt(
        &self,
        place: &str,
        model: &str,
        refused: &RefusedPrompt,
        now: SystemTime,
    ) -> Lesson {
        self.update_lessons(place, model, |lessons, max_age| {
            lessons.record_refused_prompt(refused, max_age, now)
        })
    }

    /// The provider cuts prompts to so many tokens in silence.
    pub fn record_truncation(&self, place: &str, model: &str, tokens: u32, now: SystemTime) {
        self.update_lessons(place, model, |lessons, max_age| {
            lessons.record_truncation(tokens, max_age, now);
        });
    }

    /// Another replica wrote this, at `written_ms` by the wall clock. What is known with it.
    pub fn merge_lessons(
        &self,
        place: &str,
        model: &str,
        theirs: Lessons,
        written_ms: u64,
        now: SystemTime,
    ) -> Lessons {
        self.update_lessons(place, model, |lessons, max_age| {
            let ours = lessons.keep_believed(Duration::MAX, now);
            *lessons = ours
                .merge_with(theirs, written_ms)
                .keep_believed(max_age, now);
            *lessons
        })
    }

    /// What is known of a model's window beyond what anybody claims.
    pub fn find_bounds(&self, place: &str, model: &str, now: SystemTime) -> Bounds {
        let lessons = self.export_lessons(place, model, now).unwrap_or_default();
        lessons.bounds_at(now)
    }

    /// What is known of a model, to be told to others; `None` where nothing was ever learnt.
    pub fn export_lessons(&self, place: &str, model: &str, now: SystemTime) -> Option<Lessons> {
        let mut models = self.lock_models();
        let lessons = models.get(&make_key(place, model));
        lessons.map(|lessons| lessons.keep_believed(Duration::MAX, now))
    }

    /// Changes what is known of a model, given how long a lesson is believed.
    fn update_lessons<T>(
        &self,
        place: &str,
        model: &str,
        change: impl FnOnce(&mut Lessons, Duration) -> T,
    ) -> T {
        let max_age = Duration::from_millis(self.max_age.load(Relaxed));
        let mut models = self.lock_models();
        change(
            models.get_or_insert_mut(make_key(place, model), Lessons::default),
            max_age,
        )
    }

    fn lock_models(&self) -> MutexGuard<'_, LruCache<LessonKey, Lessons>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_key(place: &str, model: &str) -> LessonKey {
    (place.into(), model.into())
}

#[cfg(test)]
mod tests;
