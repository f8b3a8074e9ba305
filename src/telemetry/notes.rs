//! Notes of the stages about a request, for its log line, the metrics and its trace. Some are made only while the
//! answer is sent.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use super::{metrics::ModelLabels, trace::Trace};
use crate::health::HealthLevel;

/// All clones share the facts.
#[derive(Clone, Debug, Default)]
pub struct RequestNotes {
    facts: Arc<Mutex<RequestFacts>>,
    /// Has a child span for each thing that the request waits for.
    pub trace: Trace,
}

/// Facts of a request that are not known when it arrives.
#[derive(Debug, Default)]
pub struct RequestFacts {
    pub provider: Option<String>,
    /// The labels that its tokens and durations are counted under.
    pub model_labels: Option<ModelLabels>,
    /// Calls to providers so far.
    pub attempts: Option<u32>,
    pub session: Option<String>,
    /// As in the response header for the client.
    pub actions: Option<String>,
    /// Planning time of the guard so far.
    pub guard_took: Option<Duration>,
    /// The budget of the prompt; `None` for a request that the guard did not plan.
    pub budget_tokens: Option<u32>,
    pub is_stream: bool,
    /// The provider reported a failure within its answer.
    pub provider_failed: bool,
    pub generation: Option<GenerationFacts>,
}

/// Health and usage of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationFacts {
    pub level: HealthLevel,
    pub hard_util: Option<f64>,
    /// Tokens; `None` where nobody knows.
    pub window: Option<u32>,
    /// These three are of the last call to the provider.
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    /// Prompt and completion tokens of all calls, if there were several.
    pub billed: Option<(u32, u32)>,
    /// One of the known reasons.
    pub finish_reason: Option<&'static str>,
}

impl GenerationFacts {
    /// Prompt and completion tokens of all calls.
    pub fn paid_tokens(&self) -> (Option<u32>, Option<u32>) {
        match self.billed {
            Some((prompt, completion)) => (Some(prompt), Some(completion)),
            None => (self.prompt_tokens, self.completion_tokens),
        }
    }
}

impl RequestNotes {
    /// The facts so far. Keep the lock for a moment only, since other stages wait for it.
    pub fn facts(&self) -> MutexGuard<'_, RequestFacts> {
        self.facts.lock()
    }
}
