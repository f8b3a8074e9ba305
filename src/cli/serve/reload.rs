//! New settings for a running proxy: when its files change, and when it is asked.

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

/// How often the files are looked at. A change is read once it has been left alone for so long.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Keeps the settings of a proxy those of its files.
pub(super) struct ConfigReloader {
    live: Arc<CurrentConfig>,
    watch: ConfigWatcher,
    /// What was said of the settings in force.
    warnings: Vec<Problem>,
}

/// Why settings are read, as the log says it.
const ASKED: &str = "asked to";
const FILE_CHANGED: &str = "file changed";

impl ConfigReloader {
    /// `watch` has read what `live` began with, of which all doubts are told now.
    pub(super) fn from_loaded(
        live: Arc<CurrentConfig>,
        watch: ConfigWatcher,
        loaded: &LoadedConfig,
    ) -> Self {
        let mut reloading = Self {
            live,
            watch,
            warnings: Vec::new(),
        };
        reloading.log_new_warnings(&loaded.warnings);
        reloading
    }

    /// Goes on for as long as it is polled. Files are read where nobody waits for it.
    pub(super) async fn run(mut self, mut asked: BoxStream<'static, &'static str>) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let cause = tokio::select! {
                Some(_) = asked.next() => ASKED,
                _ = looks.tick() => FILE_CHANGED,
            };
            let looked = spawn_blocking(move || {
                if cause == ASKED || self.watch.has_changed() {
                    self.reload_config(cause);
                }
                self
            });
            self = match looked.await {
                Ok(reloading) => reloading,
                Err(error) => {
                    tracing::error!(%error, "settings are not read again before a restart");
                    return;
                }
            };
        }
    }

    fn reload_config(&mut self, cause: &'static str) {
        let mut foreign = Vec::new();
        let config = self.watch.load_config().map(|mut loaded| {
            fit_body_to_windows(&mut loaded.config);
            foreign = loaded.warnings;
            loaded.config
        });
        match self.live.reload_config(config) {
            Ok(change) => {
                if change.applied.is_empty() {
                    tracing::info!(cause, "settings read again; nothing is different");
                } else {
                    let changed = change.summarise_applied();
                    tracing::info!(cause, changed, "new settings are in force: {changed}");
                }
                if !change.needs_restart.is_empty() {
                    let settings = change.needs_restart.join(", ");
                    tracing::warn!(
                        settings,
                        "{settings}: changed, and stays as it was until the proxy is restarted"
                    );
                }
                self.log_new_warnings(&foreign);
            }
            Err(refused) => {
                let reasons = format_error_chain(&refused);
                tracing::error!(
                    cause,
                    "the new settings cannot be used, and the old ones stay in force:\n{reasons}"
                );
            }
        }
    }

    /// Tells what is doubtful of the settings in force and was not told of those before; `foreign`:
    /// what is not of the settings themselves.
    fn log_new_warnings(&mut self, foreign: &[Problem]) {
        let app = self.live.app();
        let mut doubts = foreign.to_vec();
        doubts.extend(collect_warnings(&app.config, &app.registry));
        for doubt in doubts.iter().filter(|doubt| !self.warnings.contains(doubt)) {
            tracing::warn!(setting = doubt.key, "{doubt}");
        }
        self.warnings = doubts;
    }
}
