//! What stages note of a request for its line in the log, for the metrics and for its trace: some of
//! it is decided only while its answer is on its way.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{metrics::ModelLabels, trace::Trace};
use crate::health::HealthLevel;

/// What is known of a request, and was done to it; shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct RequestNotes {
    facts: Arc<Mutex<RequestFacts>>,
    /// For what the request waits for.
    pub trace: Trace,
}

/// Facts of a request that are not known when it comes.
#[derive(Debug, Default)]
pub struct RequestFacts {
    pub provider: Option<String>,
    /// What its tokens and its times are counted under.
    pub model_labels: Option<ModelLabels>,
    /// Calls to providers so far.
    pub attempts: Option<u32>,
    pub session: Option<String>,
    /// What was done, as the client is told it.
    pub actions: Option<String>,
    /// The time that the guard took so far.
    pub guard_took: Option<Duration>,
    /// What the prompt may use; `None` where the guard did not look at the request.
    pub budget_tokens: Option<u32>,
    /// The answer goes out as a stream.
    pub is_stream: bool,
    /// The provider said in the midst of an answer that it failed.
    pub provider_failed: bool,
    pub generation: Option<GenerationFacts>,
}

/// What came of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationFacts {
    pub level: HealthLevel,
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

impl GenerationFacts {
    /// Prompt and completion tokens that were paid for.
    pub fn paid_tokens(&self) -> (Option<u32>, Option<u32>) {
        match self.billed {
            Some((prompt, completion)) => (Some(prompt), Some(completion)),
            None => (self.prompt_tokens, self.completion_tokens),
        }
    }
}

impl RequestNotes {
    /// What is known so far, to read and to add to. Held for a moment only: whoever else notes something waits.
    pub fn facts(&self) -> MutexGuard<'_, RequestFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
