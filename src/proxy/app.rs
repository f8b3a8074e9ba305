//! The settings that a request works with, and the state that outlives them.
//!
//! A request takes one [`App`] when it begins and keeps it to its end, streams included, so that its settings never
//! change. The old [`App`] and the new one share the state that outlives a reload. If a bound falls below what is in use,
//! nothing is admitted until enough has ended.

use std::{io, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    logins::AnsweredLogins, plan::LastRequests, replica_sync::ReplicaSync,
    session_events::SessionEvents,
};
use crate::{
    compaction::SummaryJobs,
    config::Config,
    format::KnownPrefixes,
    http::{
        admission::Clients,
        lease::Leases,
        limit::{InflightBytes, Limit, LimitMap},
        page_link::PageLink,
        tasks::Tasks,
    },
    provider::{Provider, Registry},
    session::{
        Sessions, Tenants, installation_secret::InstallationSecret,
        reasoning_by_session::ReasoningBySession, token_ratios::TokenRatios,
    },
    store::Store,
    telemetry::{
        Operation,
        metrics::{Metrics, ModelLabels},
        recent_latencies::RecentLatencies,
        trace::Tracing,
    },
};

/// Everything that all requests share. Immutable, except for state inside its parts.
#[derive(Clone)]
pub struct App {
    pub config: Config,
    pub clients: Clients,
    pub registry: Registry,
    /// They hold providers with these settings, so an `App` with other settings begins with an empty list.
    pub last_requests: Arc<LastRequests>,
    // All fields from here outlive a reload, except for `listening` and the clients' names of `sessions`.
    pub sessions: Sessions,
    pub known_prefixes: Arc<KnownPrefixes>,
    /// The calibration that new sessions begin with.
    pub ratios: Arc<TokenRatios>,
    pub reasoning: Arc<ReasoningBySession>,
    pub replica_sync: Arc<ReplicaSync>,
    pub inflight_bytes: InflightBytes,
    pub metrics: Arc<Metrics>,
    pub tracing: Arc<Tracing>,
    /// Recent latencies of providers.
    pub recent: Arc<RecentLatencies>,
    pub session_events: Arc<SessionEvents>,
    pub page_link: Arc<PageLink>,
    pub logins: Arc<AnsweredLogins>,
    pub leases: Arc<Leases>,
    pub tasks: Tasks,
    /// Tasks that make summaries; a drain does not wait for them.
    pub summary_tasks: Tasks,
    pub summary_jobs: Arc<SummaryJobs>,
    client_limits: Arc<LimitMap<String>>,
    /// Cancelled at the signal to stop: not ready any more. The same under all settings.
    pub stopping: CancellationToken,
    /// Cancelled when a drain begins, `server.drain_delay` later. The same under all settings.
    pub draining: CancellationToken,
    /// Cancelled when listeners have to subscribe again: other settings replace these, or a drain begins.
    pub listening: CancellationToken,
}

impl App {
    /// # Errors
    /// The TLS roots cannot be read, the data directory cannot be written, or spans cannot be exported.
    pub fn new(config: Config, store: Arc<dyn Store>) -> io::Result<Self> {
        let server = &config.server;
        let secret = match (&server.secret, server.data_dir.path()) {
            (Some(secret), _) => Ok(InstallationSecret::from_bytes(*secret.reveal())),
            (None, Some(folder)) => InstallationSecret::load_or_create(folder),
            (None, None) => InstallationSecret::random(),
        };
        let secret = secret.map_err(io::Error::other)?;
        let client_limits = Arc::default();
        let metrics = Arc::new(Metrics::default());
        let ratios = Arc::<TokenRatios>::default();
        let draining = CancellationToken::new();
        let (tenants, counts) = (Tenants::new(secret), Arc::clone(&metrics));
        let sessions = Sessions::new(Arc::clone(&store), tenants, &config.store, counts)
            .map_err(io::Error::other)?
            .with_clients(config.clients.keys());
        let (for_sync, pull_within) = (Arc::clone(&ratios), config.store.timeout);
        let sync = ReplicaSync::new(store, Arc::clone(&metrics), for_sync, pull_within);
        Ok(Self {
            sessions,
            replica_sync: Arc::new(sync),
            known_prefixes: Arc::default(),
            ratios,
            reasoning: Arc::default(),
            last_requests: Arc::default(),
            clients: Clients::new(&config.clients, &client_limits),
            registry: Registry::new(&config)?,
            inflight_bytes: Limit::new(config.server.max_bytes_in_flight),
            summary_jobs: Arc::new(SummaryJobs::new(&metrics)),
            tracing: Arc::new(Tracing::new(
                &config.traces,
                &config.server.outgoing,
                &metrics.spans,
            )?),
            metrics,
            recent: Arc::default(),
            session_events: Arc::default(),
            page_link: Arc::default(),
            logins: Arc::default(),
            leases: Arc::default(),
            tasks: Tasks::default(),
            summary_tasks: Tasks::default(),
            client_limits,
            stopping: CancellationToken::new(),
            listening: draining.child_token(),
            draining,
            config,
        })
    }

    /// Makes an `App` with other settings, which shares the state that outlives a reload. Changes nothing of that state;
    /// [`App::take_over`] does.
    ///
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub fn with_config(&self, config: Config) -> io::Result<Self> {
        Ok(Self {
            registry: self.registry.with_settings(&config)?,
            clients: Clients::new(&config.clients, &self.client_limits),
            last_requests: Arc::default(),
            sessions: self.sessions.with_clients(config.clients.keys()),
            listening: self.draining.child_token(),
            config,
            ..self.clone()
        })
    }

    /// The labels of a model in the metrics.
    pub fn label_model(
        &self,
        operation: Operation,
        provider: &Provider,
        model: &str,
    ) -> ModelLabels {
        let is_known = || self.registry.is_spelt_out(provider, model);
        let metrics = &self.metrics;
        metrics.label_model(operation, &provider.name, model, is_known)
    }

    /// Applies these settings to the state that is shared with `before`.
    pub fn take_over(&self, before: &Self) {
        self.registry.take_over(&before.registry, &self.config);
        for provider in before.config.providers.keys() {
            if !self.config.providers.contains_key(provider) {
                self.metrics.forget_provider(provider);
                self.recent.forget_provider(provider);
            }
        }
        let max_bytes = self.config.server.max_bytes_in_flight;
        self.inflight_bytes.set_max(max_bytes);
        // Replicas may have published something about a provider that was not configured.
        self.replica_sync.pull_again();
    }
}
