//! `GET providers`: how each of them does, and what is known of its models.
//!
//! SECURITY: a client is told of those providers and models only that it may use. Figures that tell
//! what other clients do are for whoever may read `/metrics`, and `null` for everybody else.

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

/// The body of the answer.
#[derive(Debug, Serialize)]
pub(super) struct Providers {
    pub(super) providers: Vec<ProviderView>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProviderView {
    pub(super) name: String,
    /// `closed`, `half_open` or `open`.
    pub(super) breaker: &'static str,
    /// Of this process, since it began.
    pub(super) attempts: Option<BTreeMap<&'static str, u64>>,
    pub(super) retries: Option<u64>,
    pub(super) fallbacks: Option<u64>,
    pub(super) latency_ms: Option<Latency>,
    pub(super) models: Vec<ModelView>,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelView {
    pub(super) id: String,
    /// The window in tokens; `null` where it is only assumed.
    pub(super) context_length: Option<u32>,
    pub(super) window_from: &'static str,
}

pub(super) fn describe_providers(app: &App, who: &Requester) -> Providers {
    let watches = who.can_read_metrics();
    let now = Instant::now();
    let mut models = list_models(app, who);
    let providers = app.registry.providers();
    let providers = providers.filter_map(|provider| {
        let name = &*provider.name;
        let models = models.remove(name).unwrap_or_default();
        if models.is_empty() && !who.can_see_provider(app, name) {
            return None;
        }
        let metrics = watches.then_some(&app.metrics);
        Some(ProviderView {
            name: name.to_owned(),
            breaker: provider.breaker.state_at(now).state_name(),
            attempts: metrics.map(|metrics| count_attempts(metrics, name)),
            retries: metrics.map(|metrics| metrics.retries.with_label_values(&[name]).get()),
            fallbacks: metrics.map(|metrics| metrics.fallbacks.with_label_values(&[name]).get()),
            latency_ms: watches
                .then(|| app.recent.latency_of_provider(name))
                .flatten(),
            models,
        })
    });
    Providers {
        providers: providers.collect(),
    }
}

/// By what became of them.
pub(super) fn count_attempts(metrics: &Metrics, provider: &str) -> BTreeMap<&'static str, u64> {
    let counts = ATTEMPT_OUTCOMES.map(|outcome| {
        let attempts = metrics.attempts.with_label_values(&[provider, outcome]);
        (outcome, attempts.get())
    });
    counts.into()
}

/// Models that somebody spelt out, and those that were asked for and of which nobody knew the window;
/// by their providers.
fn list_models(app: &App, who: &Requester) -> BTreeMap<String, Vec<ModelView>> {
    // A name that nobody spelt out is some client's own word.
    let seen = match who.can_read_metrics() {
        true => app.registry.list_reported(),
        false => Vec::new(),
    };
    let mut all: BTreeMap<String, OfferedModel> = BTreeMap::new();
    for offered in app.registry.list_offered_models().into_iter().chain(seen) {
        all.entry(offered.id.clone()).or_insert(offered);
    }
    let mut by_provider: BTreeMap<String, Vec<ModelView>> = BTreeMap::new();
    for (id, offered) in all {
        let target = &offered.target;
        if who.may_use(app, &id, offered.is_configured, target) {
            let window = target.window;
            let models = by_provider.entry(target.provider.name.to_string());
            models.or_default().push(ModelView {
                id,
                context_length: window.known_tokens(),
                window_from: window.source.api_name(),
            });
        }
    }
    by_provider
}
