//! The current settings, and their reload while requests run.
//!
//! New settings replace the old ones in one step: a request keeps the settings that it began with. What cannot
//! change while the proxy runs stays as it was at start. Invalid settings change nothing.

use std::{io, sync::Arc};

use parking_lot::Mutex;

use arc_swap::ArcSwap;
use thiserror::Error;

use crate::{
    config::{Change, Config, Problems},
    http::limit::Limit,
    proxy::App,
    store::{self, Store},
};

/// A proxy that can be served, and whose settings can change.
pub struct CurrentConfig {
    app: ArcSwap<App>,
    pub(super) connections: Arc<Limit>,
    /// Held while settings change.
    changing: Mutex<()>,
}

/// Why new settings were refused.
#[derive(Debug, Error)]
pub enum ReloadError {
    #[error(transparent)]
    Settings(#[from] Problems),
    #[error("the new settings could not be applied")]
    Start(#[source] io::Error),
}

impl CurrentConfig {
    /// Must be called within a runtime, since a store may spawn tasks.
    ///
    /// # Errors
    /// The TLS roots, the data directory or the store cannot be used.
    pub async fn new(config: Config) -> io::Result<Self> {
        let store = store::open_store(&config.store, config.server.data_dir.path()).await?;
        Self::with_store(config, store)
    }

    /// Uses an open store in place of the one in the settings.
    ///
    /// # Errors
    /// As [`CurrentConfig::new`].
    pub fn with_store(config: Config, store: Arc<dyn Store>) -> io::Result<Self> {
        Ok(Self {
            connections: Limit::new(config.server.max_connections),
            app: ArcSwap::from_pointee(App::new(config, store)?),
            changing: Mutex::default(),
        })
    }

    pub fn app(&self) -> Arc<App> {
        self.app.load_full()
    }

    /// Applies new settings, and returns what changed. Blocks: not for a thread of the runtime.
    ///
    /// # Errors
    /// They cannot be used; the old ones stay.
    pub fn reload_config(&self, config: Result<Config, Problems>) -> Result<Change, ReloadError> {
        let _one_at_a_time = self.changing.lock();
        let before = self.app();
        let change = config
            .map_err(ReloadError::from)
            .and_then(|config| self.apply_config(&before, config));
        let result = if change.is_ok() { "ok" } else { "refused" };
        let reloads = &before.metrics.config_reloads;
        reloads.with_label_values(&[result]).inc();
        change
    }

    fn apply_config(&self, before: &App, mut config: Config) -> Result<Change, ReloadError> {
        config.check_clients_kept(&before.config)?;
        let change = Change::diff_and_restore(&before.config, &mut config);
        if change.applied.is_empty() {
            return Ok(change);
        }
        let app = Arc::new(before.with_config(config).map_err(ReloadError::Start)?);
        app.take_over(before);
        self.connections.set_max(app.config.server.max_connections);
        self.app.store(app);
        before.listening.cancel();
        Ok(change)
    }
}
