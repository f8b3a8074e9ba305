//! Windows learnt from the refusals and silent truncations of providers.
//!
//! One error proves little: servers misprint their window, gateways quote that of another provider.
//! So a number is believed only while it contradicts no accepted prompt and is below the claimed
//! window, and it expires. Without such a number a limit is inferred from the refused prompt: it expires
//! sooner, and an accepted prompt above it raises it.
//!
//! The number of models is bounded. Callers pass the time in.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;

use lru::LruCache;

use super::{Bounds, Window, overflow::Overflow};

mod dated_lessons;
mod lesson;

pub use dated_lessons::{DatedTokens, Lessons};

/// Models that are remembered.
const MAX_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("it is not zero");

/// A request that was refused as too long.
#[derive(Clone, Copy, Debug)]
pub struct RefusedPrompt {
    pub overflow: Overflow,
    /// The window for which the request was planned.
    pub claimed: Window,
    /// Estimated tokens of the prompt as it was sent.
    pub expected: u32,
    /// Tokens of the answer that it asked for.
    pub answer: u32,
    /// The least answer tokens of the next request: less than `answer` where that is lowered before the
    /// prompt is cut.
    pub reserve: u32,
}

impl RefusedPrompt {
    /// The prompt as the provider counted it. Limits are in the provider's tokens, so an estimate far
    /// from this count is corrected too.
    pub fn count_prompt_tokens(&self) -> Option<u32> {
        let requested = self.overflow.requested;
        let rest = requested.and_then(|requested| requested.checked_sub(self.answer));
        let counted = self.overflow.prompt_tokens.or(rest);
        counted.filter(|&tokens| tokens > 0)
    }
}

/// The result of a refusal, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// The provider named a believable window.
    Window(u32),
    /// A largest prompt: named by the provider, or inferred.
    Input(u32),
}

#[derive(Debug)]
pub struct LearntWindows {
    /// In milliseconds.
    max_age: AtomicU64,
    models: Mutex<LruCache<LessonKey, Lessons>>,
}

/// A provider's endpoint, and a model.
type LessonKey = (Box<str>, Box<str>);

impl LearntWindows {
    /// `max_age`: how long a lesson is believed.
    pub fn new(max_age: Duration) -> Self {
        Self {
            max_age: AtomicU64::new(dated_lessons::to_millis(max_age)),
            models: Mutex::new(LruCache::new(MAX_MODELS)),
        }
    }

    /// Changes how long new lessons are believed; earlier ones keep their age.
    pub fn set_max_age(&self, max_age: Duration) {
        let millis = dated_lessons::to_millis(max_age);
        self.max_age.store(millis, Relaxed);
    }

    /// Forgets the lessons of a provider that is gone.
    pub fn forget_endpoint(&self, endpoint: &str) {
        let mut models = self.models.lock();
        let keys = models.iter().map(|(key, _)| key);
        let gone: Vec<_> = keys.filter(|key| *key.0 == *endpoint).cloned().collect();
        for key in &gone {
            models.pop(key);
        }
    }

    /// A prompt with this reported number of tokens was answered.
    pub fn record_accepted_prompt(
        &self,
        endpoint: &str,
        model: &str,
        prompt_tokens: u32,
        now: SystemTime,
    ) {
        self.update_lessons(endpoint, model, |lessons, max_age| {
            lessons.record_accepted_prompt(prompt_tokens, max_age, now);
        });
    }

    /// Afterwards the known limits are below the refused prompt, in the provider's count, else as
    /// `expected`. Exceptions: prompts of a few hundred tokens, an error without a number far below an
    /// accepted prompt, and an answer that fills the window by itself.
    pub fn record_refused_prompt(
        &self,
        endpoint: &str,
        model: &str,
        refused: &RefusedPrompt,
        now: SystemTime,
    ) -> Lesson {
        self.update_lessons(endpoint, model, |lessons, max_age| {
            lessons.record_refused_prompt(refused, max_age, now)
        })
    }

    /// The provider silently cuts prompts to this number of tokens.
    pub fn record_truncation(&self, endpoint: &str, model: &str, tokens: u32, now: SystemTime) {
        self.update_lessons(endpoint, model, |lessons, max_age| {
            lessons.record_truncation(tokens, max_age, now);
        });
    }

    /// Merges the lessons that another replica wrote at `written_ms` by the wall clock.
    pub fn merge_lessons(
        &self,
        endpoint: &str,
        model: &str,
        remote: Lessons,
        written_ms: u64,
        now: SystemTime,
    ) -> Lessons {
        self.update_lessons(endpoint, model, |lessons, max_age| {
            let local = lessons.keep_believed(Duration::MAX, now);
            let merged = local.merge_with(remote, written_ms);
            *lessons = merged.keep_believed(max_age, now);
            *lessons
        })
    }

    /// The learnt bounds of a model's window.
    pub fn find_bounds(&self, endpoint: &str, model: &str, now: SystemTime) -> Bounds {
        let lessons = self.export_lessons(endpoint, model, now);
        lessons.unwrap_or_default().bounds_at(now)
    }

    /// The lessons that are believed now; `None` where nothing was ever learnt.
    pub fn export_lessons(&self, endpoint: &str, model: &str, now: SystemTime) -> Option<Lessons> {
        let key: LessonKey = (endpoint.into(), model.into());
        let mut models = self.models.lock();
        let lessons = models.get(&key);
        lessons.map(|lessons| lessons.keep_believed(Duration::MAX, now))
    }

    /// Takes back what was learnt since `before` was exported.
    pub fn restore_lessons(&self, endpoint: &str, model: &str, before: Option<Lessons>) {
        let key: LessonKey = (endpoint.into(), model.into());
        let mut models = self.models.lock();
        match before {
            Some(before) => {
                models.put(key, before);
            }
            None => {
                models.pop(&key);
            }
        }
    }

    /// `change` gets the age for new lessons.
    fn update_lessons<T>(
        &self,
        endpoint: &str,
        model: &str,
        change: impl FnOnce(&mut Lessons, Duration) -> T,
    ) -> T {
        let max_age = Duration::from_millis(self.max_age.load(Relaxed));
        let (mut models, key) = (self.models.lock(), (endpoint.into(), model.into()));
        change(models.get_or_insert_mut(key, Lessons::default), max_age)
    }
}

#[cfg(test)]
mod tests;
