//! Starts a proxy as a process of its own, which ends by itself when nobody uses it any more.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use tokio::{task::spawn_blocking, time::timeout};

use super::own_command;
use crate::{
    cli::{proxy_file::RunningProxy, proxy_socket::ProxySocket},
    config::Flags,
};

/// What the proxy logs, from its start on.
const LOG_NAME: &str = "run.log";

/// How long a proxy may take to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(60);

/// Starts a proxy that listens on a socket, and waits until it does.
///
/// # Errors
/// Why it does not, as the proxy says it.
pub(super) async fn start_proxy(
    flags: &Flags,
    socket: &ProxySocket,
    end_unused_ms: u64,
    data_dir: Option<&Path>,
) -> Result<(RunningProxy, Child), String> {
    let begin = || {
        let log = open_log(data_dir)?;
        let mut command = own_command(flags)?;
        command.args(["serve", "--end-unused-ms", &end_unused_ms.to_string()]);
        socket.pass_to(&mut command)?;
        if ["PLIMSOLL_LOG", "RUST_LOG"]
            .iter()
            .all(|it| std::env::var_os(it).is_none())
        {
            command.env("PLIMSOLL_LOG", "warn");
        }
        let child = command
            .stdout(Stdio::piped())
            .stderr(log.try_clone()?)
            .spawn()?;
        io::Result::Ok((log, child))
    };
    let (log, mut child) = begin().map_err(|error| format!("no proxy can be started: {error}"))?;
    let out = child.stdout.take();
    let read = spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(out?).read_line(&mut line).ok()?;
        serde_json::from_str::<RunningProxy>(&line).ok()
    });
    match timeout(LISTENS_WITHIN, read).await {
        Ok(Ok(Some(proxy))) => Ok((proxy, child)),
        _ => {
            let _ = child.kill();
            let _ = child.wait();
            Err(read_failure(log))
        }
    }
}

/// A file that nobody else can read; without a data directory, one that goes with the process.
fn open_log(data_dir: Option<&Path>) -> io::Result<File> {
    let Some(folder) = data_dir else {
        return tempfile::tempfile();
    };
    fs::create_dir_all(folder)?;
    open_private(&folder.join(LOG_NAME)).and_then(|log| log.set_len(0).map(|()| log))
}

/// Opens or makes a file for its owner alone. What is written goes to its end.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt as _;
        // A link could lead to a file that is not the proxy's.
        options
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(path).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot use {}: {error}", path.display()),
        )
    })
}

/// The last words of a proxy: the message of its command, else all that it logged.
fn read_failure(mut log: File) -> String {
    const SAYS: &str = "plimsoll: ";
    let mut text = String::new();
    let read = log.rewind().and_then(|()| log.read_to_string(&mut text));
    let said = text
        .rfind(SAYS)
        .map_or(&*text, |at| &text[at + SAYS.len()..]);
    match (read, said.trim()) {
        (Ok(_), said) if !said.is_empty() => said.to_owned(),
        _ => "the proxy ended before it listened, and did not say why".to_owned(),
    }
}
