//! Reloads the settings of a running proxy: after a change of their files, and on a signal.

use std::{sync::Arc, time::Duration};

use futures_util::stream::{BoxStream, StreamExt as _};
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use crate::{
    CurrentConfig,
    config::{ConfigWatcher, LoadedConfig, Problem},
    error::format_error_chain,
    provider::{collect_warnings, fit_body_to_windows},
};

/// How often the files are polled. A change is read after it was seen unchanged in two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct ConfigReloader {
    current: Arc<CurrentConfig>,
    watch: ConfigWatcher,
    /// Those of the settings in force, which were logged.
    warnings: Vec<Problem>,
}

/// The cause of a reload without a signal, in the log.
const FILE_CHANGED: &str = "file changed";

impl ConfigReloader {
    /// Logs the warnings of the first settings, which `watch` has loaded for `current`.
    pub(super) fn from_loaded(
        current: Arc<CurrentConfig>,
        watch: ConfigWatcher,
        loaded: &LoadedConfig,
    ) -> Self {
        let warnings = Vec::new();
        let mut reloader = Self {
            current,
            watch,
            warnings,
        };
        reloader.log_new_warnings(&loaded.warnings);
        reloader
    }

    /// Runs until it is dropped. Files are read on a blocking thread.
    pub(super) async fn run(mut self, mut signals: BoxStream<'static, &'static str>) {
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let cause = tokio::select! {
                Some(signal) = signals.next() => signal,
                _ = polls.tick() => FILE_CHANGED,
            };
            let polled = spawn_blocking(move || {
                if cause != FILE_CHANGED || self.watch.has_changed() {
                    self.reload_config(cause);
                }
                self
            });
            self = match polled.await {
                Ok(reloader) => reloader,
                Err(error) => {
                    tracing::error!(%error, "reload failed; restart the proxy to apply its changes");
                    return;
                }
            };
        }
    }

    fn reload_config(&mut self, cause: &'static str) {
        let mut warnings = Vec::new();
        let config = self.watch.load_config().map(|mut loaded| {
            fit_body_to_windows(&mut loaded.config);
            warnings = loaded.warnings;
            loaded.config
        });
        let change = match self.current.reload_config(config) {
            Ok(change) => change,
            Err(refused) => {
                let reasons = format_error_chain(&refused);
                let message = "the new settings cannot be used, and the old ones stay in force";
                return tracing::error!(cause, "reload refused: {message}:\n{reasons}");
            }
        };
        if change.applied.is_empty() {
            tracing::info!(cause, "reload: settings read again, nothing is different");
        } else {
            let changed = change.summarise_applied();
            tracing::info!(
                cause,
                changed,
                "reload: new settings are in force: {changed}"
            );
        }
        if !change.needs_restart.is_empty() {
            let settings = change.needs_restart.join(", ");
            let message = "changed, and keeps its old value until the proxy is restarted";
            tracing::warn!(settings, "reload: {settings}: {message}");
        }
        self.log_new_warnings(&warnings);
    }

    /// Logs the warnings about the settings in force that were not logged for those before. `warnings` are those
    /// about variables of the environment.
    fn log_new_warnings(&mut self, warnings: &[Problem]) {
        let app = self.current.app();
        let mut warnings = warnings.to_vec();
        warnings.extend(collect_warnings(&app.config, &app.registry));
        let is_new = |warning: &&Problem| !self.warnings.contains(warning);
        for warning in warnings.iter().filter(is_new) {
            tracing::warn!(setting = warning.key, "{warning}");
        }
        self.warnings = warnings;
    }
}
