//! `plimsoll run` as processes: a client through a proxy that is found or started. The clients are shells, which print what
//! they got and end when they are told to.

mod clients;
mod crashes;
mod models;
#[cfg(target_os = "linux")]
mod port;
mod proxies;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpStream, task::spawn_blocking};

use crate::support::{
    Process, SOON, TestClient,
    process::{NO_CATALOGUE, at_home},
    within_time,
};

/// Longer than any test: the proxy stays.
const STAYS: &str = "3600000";
/// The time after which a proxy ends that nobody uses.
const ENDS_SOON: &str = "300";

const ASK: &str = r#"{"model":"simulated/plimsoll-8k","messages":[{"role":"user","content":"x"}]}"#;

/// Prints the address, waits for a line, and ends with its number.
const CLIENT: &str = r#"echo "$OPENAI_BASE_URL"; read code; exit "$code""#;

/// A user's home. The proxy that was started for it ends with the test.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join(".local/state/plimsoll")
    }

    /// What is written about the running proxy.
    fn proxy(&self) -> Option<Value> {
        let text = fs::read(self.data().join("proxy.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn process(&self) -> u64 {
        self.proxy().unwrap()["process"].as_u64().unwrap()
    }

    fn command(&self, end_unused_ms: &str) -> Command {
        command_at(self.folder.path(), end_unused_ms)
    }

    /// A proxy that the user has started.
    async fn start_own(&self) -> Process {
        Process::run(|command| {
            at_home(command, self.folder.path())
                .current_dir("/")
                .args(["--listen", "127.0.0.1:0"])
        })
        .await
    }

    /// A file that stands in for a client's program.
    fn stand_in(&self, name: &str, script: &str) -> PathBuf {
        let folder = self.folder.path().join("bin");
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join(name);
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&program, mode).unwrap();
        program
    }

    /// A client that waits.
    fn run(&self, end_unused_ms: &str) -> Running {
        Running::start(self.command(end_unused_ms).args(["sh", "-c", CLIENT]))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(proxy) = self.proxy() {
            send_signal("KILL", proxy["process"].as_u64().unwrap());
        }
    }
}

fn command_at(home: &Path, end_unused_ms: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    at_home(&mut command, home)
        .envs(NO_CATALOGUE)
        .current_dir("/")
        .env_remove("ANTHROPIC_CUSTOM_HEADERS")
        .env_remove("ANTHROPIC_MODEL")
        .env_remove("CLAUDE_CONFIG_DIR")
        .args(["run", "--end-unused-ms", end_unused_ms]);
    command
}

/// The keeper of a client: a child of its process.
#[cfg(target_os = "linux")]
fn find_keeper(client: &Running) -> u64 {
    let of_client = format!("PPid:\t{}\n", client.child.id());
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process = entry.unwrap().file_name().to_str()?.parse::<u64>().ok()?;
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status.contains(&of_client).then_some(process)
    });
    let found: Vec<u64> = processes.collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

fn send_signal(name: &str, process: u64) {
    let kill = Command::new("kill")
        .args([format!("-{name}"), process.to_string()])
        .stderr(Stdio::null())
        .status();
    kill.unwrap();
}

/// A client that runs. Is killed when dropped.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    errors: Option<BufReader<ChildStderr>>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let pipe = Stdio::piped;
        let child = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn();
        let mut child = child.unwrap();
        Self {
            input: child.stdin.take(),
            output: child.stdout.take().map(BufReader::new),
            errors: child.stderr.take().map(BufReader::new),
            child,
        }
    }

    /// The next line that the client prints.
    async fn line(&mut self) -> String {
        let mut output = self.output.take().unwrap();
        let read = spawn_blocking(move || {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            (output, line)
        });
        let (output, line) = within_time(read).await.unwrap();
        self.output = Some(output);
        line.trim().to_owned()
    }

    /// The next line that the command or its keeper says.
    async fn said(&mut self) -> String {
        let mut errors = self.errors.take().unwrap();
        let read = spawn_blocking(move || {
            let mut line = String::new();
            errors.read_line(&mut line).unwrap();
            (errors, line)
        });
        let (errors, line) = within_time(read).await.unwrap();
        self.errors = Some(errors);
        line.trim().to_owned()
    }

    /// The address of the proxy, as the client got it.
    async fn address(&mut self) -> SocketAddr {
        let url = self.line().await;
        let address = url
            .strip_prefix("http://")
            .and_then(|it| it.strip_suffix("/v1"));
        address
            .unwrap_or_else(|| panic!("no address: {url}"))
            .parse()
            .unwrap()
    }

    async fn end_with(mut self, code: i32) {
        writeln!(self.input.take().unwrap(), "{code}").unwrap();
        assert_eq!(self.wait().await.0.code(), Some(code));
    }

    /// The exit status, and what was printed and said until then.
    async fn wait(mut self) -> (ExitStatus, String, String) {
        let (output, errors) = (self.output.take(), self.errors.take());
        let mut child = std::mem::replace(&mut self.child, Command::new("true").spawn().unwrap());
        let rest = |reader: Option<&mut dyn Read>| {
            let mut text = String::new();
            reader.unwrap().read_to_string(&mut text).unwrap();
            text
        };
        let waited = spawn_blocking(move || {
            let (mut output, mut errors) = (output, errors);
            let status = child.wait().unwrap();
            let output = rest(output.as_mut().map(|it| it as &mut dyn Read));
            let errors = rest(errors.as_mut().map(|it| it as &mut dyn Read));
            (status, output, errors)
        });
        within_time(waited).await.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn finish(command: &mut Command) -> (ExitStatus, String, String) {
    let mut running = Running::start(command);
    drop(running.input.take());
    running.wait().await
}

async fn wait_until(mut is_so: impl AsyncFnMut() -> bool) {
    within_time(async {
        while !is_so().await {
            tokio::time::sleep(SOON / 10).await;
        }
    })
    .await;
}

async fn is_closed(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_err()
}

async fn assert_serves(address: SocketAddr) {
    let got = TestClient::http1(address).chat(ASK).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

#[tokio::test]
async fn a_client_gets_addresses_arguments_and_its_exit_code() {
    let home = Home::new();
    let script = r#"echo "$OPENAI_BASE_URL $ANTHROPIC_BASE_URL $*"; exit 7"#;
    let mut command = home.command(STAYS);
    command.args([
        "sh", "-c", script, "sh", "--config", "a b", "-x", "--", "--help",
    ]);
    let (status, printed, said) = finish(&mut command).await;
    let address = home.proxy().unwrap()["address"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(status.code(), Some(7), "{said}");
    assert_eq!(
        printed,
        format!("http://{address}/v1 http://{address} --config a b -x -- --help\n")
    );
    assert_eq!(said, "");
    assert_serves(address.parse().unwrap()).await;
}

#[tokio::test]
async fn signals_are_the_clients() {
    let home = Home::new();
    let script = r#"trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.01; done"#;
    let mut traps = Running::start(home.command(STAYS).args(["sh", "-c", script]));
    assert_eq!(traps.line().await, "ready");
    send_signal("TERM", traps.child.id().into());
    let (status, printed, _) = traps.wait().await;
    assert_eq!((status.code(), &*printed), (Some(9), "caught\n"));
    // INT and HUP may be ignored in whatever runs the tests, and so in its children.
    for (name, number) in [("TERM", 15), ("KILL", 9)] {
        let mut client = home.run(STAYS);
        client.address().await;
        send_signal(name, client.child.id().into());
        let (status, ..) = client.wait().await;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(number), "{name}");
    }
}
