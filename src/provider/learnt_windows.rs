//! Windows learnt from the refusals and silent truncations of providers.
//!
//! One error proves little: servers misprint their window, gateways quote that of another provider.
//! So a number is believed only while it contradicts no accepted prompt and is below the claimed
//! window, and it expires. Without such a number a limit is inferred from the refused prompt: it expires
//! sooner, and an accepted prompt above it raises it.
//!
//! One name of a model means several windows: by account, by beta header, and by the host to which a router sends a
//! request. So a lesson is kept for the account and the betas of the request that was refused, and a refusal teaches its
//! session alone if the account was answered above it within the hour, or if the provider has several hosts.
//!
//! The number of lessons is bounded, for each account and in all. Callers pass the time in.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;

use lru::LruCache;
use serde::{Deserialize, Serialize};

use super::{Bounds, Window, overflow::Overflow};
use crate::store::{Account, SessionId};

mod dated_lessons;
mod lesson;

use dated_lessons::ACCEPTED_MAX_AGE;
pub use dated_lessons::{DatedTokens, Lessons};

/// Lessons that are remembered. Beyond this, the oldest of the account with the most lessons is forgotten.
const MAX_LESSONS: usize = 4_096;
/// The same of one account.
const MAX_OF_ACCOUNT: usize = 1_024;

/// Whom a provider refuses, beside its endpoint and its model.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct LessonScope {
    /// Whose credential the provider gets. `None`: no client's.
    pub account: Option<Account>,
    /// The betas of the request that change windows, as `read_window_betas` reads them.
    pub betas: u8,
    /// `None`: all sessions of the account.
    #[serde(skip)]
    pub session: Option<SessionId>,
}

/// What a lesson is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LessonKey {
    /// The provider's endpoint.
    pub endpoint: Box<str>,
    pub model: Box<str>,
    pub scope: LessonScope,
}

impl LessonKey {
    pub fn new(endpoint: &str, model: &str, scope: LessonScope) -> Self {
        let (endpoint, model) = (endpoint.into(), model.into());
        Self {
            endpoint,
            model,
            scope,
        }
    }

    /// The same for all sessions of the account.
    fn for_account(&self) -> Self {
        let scope = LessonScope {
            session: None,
            ..self.scope
        };
        Self::new(&self.endpoint, &self.model, scope)
    }
}

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
    /// Reported tokens of the session's last answer by this model; 0 if there is none.
    pub answered: u32,
    /// One of several hosts may have refused it.
    pub by_one_host: bool,
}

impl RefusedPrompt {
    /// The refusal is of prompt and answer cap together, does not count the prompt, and a lower cap can be tried.
    pub fn may_be_due_to_cap(&self) -> bool {
        let is_counted = self.overflow.prompt_tokens.is_some();
        !is_counted && self.overflow.asked_answer().is_some() && self.answer > self.reserve
    }

    /// The refusal is of prompt and answer cap together, so that a lower cap may help where no cut can.
    pub fn names_answer(&self) -> bool {
        let (prompt, window) = (self.overflow.prompt_tokens, self.overflow.window);
        self.overflow.asked_answer().is_some() && (prompt.is_none() || prompt < window)
    }

    /// A lower bound of a prompt that was refused beside an answer: with it, it is more than the window.
    fn least_prompt_tokens(&self) -> Option<u32> {
        let (window, answer) = (self.overflow.window?, self.overflow.asked_answer()?);
        let least = window.checked_sub(answer)?.saturating_add(1);
        (least > self.expected && !self.may_be_due_to_cap()).then_some(least)
    }

    /// The prompt as the provider counted it, or the least that it must be. Limits are in the provider's tokens, so an estimate far
    /// from this count is corrected too.
    pub fn count_prompt_tokens(&self) -> Option<u32> {
        let requested = self.overflow.requested;
        let rest = requested.and_then(|requested| requested.checked_sub(self.answer));
        let counted = self.overflow.prompt_tokens.or(rest);
        let counted = counted.or_else(|| self.least_prompt_tokens());
        counted.filter(|&tokens| tokens > 0)
    }

