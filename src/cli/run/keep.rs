//! The keeper of `plimsoll run`: finds the proxy of the data directory or starts one, holds it while the client runs, and
//! starts it again on the same port where it ends before.
//!
//! SECURITY: a client knows an address, to which it sends its credentials. The keeper holds the proxy's listening socket, so that
//! nobody else gets that address meanwhile. Where it has none and the proxy cannot come back there, it stops the client.

mod processes;

use std::{
    fs::{File, TryLockError, create_dir_all},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    process::Child,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use self::processes::{is_running, stop_client, wait_for_client};
use super::{
    KeptProxy, Limits,
    lease::HeldProxy,
    say,
    start::{open_private, start_proxy},
};
use crate::{
    cli::{
        CommandError, CommandResult, ask_proxy::KEY_VARIABLE, block_on, proxy_file::RunningProxy,
        proxy_socket::ProxySocket,
    },
    config::{Environment, Flags, LoadedConfig, load_config},
    session::installation_secret::InstallationSecret,
};

/// Held while a proxy is looked for or started, so that no two are.
const LOCK_NAME: &str = "run.lock";
/// A proxy may take a minute to listen.
const LOCK_WITHIN: Duration = Duration::from_secs(90);
/// How long a proxy that was stopped may take to end once its running answers have (`server.drain_timeout_ms`).
const ENDS_AFTER_DRAIN: Duration = Duration::from_secs(10);

/// For the answer of a proxy that is looked for. While the client already sends to that address, less: whoever listens
/// there now may be somebody else.
const FOUND_WITHIN: Duration = Duration::from_secs(10);
const AGAIN_WITHIN: Duration = Duration::from_secs(3);
/// For a keeper that holds the socket to bring a proxy back.
const RETURNS_WITHIN: Duration = Duration::from_secs(3);

const ANY_PORT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

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
        socket: None,
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
        let key = environment.get_variable(KEY_VARIABLE);
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
    Ok(Some(secret.derive_run_key()))
}

struct Keeper<'k> {
    flags: &'k Flags,
    loaded: LoadedConfig,
    limits: Limits,
    /// The newest proxy that this process has started.
    started: Option<Child>,
    /// That of the proxy, so that nobody else can listen there while this process lives. `None`: the proxy is its user's, who may
    /// start it again.
    socket: Option<ProxySocket>,
}

/// A proxy that ended, at an address that the client knows.
struct EndedProxy {
    address: SocketAddr,
    process: u32,
}

