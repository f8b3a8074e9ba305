//! What stages note of a request for its line in the log, for the metrics and for its trace: some of
//! it is decided only while its answer is on its way.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{metrics::Series, trace::Trace};
use crate::{health::Level, store::SessionId};

/// What is known of a request, and was done to it.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    noted: Arc<Mutex<Noted>>,
    trace: Trace,
}

#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) provider: Option<String>,
    pub(super) series: Option<Arc<Series>>,
    pub(super) attempts: Option<u32>,
    pub(super) session: Option<SessionId>,
    pub(super) actions: Option<String>,
    pub(super) guard: Option<Duration>,
    pub(super) budget: Option<u32>,
    pub(super) streamed: bool,
    pub(super) failed: bool,
    pub(super) answered: Option<Answered>,
}

/// What came of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    pub level: Level,
    pub hard_util: Option<f64>,
    /// Of the last call to the provider.
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    /// Prompt and completion tokens of all calls, where there were several.
    pub billed: Option<(u32, u32)>,
    /// One of the words that are known.
    pub finish_reason: Option<&'static str>,
}

impl Answered {
    /// Prompt tokens that were paid for.
    pub fn input_tokens(&self) -> Option<u32> {
        self.billed.map(|(input, _)| input).or(self.prompt_tokens)
    }

    /// Completion tokens that were paid for.
    pub fn output_tokens(&self) -> Option<u32> {
        let billed = self.billed.map(|(_, output)| output);
        billed.or(self.completion_tokens)
    }
}

impl Notes {
    pub(super) fn of(trace: Trace) -> Self {
        Self {
            trace,
            ..Self::default()
        }
    }

    /// For what the request waits for.
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    pub fn provider(&self, provider: &str) {
        self.change(|noted| noted.provider = Some(provider.to_owned()));
    }

    /// Where its tokens and its times are counted.
    pub fn series(&self, series: Arc<Series>) {
        self.change(|noted| noted.series = Some(series));
    }

    /// Calls to providers so far.
    pub fn attempts(&self, attempts: u32) {
        self.change(|noted| noted.attempts = Some(attempts));
    }

    pub fn session(&self, session: SessionId) {
        self.change(|noted| noted.session = Some(session));
    }

    /// What was done, as the client is told it.
    pub fn actions(&self, actions: String) {
        self.change(|noted| noted.actions = Some(actions));
    }

    /// The time that the guard took so far.
    pub fn guard(&self, took: Duration) {
        self.change(|noted| noted.guard = Some(took));
    }

    /// What the prompt may use, in tokens; `None` where the guard did not look at the request.
    pub fn budget(&self, tokens: Option<u32>) {
        self.change(|noted| noted.budget = tokens);
    }

    /// The answer goes out as a stream.
    pub fn streamed(&self) {
        self.change(|noted| noted.streamed = true);
    }

    /// The provider said in the midst of an answer that it failed.
    pub fn failed(&self) {
        self.change(|noted| noted.failed = true);
    }

    pub fn answered(&self, answered: Answered) {
        self.change(|noted| noted.answered = Some(answered));
    }

    fn change(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn take(&self) -> Noted {
        std::mem::take(&mut *self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
