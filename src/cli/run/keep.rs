//! The keeper of `plimsoll run`: finds the proxy of the data directory or starts one, holds it while the client runs, and
//! starts it again on the same port where it ends before.
//!
//! SECURITY: a client knows an address, to which it sends its credentials. Where the proxy cannot come back there, the
//! keeper stops the client.

use std::{
    fs::{File, TryLockError, create_dir_all},
    io::{self, Write as _},
    net::SocketAddr,
    process::Child,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{
    KeptProxy, Limits,
    lease::HeldProxy,
    start::{open_private, start_proxy},
};
use crate::{
    cli::{CommandError, CommandResult, block_on, proxy_file::RunningProxy},
    config::{Environment, Flags, LoadedConfig, load_config},
    session::installation_secret::InstallationSecret,
};

/// Held while a proxy is looked for or started, so that no two are.
const LOCK_NAME: &str = "run.lock";
/// A proxy may take a minute to listen.
const LOCK_WITHIN: Duration = Duration::from_secs(90);
/// Longer than running answers may take to end (`server.drain_timeout_ms`), as it is by default.
const ENDS_WITHIN: Duration = Duration::from_secs(40);

/// For the answer of a proxy that is looked for. While the client already sends to that address, less: whoever listens
/// there now may be somebody else.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
const AGAIN_WITHIN: Duration = Duration::from_secs(3);

/// A proxy that ends this soon after its start, this often in a row, is not started again.
const SOON: Duration = Duration::from_secs(5);
const MOST_SOON_ENDS: u32 = 3;

/// How long a client may take to end after SIGTERM.
const CLIENT_ENDS_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);

#[derive(clap::Args, Clone, Debug)]
pub(in crate::cli) struct KeepArgs {
    /// Process id of the client
    #[arg(long)]
    client: u32,
    #[command(flatten)]
    limits: Limits,
}

/// Exit code 2: the settings cannot be used; 1: all else.
pub(in crate::cli) fn keep(
    args: &KeepArgs,
    flags: &Flags,
    environment: &Environment,
) -> CommandResult {
    let loaded = load_config(flags, environment)?;
    let key = find_key(&loaded, environment).map_err(CommandError::Start)?;
    let mut keeper = Keeper {
        flags,
        loaded,
        limits: args.limits,
        started: None,
    };
    block_on(async {
        let held = keeper.find_or_start(None).await?;
        let kept = KeptProxy {
            base: format!("http://{}", held.address),
            key,
            data_dir: keeper.loaded.config.server.data_dir.path().map(Into::into),
        };
        print_answer(&kept).map_err(|error| error.to_string())?;
        tokio::select! {
            () = wait_for_client(args.client) => Ok(()),
            Err(reason) = keeper.keep_running(held) => {
                stop_client(args.client).await;
                Err(format!("{reason}. The client was stopped, so that nothing of it goes elsewhere"))
            }
        }
    })?
    .map_err(CommandError::Command)
}

fn print_answer(kept: &KeptProxy) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{}", serde_json::to_string(kept)?)?;
    out.flush()
}

/// What the client names itself by at the proxy, so that its sessions outlive a renewed token. Where the proxy has client
/// keys, the user's is in `PLIMSOLL_KEY`.
fn find_key(loaded: &LoadedConfig, environment: &Environment) -> io::Result<Option<String>> {
    if !loaded.config.clients.is_empty() {
        let key = environment.get_variable("PLIMSOLL_KEY");
        if key.is_none() {
            say(
                "the settings have client keys: set PLIMSOLL_KEY to one, unless the client sends one itself",
            );
        }
        return Ok(key.map(str::to_owned));
    }
    let server = &loaded.config.server;
    let secret = match (&server.secret, server.data_dir.path()) {
        (Some(secret), _) => Ok(InstallationSecret::from_bytes(*secret.reveal())),
        (None, Some(folder)) => InstallationSecret::load_or_create(folder),
        (None, None) => InstallationSecret::random(),
    };
    let secret = secret.map_err(io::Error::other)?;
    let digest = blake3::keyed_hash(secret.as_bytes(), b"the key of plimsoll run");
    Ok(Some(hex::encode(&digest.as_bytes()[..16])))
}

struct Keeper<'k> {
    flags: &'k Flags,
    loaded: LoadedConfig,
    limits: Limits,
    /// The newest proxy that this process has started.
    started: Option<Child>,
}