impl Keeper<'_> {
    /// The proxy of the data directory, else a new one.
    async fn find_or_start(&mut self, ended: Option<&EndedProxy>) -> Result<HeldProxy, String> {
        let mut taken_since = None;
        loop {
            // Without the lock: a listener that does not answer must not keep another keeper from bringing its proxy back.
            let recorded = self.read_recorded();
            if let Some(held) = self.find(recorded.as_ref(), ended).await? {
                return Ok(held);
            }
            let lock = self.lock().await?;
            let process = |proxy: Option<&RunningProxy>| proxy.map(|it| it.process);
            if process(self.read_recorded().as_ref()) != process(recorded.as_ref()) {
                continue;
            }
            let may_return =
                taken_since.is_none_or(|since: Instant| since.elapsed() < RETURNS_WITHIN);
            match self.open_socket(recorded.as_ref(), ended, may_return).await {
                Ok(()) => return self.start().await,
                // Another keeper may hold that socket.
                Err(CommandError::AddressInUse(taken))
                    if may_return && was_of_run(recorded.as_ref(), taken) =>
                {
                    taken_since.get_or_insert_with(Instant::now);
                }
                Err(error) => return Err(error.to_string()),
            }
            drop(lock);
            sleep(POLL).await;
        }
    }

    fn read_recorded(&self) -> Option<RunningProxy> {
        RunningProxy::read(self.loaded.config.server.data_dir.path()?)
    }

    /// The proxy that `proxy.json` names, if it is there.
    ///
    /// # Errors
    /// It is none for this client.
    async fn find(
        &mut self,
        recorded: Option<&RunningProxy>,
        ended: Option<&EndedProxy>,
    ) -> Result<Option<HeldProxy>, String> {
        // Where the socket is held, a proxy that is gone would be waited for.
        let is_gone = |proxy: &&RunningProxy| ended.is_some_and(|it| it.process == proxy.process);
        let Some(proxy) = recorded.filter(|proxy| !is_gone(proxy)) else {
            return Ok(None);
        };
        // Without the socket, somebody else may listen there, and get what the client sends meanwhile.
        let is_safe = ended.is_none() || self.socket.is_some();
        let within = if is_safe && is_running(proxy.process) {
            FOUND_WITHIN
        } else {
            AGAIN_WITHIN
        };
        let Some(held) = HeldProxy::take(proxy, within).await else {
            return Ok(None);
        };
        self.check_found(proxy, ended.map(|it| it.address))?;
        if self.socket.is_none() {
            self.socket = ProxySocket::ask_for(proxy).await;
        }
        Ok(Some(held))
    }

    /// `may_return`: whether to insist on the address of a proxy that has ended.
    async fn open_socket(
        &mut self,
        recorded: Option<&RunningProxy>,
        ended: Option<&EndedProxy>,
        may_return: bool,
    ) -> Result<(), CommandError> {
        if self.socket.is_some() {
            return Ok(());
        }
        let named = self.flags.listen.as_ref();
        let wanted = match ended {
            Some(ended) => Some(ended.address),
            None => named.map(|_| self.loaded.config.server.listen),
        };
        // After a crash, clients may still know the old port.
        let before = recorded
            .map(|proxy| proxy.address)
            .filter(|it| it.ip().is_loopback());
        let first = wanted.or(before).unwrap_or(ANY_PORT);
        let opened = match ProxySocket::bind(first).await {
            Err(CommandError::AddressInUse(taken))
                if wanted.is_none() && !(may_return && was_of_run(recorded, taken)) =>
            {
                ProxySocket::bind(ANY_PORT).await
            }
            opened => opened,
        };
        self.socket = Some(opened?);
        Ok(())
    }

    async fn start(&mut self) -> Result<HeldProxy, String> {
        let socket = self.socket.as_ref().ok_or("there is no socket")?;
        let data_dir = self.loaded.config.server.data_dir.path();
        let limit = self.limits.end_unused_ms;
        let (proxy, child) = start_proxy(self.flags, socket, limit, data_dir).await?;
        self.started = Some(child);
        let held = HeldProxy::take(&proxy, FOUND_WITHIN).await;
        held.ok_or_else(|| "the proxy ended right after its start".to_owned())
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
            let ended = EndedProxy {
                address,
                process: held.process,
            };
            self.wait_until_gone(ended.process).await;
            let found = self.find_or_start(Some(&ended)).await;
            held = found.map_err(|reason| format!("the proxy at {address} ended: {reason}"))?;
            say(&format!(
                "the proxy ended, and runs again at http://{address}"
            ));
        }
    }

    /// A proxy that was told to stop lets running answers end, and has the data directory until then.
    async fn wait_until_gone(&mut self, process: u32) {
        let begun = Instant::now();
        let limit = self.loaded.config.server.drain_timeout + ENDS_AFTER_DRAIN;
        let mut own = self.started.take().filter(|child| child.id() == process);
        let mut is_gone = || match &mut own {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => !is_running(process),
        };
        while begun.elapsed() < limit && !is_gone() {
            sleep(POLL).await;
        }
    }
}

/// Whether a proxy listened there whose socket keepers may hold.
fn was_of_run(recorded: Option<&RunningProxy>, address: SocketAddr) -> bool {
    recorded.is_some_and(|proxy| proxy.address == address && proxy.socket.is_some())
}
