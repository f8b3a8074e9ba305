//! `plimsoll serve`: loads the settings, binds the listener, and runs [`crate::serve`] until a stop signal.

mod reload;
mod signals;

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::Arc,
    time::Duration,
};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::reload::ConfigReloader;
use self::signals::{Signals, wait_for_second_stop};
use super::{CommandError, CommandResult};
use crate::{
    CurrentConfig,
    config::{Auth, ConfigWatcher, Environment, Flags, LoadedConfig},
    provider::fit_body_to_windows,
    proxy::App,
    telemetry,
};

/// How long a thread of the blocking pool waits for work before it ends. Until then it keeps the memory that the allocator
/// gave it for large bodies. The settings are polled on these threads twice a second, each time on the one that waited longest:
/// with tokio's 10 s, a burst's threads would never end.
const KEEP_ALIVE: Duration = Duration::from_millis(500);

pub(super) fn run(flags: &Flags, environment: &Environment) -> CommandResult {
    let mut watch = ConfigWatcher::new(flags, environment);
    let mut loaded = watch.load_config()?;
    fit_body_to_windows(&mut loaded.config);
    let _log = telemetry::start_logging();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_keep_alive(KEEP_ALIVE);
    let runtime = builder.build().map_err(CommandError::Start)?;
    let served = runtime.block_on(serve_until_stopped(loaded, watch));
    // A second stop signal ends the process at once, even while a blocking task waits for the disk.
    runtime.shutdown_background();
    served
}

async fn serve_until_stopped(loaded: LoadedConfig, watch: ConfigWatcher) -> CommandResult {
    // The handlers are installed before the port opens, so that an early stop signal drains too.
    let Signals { stop, reload } = Signals::new().map_err(CommandError::Start)?;
    let address = loaded.config.server.listen;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => CommandError::AddressInUse(address),
        _ => CommandError::Listen { address, source },
    })?;
    let current = CurrentConfig::new(loaded.config.clone()).await;
    let current = Arc::new(current.map_err(CommandError::Start)?);
    let reloader = ConfigReloader::from_loaded(Arc::clone(&current), watch, &loaded);
    log_startup(&loaded, &listener).map_err(CommandError::Start)?;
    print_page_link(&current.app(), &listener).map_err(CommandError::Start)?;
    let stopping = CancellationToken::new();
    let second_stop = async {
        let reloads = stopping.run_until_cancelled(reloader.run(reload));
        tokio::join!(wait_for_second_stop(stop, &stopping), reloads);
    };
    tokio::select! {
        served = crate::serve(current, listener, stopping.cancelled()) => {
            served.map_err(CommandError::Start)?;
        }
        () = second_stop => {}
    }
    tracing::info!("stopped");
    Ok(())
}

/// Logs the providers, the address and the limits.
fn log_startup(loaded: &LoadedConfig, listener: &TcpListener) -> io::Result<()> {
    let config = &loaded.config;
    for (name, provider) in &config.providers {
        tracing::info!(
            provider = name,
            base_url = provider.base_url.as_deref().unwrap_or("built in"),
            profile = provider.profile.name,
            credentials = match provider.auth {
                Auth::Client => "client",
                Auth::Key(..) => "key",
                Auth::None => "none",
            },
            "provider {name} can be asked"
        );
    }
    if config.providers.values().any(|provider| provider.is_known) {
        tracing::info!(
            "no provider is configured: the names of Anthropic's and OpenAI's models are passed on with the client's own \
             key (server.known_providers = false switches this off)"
        );
    }
    for (key, route) in config.list_routes() {
        if !route.reason.is_empty() {
            tracing::info!(setting = key, "{key} is reached {}", route.describe());
        }
    }
    let listen = listener.local_addr()?;
    tracing::info!(
        %listen,
        settings = loaded.file.as_ref().map(|path| path.display().to_string()),
        data_dir = config.server.data_dir.path().map(|path| path.display().to_string()),
        clients = config.clients.len(),
        guard = config.guard.enabled,
        max_body_bytes = config.server.max_body_bytes,
        max_bytes_in_flight = config.server.max_bytes_in_flight,
        max_connections = config.server.max_connections,
        "listening on http://{listen}"
    );
    if config.clients.is_empty() && !config.admin.local {
        tracing::info!(
            "there are no client keys: sessions are separated by the key that a client sends, if any; \
             http://{listen}/plimsoll/ shows the sessions of a key, or of all keys with admin.local = true"
        );
    }
    Ok(())
}

/// Prints the link that opens the page for all sessions, once.
///
/// SECURITY: to a terminal and never to the log, which others may keep and read; and only where every client is on this
/// machine.
fn print_page_link(app: &App, listener: &TcpListener) -> io::Result<()> {
    let listen = listener.local_addr()?;
    let mut terminal = io::stderr();
    let is_local = app.config.clients.is_empty() && listen.ip().is_loopback();
    if !(app.config.admin.link && is_local && terminal.is_terminal()) {
        return Ok(());
    }
    let token = app.page_link.issue_token().map_err(io::Error::other)?;
    // A terminal that cannot be written to is no reason not to serve.
    let _ = writeln!(
        terminal,
        "The page with all sessions, by a link for one use:\n  http://{listen}/plimsoll/#link={token}"
    );
    Ok(())
}
