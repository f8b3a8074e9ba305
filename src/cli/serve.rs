//! `plimsoll serve`: settings, listener and stop signal for [`crate::serve`].

use std::io;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Failed;
use crate::{
    config::{Auth, Config, Environment, Flags, Loaded, load, warnings},
    provider::Registry,
    telemetry,
};

pub(super) fn run(flags: &Flags, environment: &Environment) -> Result<(), Failed> {
    let loaded = load(flags, environment)?;
    telemetry::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failed::Start)?;
    runtime.block_on(serve(loaded))
}

async fn serve(loaded: Loaded) -> Result<(), Failed> {
    let config = &loaded.config;
    let registry = Registry::new(config).map_err(Failed::Start)?;
    for doubt in loaded.warnings.iter().chain(&warnings(config, &registry)) {
        tracing::warn!(setting = doubt.key, "{doubt}");
    }
    let address = config.server.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => Failed::AddressInUse(address),
            _ => Failed::Listen { address, source },
        })?;
    // Before the first connection, so that a stop right after the start is a clean one too.
    let stop = Stop::new().map_err(Failed::Start)?;
    announce(&loaded, &listener).map_err(Failed::Start)?;
    let told = CancellationToken::new();
    tokio::select! {
        served = crate::serve(loaded.config, listener, told.cancelled()) => {
            served.map_err(Failed::Start)?;
        }
        () = stop.asked_twice(&told) => {}
    }
    tracing::info!("stopped");
    Ok(())
}

/// Says where we listen, for whom, and within which limits.
fn announce(loaded: &Loaded, listener: &TcpListener) -> io::Result<()> {
    let Config {
        server,
        clients,
        providers,
        guard,
        ..
    } = &loaded.config;
    for (name, provider) in providers {
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
        clients = clients.len(),
        guard = guard.enabled,
        max_body_bytes = server.max_body_bytes,
        max_bytes_in_flight = server.max_bytes_in_flight,
        max_connections = server.max_connections,
        "listening on http://{listen}"
    );
    Ok(())
}

/// The signals that ask us to end.
#[cfg(unix)]
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Stop {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Tells `told` of the first signal, and comes back at the second: whoever asks again does not
    /// want to wait for running answers.
    async fn asked_twice(mut self, told: &CancellationToken) {
        let signal = self.next().await;
        tracing::info!(signal, "stopping; running answers may end");
        told.cancel();
        let signal = self.next().await;
        tracing::warn!(signal, "told again to stop; running answers are cut off");
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
struct Stop;

#[cfg(not(unix))]
impl Stop {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn asked_twice(self, told: &CancellationToken) {
        // Without a handler there is no way to be asked, so we go on.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        tracing::info!("stopping; running answers may end");
        told.cancel();
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        tracing::warn!("told again to stop; running answers are cut off");
    }
}