    /// Tokens of the refused prompt: by the provider's count, else by the estimate, else by the limit for which it was
    /// planned.
    fn count_tokens(&self) -> u32 {
        let most = self.claimed.input.unwrap_or(self.claimed.tokens);
        let counted = self.count_prompt_tokens().unwrap_or(0);
        let counts = [counted, self.expected, most];
        counts.into_iter().find(|&tokens| tokens > 0).unwrap_or(1)
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
    lessons: Mutex<LruCache<LessonKey, Lessons>>,
}

/// The lessons of an account and those of one of its sessions.
pub type LessonSnapshot = [(LessonKey, Option<Lessons>); 2];

impl LearntWindows {
    /// `max_age`: how long a lesson is believed.
    pub fn new(max_age: Duration) -> Self {
        Self {
            max_age: AtomicU64::new(dated_lessons::to_millis(max_age)),
            lessons: Mutex::new(LruCache::unbounded()),
        }
    }

    /// Changes how long new lessons are believed; earlier ones keep their age.
    pub fn set_max_age(&self, max_age: Duration) {
        let millis = dated_lessons::to_millis(max_age);
        self.max_age.store(millis, Relaxed);
    }

    /// Forgets the lessons of a provider that is gone, or of an engine that was restarted; of one model, if it is given.
    pub fn forget_lessons(&self, endpoint: &str, model: Option<&str>) {
        let mut lessons = self.lessons.lock();
        let keys = lessons.iter().map(|(key, _)| key);
        let gone: Vec<_> = keys
            .filter(|key| *key.endpoint == *endpoint)
            .filter(|key| model.is_none_or(|model| *key.model == *model))
            .cloned()
            .collect();
        for key in &gone {
            lessons.pop(key);
        }
    }

    /// A prompt with this reported number of tokens was answered. That ends smaller limits of its account, and of its session.
    pub fn record_accepted_prompt(&self, key: &LessonKey, prompt_tokens: u32, now: SystemTime) {
        let accept = |lessons: &mut Lessons, max_age| {
            lessons.record_accepted_prompt(prompt_tokens, max_age, now);
        };
        self.update_lessons(&key.for_account(), accept);
        if key.scope.session.is_some() && self.lessons.lock().contains(key) {
            self.update_lessons(key, accept);
        }
    }

    /// Afterwards the limits known to the session are below the refused prompt, in the provider's count, else as
    /// `expected`. Exceptions: prompts of a few hundred tokens, and an answer that fills the window by itself.
    pub fn record_refused_prompt(
        &self,
        key: &LessonKey,
        refused: &RefusedPrompt,
        now: SystemTime,
    ) -> Lesson {
        let (account, answered) = (key.for_account(), refused.answered);
        let learn =
            |lessons: &mut Lessons, max_age| lessons.record_refused_prompt(refused, max_age, now);
        let is_contradicted = || {
            let known = self.export_lessons(&account, now).unwrap_or_default();
            known.contradicts(refused, now)
        };
        if !refused.by_one_host && !is_contradicted() {
            let lesson = self.update_lessons(&account, learn);
            let bounds = self.find_bounds(&account, 0, now);
            if bounds == bounds.without_those_below(answered) {
                return lesson;
            }
        }
        if key.scope.session.is_none() {
            return Lesson::Input(refused.count_tokens());
        }
        self.update_lessons(key, |lessons, max_age| {
            if !lessons.knows_any(now) {
                lessons.record_accepted_prompt(answered, max_age, now);
            }
            learn(lessons, max_age.min(ACCEPTED_MAX_AGE))
        })
    }

    /// The account has a window of so many tokens, whatever it was answered before.
    pub fn record_window(&self, key: &LessonKey, tokens: u32, now: SystemTime) {
        self.update_lessons(&key.for_account(), |lessons, max_age| {
            *lessons = Lessons {
                window: Some(DatedTokens::new(tokens, now, max_age)),
                ..Lessons::default()
            };
        });
    }

    /// The provider silently cuts prompts to this number of tokens.
    pub fn record_truncation(&self, key: &LessonKey, tokens: u32, now: SystemTime) {
        for key in [&key.for_account(), key] {
            self.update_lessons(key, |lessons, max_age| {
                lessons.record_truncation(tokens, max_age, now);
            });
        }
    }

