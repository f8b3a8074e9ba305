//! `plimsoll serve`: loads the settings, binds the listener, and runs [`crate::serve`] until a stop signal.

mod reload;
mod signals;

use std::{
    io::{self, IsTerminal as _, Write as _},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use self::reload::ConfigReloader;
use self::signals::{Signals, wait_for_second_stop};
use super::{
    CommandError, CommandResult, find_reachable,
    proxy_file::{ProxyFile, RunningProxy},
    proxy_socket::{SocketOffer, take_input},
    run::find_running,
};
use crate::{
    CurrentConfig,
    config::{Auth, ConfigWatcher, DataDir, Environment, Flags, LoadedConfig},
    http::lease::{LeaseSecret, Leases},
    provider::fit_body_to_windows,
    proxy::App,
    telemetry,
};

/// How long a proxy that ends by itself waits for its first client.
const FIRST_LEASE_WITHIN: Duration = Duration::from_secs(60);

/// How long a thread of the blocking pool waits for work before it ends. Until then it keeps the memory that the allocator
/// gave it for large bodies. The settings are polled on these threads twice a second, each time on the one that waited longest:
/// with tokio's 10 s, a burst's threads would never end.
const KEEP_ALIVE: Duration = Duration::from_millis(500);

#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct ServeArgs {
    // For a proxy that `plimsoll run` has started: it tells that command where it is, and ends by itself.
    /// End when nobody has used the proxy for this long
    #[arg(long, hide = true, value_name = "MILLISECONDS")]
    end_unused_ms: Option<u64>,
    // The socket is bound to the address of `--listen`.
    /// Listen on the socket that is the standard input
    #[arg(long, hide = true)]
    listen_on_input: bool,
}

pub(super) fn run(args: &ServeArgs, flags: &Flags, environment: &Environment) -> CommandResult {
    let mut watch = ConfigWatcher::new(flags, environment);
    let mut loaded = watch.load_config()?;
    fit_body_to_windows(&mut loaded.config);
    let _log = telemetry::start_logging().map_err(CommandError::Start)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().thread_keep_alive(KEEP_ALIVE);
    let runtime = builder.build().map_err(CommandError::Start)?;
    let data_dir = loaded.config.server.data_dir.clone();
    let served = runtime.block_on(async {
        match serve_until_stopped(loaded, watch, args).await {
            Err(error) => Err(name_other_proxy(error, &data_dir).await),
            served => served,
        }
    });
    // A second stop signal ends the process at once, even while a blocking task waits for the disk.
    runtime.shutdown_background();
    served
}

