//! `GET providers`: state and figures of each provider, and its models.
//!
//! SECURITY: a client sees only providers and models that it may use. Figures of all clients need the
//! right to read `/metrics`, else they are `null`.

use std::{collections::BTreeMap, time::Instant};

use serde::Serialize;

use super::Requester;
use crate::{
    provider::OfferedModel,
    proxy::App,
    telemetry::{
        metrics::{ATTEMPT_OUTCOMES, Metrics},
        recent_latencies::Latency,
    },
};

#[derive(Debug, Serialize)]
pub(super) struct Providers {
    pub(super) providers: Vec<ProviderView>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProviderView {
    pub(super) name: String,
    /// `closed`, `half_open` or `open`.
    pub(super) breaker: &'static str,
    /// By outcome, since the start of this process.
    pub(super) attempts: Option<BTreeMap<&'static str, u64>>,
    pub(super) retries: Option<u64>,
    pub(super) fallbacks: Option<u64>,
    pub(super) latency_ms: Option<Latency>,
    pub(super) models: Vec<ModelView>,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelView {
    pub(super) id: String,
    /// The window in tokens; `null` if it is only assumed.
    pub(super) context_length: Option<u32>,
    pub(super) window_from: &'static str,
}

pub(super) fn describe_providers(app: &App, requester: &Requester) -> Providers {
    let reads_metrics = requester.can_read_metrics();
    let now = Instant::now();
    let mut models = list_models(app, requester);
    let providers = app.registry.providers().filter_map(|provider| {
        let name = &*provider.name;
        let models = models.remove(name).unwrap_or_default();
        if models.is_empty() && !requester.can_see_provider(app, name) {
            return None;
        }
        let metrics = reads_metrics.then_some(&app.metrics);
        Some(ProviderView {
            name: name.to_owned(),
            breaker: provider.breaker.state_at(now).state_name(),
            attempts: metrics.map(|metrics| count_attempts(metrics, name)),
            retries: metrics.map(|metrics| metrics.retries.with_label_values(&[name]).get()),
            fallbacks: metrics.map(|metrics| metrics.fallbacks.with_label_values(&[name]).get()),
            latency_ms: metrics.and_then(|_| app.recent.latency_of_provider(name)),
            models,
        })
    });
    Providers {
        providers: providers.collect(),
    }
}

/// Number of attempts by outcome.
pub(super) fn count_attempts(metrics: &Metrics, provider: &str) -> BTreeMap<&'static str, u64> {
    let counts = ATTEMPT_OUTCOMES.map(|outcome| {
        let attempts = metrics.attempts.with_label_values(&[provider, outcome]);
        (outcome, attempts.get())
    });
    counts.into()
}

/// Configured and discovered models, and requested models without a known window, by provider.
fn list_models(app: &App, requester: &Requester) -> BTreeMap<String, Vec<ModelView>> {
    // Other names of models are texts of some client.
    let requested = if requester.can_read_metrics() {
        app.registry.list_reported()
    } else {
        Vec::new()
    };
    let mut all: BTreeMap<String, OfferedModel> = BTreeMap::new();
    let offered = app.registry.list_offered_models();
    for offered in offered.into_iter().chain(requested) {
        all.entry(offered.id.clone()).or_insert(offered);
    }
    let mut by_provider: BTreeMap<String, Vec<ModelView>> = BTreeMap::new();
    for (id, offered) in all {
        let target = &offered.target;
        if requester.may_use(app, &id, offered.is_configured, target) {
            let window = target.window;
            let models = by_provider.entry(target.provider.name.to_string());
            models.or_default().push(ModelView {
                id,
                context_length: window.known_tokens(),
                window_from: window.known_source().api_name(),
            });
        }
    }
    by_provider
}
