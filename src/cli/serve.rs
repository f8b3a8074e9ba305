//! `plimsoll serve`: settings, listener and signals for [`crate::serve`].

mod reload;
mod signals;

use std::{io, sync::Arc};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{
    reload::ConfigReloader,
    signals::{Signals, wait_to_be_asked_twice},
};
use super::CommandError;
use crate::{
    CurrentConfig,
    config::{Auth, ConfigWatcher, Environment, Flags, LoadedConfig},
    provider::fit_body_to_windows,
    telemetry,
};

pub(super) fn run(flags: &Flags, environment: &Environment) -> Result<(), CommandError> {
    let mut watch = ConfigWatcher::new(flags, environment);
    let mut loaded = watch.load_config()?;
    fit_body_to_windows(&mut loaded.config);
    let _log = telemetry::start_logging();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Start)?;
    let served = runtime.block_on(serve_until_stopped(loaded, watch));
    // Whoever told us twice to stop waits for nothing, not for a disk that hangs either.
    runtime.shutdown_background();
    served
}

async fn serve_until_stopped(
    loaded: LoadedConfig,
    watch: ConfigWatcher,
) -> Result<(), CommandError> {
    // Before anybody can know of us, so that a stop right after the start is a clean one too.
    let Signals { stop, reload } = Signals::new().map_err(CommandError::Start)?;
    let address = loaded.config.server.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => CommandError::AddressInUse(address),
            _ => CommandError::Listen { address, source },
        })?;
    let live = CurrentConfig::new(loaded.config.clone()).map_err(CommandError::Start)?;
    let live = Arc::new(live);
    let reloading = ConfigReloader::from_loaded(Arc::clone(&live), watch, &loaded);
    log_startup(&loaded, &listener).map_err(CommandError::Start)?;
    let told = CancellationToken::new();
    let told_twice = async {
        // Settings that come while it stops are of no use to anybody.
        let reloaded = told.run_until_cancelled(reloading.run(reload));
        tokio::join!(wait_to_be_asked_twice(stop, &told), reloaded);
    };
    tokio::select! {
        served = crate::serve(live, listener, told.cancelled()) => {
            served.map_err(CommandError::Start)?;
        }
        () = told_twice => {}
    }
    tracing::info!("stopped");
    Ok(())
}

/// Says where we listen, for whom, and within which limits.
fn log_startup(loaded: &LoadedConfig, listener: &TcpListener) -> io::Result<()> {
    let config = &loaded.config;
    for (name, provider) in &config.providers {
        tracing::info!(
            provider = name,
            base_url = provider.base_url.as_deref().unwrap_or("built in"),
            profile = provider.profile.name,
            credentials = match provider.auth {
                Auth::Client => "client",
                Auth::Key(_) => "key",
                Auth::None => "none",
            },
            "provider {name} is configured"
        );
    }
    let listen = listener.local_addr()?;
    tracing::info!(
        %listen,
        settings = loaded.file.as_ref().map(|path| path.display().to_string()),
        clients = config.clients.len(),
        guard = config.guard.enabled,
        max_body_bytes = config.server.max_body_bytes,
        max_bytes_in_flight = config.server.max_bytes_in_flight,
        max_connections = config.server.max_connections,
        "listening on http://{listen}"
    );
    if config.clients.is_empty() && !config.admin.local {
        tracing::info!(
            "there are no client keys, so sessions are kept apart by the key that a client sends, if any; \
             http://{listen}/plimsoll/ shows those of the key that is entered there, and those of all keys \
             with admin.local = true"
        );
    }
    Ok(())
}