async fn serve_until_stopped(
    loaded: LoadedConfig,
    watch: ConfigWatcher,
    args: &ServeArgs,
) -> CommandResult {
    let end_unused = args.end_unused_ms.map(Duration::from_millis);
    // The handlers are installed before the port opens, so that an early stop signal drains too.
    let Signals { stop, reload } = Signals::new().map_err(CommandError::Start)?;
    let listener = if args.listen_on_input {
        take_input().map_err(CommandError::Start)?
    } else {
        bind_listener(loaded.config.server.listen).await?
    };
    // Without it, the proxy and one keeper hold the socket.
    let offer = args
        .listen_on_input
        .then(|| SocketOffer::open(&listener).ok());
    let offer = offer.flatten();
    let current = CurrentConfig::new(loaded.config.clone()).await;
    let current = Arc::new(current.map_err(CommandError::Start)?);
    let reloader = ConfigReloader::from_loaded(Arc::clone(&current), watch, &loaded);
    log_startup(&loaded, &listener).map_err(CommandError::Start)?;
    print_page_link(&current.app(), &listener).map_err(CommandError::Start)?;
    let proxy = open_leases(&current.app().leases, &loaded, &listener, offer.as_ref());
    let proxy = proxy.map_err(CommandError::Start)?;
    let file = write_proxy_file(&loaded, &proxy);
    if end_unused.is_some() {
        print_to_starter(&proxy)?;
    }
    let stopping = CancellationToken::new();
    let unused = async {
        match end_unused {
            Some(limit) => wait_until_unused(&current, limit).await,
            None => std::future::pending().await,
        }
        tracing::info!("stopping: no client uses the proxy any more");
        stopping.cancel();
    };
    let stopped = async {
        let keepers_go_on = tokio::select! {
            () = stopping.cancelled() => offer.is_some(),
            () = unused => false,
        };
        // `plimsoll run` must not find a proxy that is about to end. But where keepers bring it back at its address, a later
        // one waits for that.
        if let Some(file) = file.filter(|_| keepers_go_on) {
            file.leave();
        }
    };
    let second_stop = async {
        let reloads = stopping.run_until_cancelled(reloader.run(reload));
        tokio::join!(wait_for_second_stop(stop, &stopping), reloads);
    };
    let answer_keepers = async {
        match &offer {
            Some(offer) => offer.answer().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = answer_keepers => {}
        served = crate::serve(Arc::clone(&current), listener, stopped) => {
            served.map_err(CommandError::Start)?;
        }
        () = second_stop => {}
    }
    tracing::info!("stopped");
    Ok(())
}

/// Says which proxy has the address or the data directory that this one needs.
async fn name_other_proxy(error: CommandError, data_dir: &DataDir) -> CommandError {
    let wanted = match &error {
        CommandError::AddressInUse(address) => Some(find_reachable(*address)),
        CommandError::Start(error) if error.kind() == io::ErrorKind::ResourceBusy => None,
        _ => return error,
    };
    let other = match data_dir.path() {
        Some(path) => find_running(path).await,
        None => None,
    };
    match other.filter(|it| wanted.is_none_or(|wanted| wanted == it.address)) {
        Some(other) => CommandError::OtherProxy(Box::new(error), other.describe()),
        None => error,
    }
}

pub(super) async fn bind_listener(address: SocketAddr) -> Result<TcpListener, CommandError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => CommandError::AddressInUse(address),
        _ => CommandError::Listen { address, source },
    })
}

/// Lets `plimsoll run` hold this proxy.
fn open_leases(
    leases: &Leases,
    loaded: &LoadedConfig,
    listener: &TcpListener,
    offer: Option<&SocketOffer>,
) -> io::Result<RunningProxy> {
    let address = find_reachable(listener.local_addr()?);
    let secret = LeaseSecret::random().map_err(io::Error::other)?;
    leases.open(secret.clone(), address);
    Ok(RunningProxy {
        address,
        process: std::process::id(),
        settings: RunningProxy::name_settings(loaded),
        secret,
        socket: offer.map(|offer| offer.name.clone()),
    })
}

/// A proxy that cannot be found serves all the same.
fn write_proxy_file(loaded: &LoadedConfig, proxy: &RunningProxy) -> Option<ProxyFile> {
    let written = ProxyFile::write(&loaded.config.server.data_dir, proxy);
    let warn = |error: &io::Error| {
        tracing::warn!(%error, "proxy.json cannot be written to the data directory: `plimsoll run` does not find this proxy");
    };
    written.inspect_err(warn).ok().flatten()
}

/// Tells the command that has started this process, which then closes the pipe.
fn print_to_starter(proxy: &RunningProxy) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{}", serde_json::to_string(proxy)?)?;
    out.flush()
}

/// Returns once nobody has held the proxy or asked it for anything for that long.
async fn wait_until_unused(current: &CurrentConfig, limit: Duration) {
    loop {
        let app = current.app();
        let is_busy = app.metrics.requests_in_flight.get() > 0;
        let unused = app.leases.unused_for().filter(|_| !is_busy);
        // Who has started it may be slow.
        let is_new = !app.leases.was_held();
        let until_end = if is_new {
            limit.max(FIRST_LEASE_WITHIN)
        } else {
            limit
        };
        match until_end.checked_sub(unused.unwrap_or_default()) {
            None | Some(Duration::ZERO) => return,
            Some(left) => sleep(left.min(limit)).await,
        }
    }
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
            "provider {name} is configured"
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