impl Keeper<'_> {
    /// The proxy of the data directory, else a new one; `known`: the address that the client knows.
    async fn find_or_start(&mut self, known: Option<SocketAddr>) -> Result<HeldProxy, String> {
        let data_dir = self.loaded.config.server.data_dir.path();
        let _lock = self.lock().await?;
        let recorded = data_dir.and_then(RunningProxy::read);
        if let Some(proxy) = &recorded
            && let Some(held) = HeldProxy::take(
                proxy,
                if known.is_some() {
                    AGAIN_WITHIN
                } else {
                    FOUND_WITHIN
                },
            )
            .await
        {
            self.check_found(proxy, known)?;
            return Ok(held);
        }
        // After a crash, clients may still know the old port.
        let before = recorded
            .map(|proxy| proxy.address)
            .filter(|it| it.ip().is_loopback());
        let wanted = known
            .map(|known| known.to_string())
            .or(self.flags.listen.clone());
        let any = "127.0.0.1:0".to_owned();
        let places = match wanted {
            Some(wanted) => vec![wanted],
            None => before
                .map(|it| it.to_string())
                .into_iter()
                .chain([any])
                .collect(),
        };
        let mut reason = String::new();
        for listen in places {
            let limit = self.limits.end_unused_ms;
            match start_proxy(self.flags, &listen, limit, data_dir).await {
                Ok((proxy, child)) => {
                    self.started = Some(child);
                    let held = HeldProxy::take(&proxy, FOUND_WITHIN).await;
                    return held.ok_or("the proxy ended right after its start".to_owned());
                }
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    /// `None` without a data directory: nobody else finds a proxy of this process.
    async fn lock(&self) -> Result<Option<File>, String> {
        let Some(folder) = self.loaded.config.server.data_dir.path() else {
            return Ok(None);
        };
        let lock = create_dir_all(folder).and_then(|()| open_private(&folder.join(LOCK_NAME)));
        let lock = lock.map_err(|error| error.to_string())?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Some(lock)),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WITHIN => sleep(POLL).await,
                Err(TryLockError::WouldBlock) => {
                    return Err(
                        "another `plimsoll run` has been starting a proxy for too long".to_owned(),
                    );
                }
                Err(TryLockError::Error(error)) => {
                    return Err(format!(
                        "cannot lock {LOCK_NAME} in the data directory: {error}"
                    ));
                }
            }
        }
    }

    /// A client is not passed on to another address, nor to a proxy of other settings.
    fn check_found(&self, proxy: &RunningProxy, known: Option<SocketAddr>) -> Result<(), String> {
        let address = proxy.address;
        if let Some(known) = known.filter(|known| *known != address) {
            return Err(format!(
                "the proxy at {known} ended, and runs at {address} now"
            ));
        }
        if proxy.settings == RunningProxy::name_settings(&self.loaded) {
            return Ok(());
        }
        let settings = proxy
            .settings
            .as_ref()
            .map(|file| file.display().to_string());
        Err(format!(
            "the proxy of this data directory runs at {address}, with {}: stop it (process {}), use the same settings, or \
             set another server.data_dir",
            settings.as_deref().unwrap_or("no settings file"),
            proxy.process
        ))
    }

    /// Returns with the reason why the proxy cannot come back.
    async fn keep_running(&mut self, mut held: HeldProxy) -> Result<(), String> {
        let mut soon_ends = 0;
        loop {
            let begun = Instant::now();
            held.wait_for_end().await;
            soon_ends = if begun.elapsed() < SOON {
                soon_ends + 1
            } else {
                0
            };
            let address = held.address;
            if soon_ends == MOST_SOON_ENDS {
                return Err(format!("the proxy at {address} ends again and again"));
            }
            self.wait_until_gone(held.process).await;
            let found = self.find_or_start(Some(address)).await;
            held = found.map_err(|reason| format!("the proxy at {address} ended: {reason}"))?;
            say(&format!(
                "the proxy ended, and runs again at http://{address}"
            ));
        }
    }

    /// A proxy that was told to stop lets running answers end, and has the data directory until then.
    async fn wait_until_gone(&mut self, process: u32) {
        let begun = Instant::now();
        let mut own = self.started.take().filter(|child| child.id() == process);
        let mut is_gone = || match &mut own {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => !is_running(process),
        };
        while begun.elapsed() < ENDS_WITHIN && !is_gone() {
            sleep(POLL).await;
        }
    }
}

fn say(message: &str) {
    // Where standard error is closed, nobody reads.
    let _ = writeln!(io::stderr().lock(), "plimsoll: {message}");
}

#[cfg(unix)]
mod processes {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};
    use tokio::time::{Instant, sleep};

    use super::{CLIENT_ENDS_WITHIN, POLL};

    fn parse_id(process: u32) -> Option<Pid> {
        Pid::from_raw(i32::try_from(process).ok()?)
    }

    pub(super) fn is_running(process: u32) -> bool {
        // A zombie has ended: in a container there may be nobody to reap it.
        let status = std::fs::read_to_string(format!("/proc/{process}/stat"));
        let has_ended = status.is_ok_and(|status| status.contains(") Z "));
        !has_ended && parse_id(process).is_some_and(|id| test_kill_process(id).is_ok())
    }

    /// The client is the parent, and keeps its process id to its end.
    fn is_client(client: u32) -> bool {
        std::os::unix::process::parent_id() == client
    }

    pub(super) async fn wait_for_client(client: u32) {
        while is_client(client) {
            sleep(POLL).await;
        }
    }

    pub(super) async fn stop_client(client: u32) {
        for signal in [Signal::TERM, Signal::KILL] {
            let begun = Instant::now();
            if let Some(id) = parse_id(client).filter(|_| is_client(client)) {
                // It may end by itself meanwhile.
                let _ = kill_process(id, signal);
            }
            while is_client(client) && begun.elapsed() < CLIENT_ENDS_WITHIN {
                sleep(POLL).await;
            }
        }
    }
}

/// The command waits for the client and for this process, and stops the client where this one ends first.
#[cfg(not(unix))]
mod processes {
    use tokio::{io::AsyncReadExt as _, task::yield_now};

    pub(super) fn is_running(_process: u32) -> bool {
        false
    }

    /// The input ends with the command.
    pub(super) async fn wait_for_client(_client: u32) {
        let _ = tokio::io::stdin().read_u8().await;
    }

    pub(super) async fn stop_client(_client: u32) {
        yield_now().await;
    }
}

use processes::{is_running, stop_client, wait_for_client};
