//! What a request works with: the settings, and what outlives them.
//!
//! A request takes one [`App`] when it begins and keeps it to its end, streams included, so that none sees two
//! settings. What is the same under all settings is shared by the old [`App`] and the new one. A bound that falls
//! below what is taken lets nothing more in until enough has ended.

use std::{io, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{replica_sync::ReplicaSync, session_events::SessionEvents};
use crate::{
    compaction::SummaryJobs,
    config::Config,
    http::{
        admission::Clients,
        limit::{InflightBytes, Limit, LimitMap},
        tasks::Tasks,
    },
    provider::Registry,
    session::{
        Sessions, Tenants, installation_secret::InstallationSecret, token_ratios::TokenRatios,
    },
    store::Store,
    telemetry::{metrics::Metrics, recent_latencies::RecentLatencies, trace::Tracing},
};

/// Everything that all requests share. Immutable, but for what the stages keep to themselves. A
/// request takes one when it begins and keeps it to its end, so that no other settings come to
/// it in between.
#[derive(Debug)]
pub struct App {
    pub config: Config,
    pub clients: Clients,
    pub registry: Registry,
    // What follows is the same under all settings.
    pub sessions: Sessions,
    /// What new sessions begin with.
    pub ratios: Arc<TokenRatios>,
    /// What is learnt, to and from other replicas.
    pub replica_sync: Arc<ReplicaSync>,
    pub inflight_bytes: InflightBytes,
    pub metrics: Arc<Metrics>,
    pub tracing: Arc<Tracing>,
    /// How long providers took of late.
    pub recent: Arc<RecentLatencies>,
    /// What happens to sessions, for who listens.
    pub session_events: Arc<SessionEvents>,
    pub tasks: Tasks,
    /// Summaries; a drain does not wait for them.
    pub summary_tasks: Tasks,
    pub summary_jobs: Arc<SummaryJobs>,
    client_limits: Arc<LimitMap<String>>,
    draining: CancellationToken,
    /// Of these settings alone: cancelled when others take their place, or with the server.
    listening: CancellationToken,
}

impl App {
    /// # Errors
    /// The TLS roots of this machine cannot be read, the data directory cannot be written, or spans
    /// cannot be exported.
    pub fn new(config: Config, store: Arc<dyn Store>) -> io::Result<Self> {
        let server = &config.server;
        let secret = match &server.secret {
            Some(secret) => InstallationSecret::from_bytes(*secret.reveal()),
            None => {
                InstallationSecret::load_or_create(&server.data_dir).map_err(io::Error::other)?
            }
        };
        let client_limits = Arc::default();
        let metrics = Arc::new(Metrics::default());
        let ratios = Arc::default();
        let patience = config.store.timeout;
        let draining = CancellationToken::new();
        let sessions = Sessions::new(Arc::clone(&store), Tenants::new(secret))
            .and_then(|sessions| sessions.with_config(&config.store, Arc::clone(&metrics)))
            .map_err(io::Error::other)?;
        Ok(Self {
            sessions,
            replica_sync: Arc::new(ReplicaSync::new(
                store,
                Arc::clone(&metrics),
                Arc::clone(&ratios),
                patience,
            )),
            ratios,
            clients: Clients::new(&config.clients, &client_limits),
            registry: Registry::new(&config)?,
            inflight_bytes: Limit::new(config.server.max_bytes_in_flight),
            summary_jobs: Arc::new(SummaryJobs::new(&metrics)),
            tracing: Arc::new(Tracing::new(&config.traces, &metrics.spans)?),
            metrics,
            recent: Arc::default(),
            session_events: Arc::default(),
            tasks: Tasks::default(),
            summary_tasks: Tasks::default(),
            client_limits,
            listening: draining.child_token(),
            draining,
            config,
        })
    }

    /// The same proxy under other settings. Nothing changes for anybody before
    /// [`App::take_over`].
    ///
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub fn with_config(&self, config: Config) -> io::Result<Self> {
        Ok(Self {
            registry: self.registry.with_settings(&config)?,
            clients: Clients::new(&config.clients, &self.client_limits),
            sessions: self.sessions.clone(),
            ratios: Arc::clone(&self.ratios),
            replica_sync: Arc::clone(&self.replica_sync),
            inflight_bytes: Arc::clone(&self.inflight_bytes),
            metrics: Arc::clone(&self.metrics),
            tracing: Arc::clone(&self.tracing),
            recent: Arc::clone(&self.recent),
            session_events: Arc::clone(&self.session_events),
            tasks: self.tasks.clone(),
            summary_tasks: self.summary_tasks.clone(),
            summary_jobs: Arc::clone(&self.summary_jobs),
            client_limits: Arc::clone(&self.client_limits),
            listening: self.draining.child_token(),
            draining: self.draining.clone(),
            config,
        })
    }

    /// Brings what is shared with `before` under the settings of this one.
    pub fn take_over(&self, before: &Self) {
        self.registry.take_over(&before.registry, &self.config);
        for provider in before.config.providers.keys() {
            if !self.config.providers.contains_key(provider) {
                self.metrics.forget_provider(provider);
                self.recent.forget_provider(provider);
            }
        }
        self.inflight_bytes
            .set_max(self.config.server.max_bytes_in_flight);
        // Something may have been told of a provider that was not there.
        self.replica_sync.pull_again();
    }

    /// Whether the server is on its way out.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Cancelled when whoever listens to what happens is to come again: other settings are in force,
    /// or the server is on its way out.
    pub fn listener_token(&self) -> CancellationToken {
        self.listening.clone()
    }

    /// Other settings are in force.
    pub fn cancel_listeners(&self) {
        self.listening.cancel();
    }

    /// Cancelled when the server is on its way out.
    pub fn drain_token(&self) -> CancellationToken {
        self.draining.clone()
    }

    /// From now on it is, under whatever settings.
    pub fn begin_drain(&self) {
        self.draining.cancel();
    }
}