    /// Merges the lessons that another replica wrote at `written_ms` by the wall clock.
    pub fn merge_lessons(
        &self,
        key: &LessonKey,
        remote: Lessons,
        written_ms: u64,
        now: SystemTime,
    ) -> Lessons {
        self.update_lessons(key, |lessons, max_age| {
            let local = lessons.keep_believed(Duration::MAX, now);
            let kept = remote.keep_believed(max_age, now);
            let remote = Lessons {
                accepted: kept.accepted.or(kept.accepted_later),
                accepted_later: kept.accepted_later,
                ..remote
            };
            let merged = local.merge_with(remote, written_ms);
            *lessons = merged.keep_believed(max_age, now);
            *lessons
        })
    }

    /// The learnt bounds of a model's window for a session that was answered `answered` tokens: a refusal of another
    /// session says nothing against that.
    pub fn find_bounds(&self, key: &LessonKey, answered: u32, now: SystemTime) -> Bounds {
        let bounds = |key: &LessonKey| {
            let lessons = self.export_lessons(key, now);
            lessons.unwrap_or_default().bounds_at(now)
        };
        let of_account = bounds(&key.for_account()).without_those_below(answered);
        match key.scope.session {
            Some(_) => of_account.lesser(bounds(key)),
            None => of_account,
        }
    }

    /// Whether another session of the account knows a limit of its own.
    pub fn is_known_to_another_session(&self, key: &LessonKey, now: SystemTime) -> bool {
        let lessons = self.lessons.lock();
        lessons.iter().any(|(other, known)| {
            let scope = LessonScope {
                session: other.scope.session,
                ..key.scope
            };
            let is_of_account =
                (&other.endpoint, &other.model, other.scope) == (&key.endpoint, &key.model, scope);
            let is_another = scope.session.is_some() && scope != key.scope;
            is_another && is_of_account && known.bounds_at(now) != Bounds::default()
        })
    }

    /// The reported tokens of the longest prompt that the account was answered within the hour.
    pub fn find_longest_accepted(&self, key: &LessonKey, now: SystemTime) -> Option<u32> {
        let lessons = self.export_lessons(&key.for_account(), now);
        lessons?.longest_accepted(now)
    }

    /// The lessons that are believed now, of exactly this scope; `None` where nothing was ever learnt.
    pub fn export_lessons(&self, key: &LessonKey, now: SystemTime) -> Option<Lessons> {
        let mut lessons = self.lessons.lock();
        let lessons = lessons.get(key);
        lessons.map(|lessons| lessons.keep_believed(Duration::MAX, now))
    }

    /// What a session and its account know now.
    pub fn take_snapshot(&self, key: &LessonKey, now: SystemTime) -> LessonSnapshot {
        [key.for_account(), key.clone()].map(|key| {
            let lessons = self.export_lessons(&key, now);
            (key, lessons)
        })
    }

    /// Takes back what was learnt since.
    pub fn restore_snapshot(&self, before: LessonSnapshot) {
        let mut lessons = self.lessons.lock();
        for (key, before) in before {
            match (lessons.get_mut(&key), before) {
                (Some(known), Some(before)) => *known = before,
                _ => drop(lessons.pop(&key)),
            }
        }
    }

    /// `change` gets the age for new lessons.
    fn update_lessons<T>(
        &self,
        key: &LessonKey,
        change: impl FnOnce(&mut Lessons, Duration) -> T,
    ) -> T {
        let max_age = Duration::from_millis(self.max_age.load(Relaxed));
        let mut lessons = self.lessons.lock();
        if !lessons.contains(key) {
            make_room(&mut lessons, key.scope.account);
        }
        change(
            lessons.get_or_insert_mut(key.clone(), Lessons::default),
            max_age,
        )
    }
}

/// Makes room for a lesson of an account: what goes is the account's own if it has many, else that of the account with the
/// most.
fn make_room(lessons: &mut LruCache<LessonKey, Lessons>, account: Option<Account>) {
    let mut counts: HashMap<Option<Account>, usize> = HashMap::new();
    for (key, _) in lessons.iter() {
        *counts.entry(key.scope.account).or_default() += 1;
    }
    let largest = counts.iter().max_by_key(|(_, count)| **count);
    let from = match (counts.get(&account), largest) {
        (Some(&own), _) if own >= MAX_OF_ACCOUNT => account,
        (_, Some((&largest, _))) if lessons.len() >= MAX_LESSONS => largest,
        _ => return,
    };
    let mut oldest = lessons.iter().rev().map(|(key, _)| key);
    if let Some(oldest) = oldest.find(|key| key.scope.account == from).cloned() {
        lessons.pop(&oldest);
    }
}

#[cfg(test)]
mod tests;
