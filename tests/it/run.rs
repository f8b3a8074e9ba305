//! `plimsoll run` as processes: a client through a proxy that is found or started. The clients are shells, which print what
//! they got and end when they are told to.

mod crashes;

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
        .args(["run", "--end-unused-ms", end_unused_ms]);
    command
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
    let got = TestClient::new(address, false).chat(ASK).await;
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

/// The stand-in has the program's name. The user's own headers stay.
#[tokio::test]
async fn claude_gets_a_header_that_names_the_account_of_the_data_directory() {
    let home = Home::new();
    let programs = home.folder.path().join("bin");
    fs::create_dir(&programs).unwrap();
    let claude = programs.join("claude");
    fs::write(
        &claude,
        "#!/bin/sh\necho \"$ANTHROPIC_BASE_URL\"\necho \"$ANTHROPIC_CUSTOM_HEADERS\"\n",
    )
    .unwrap();
    assert!(
        Command::new("chmod")
            .arg("700")
            .arg(&claude)
            .status()
            .unwrap()
            .success()
    );
    let run = async || {
        let mut command = home.command(STAYS);
        command
            .arg(&claude)
            .env("ANTHROPIC_CUSTOM_HEADERS", "x-mine: yes");
        finish(&mut command).await.1
    };
    let printed = run().await;
    let lines: Vec<_> = printed.lines().collect();
    let key = lines[2].strip_prefix("x-plimsoll-key: ").unwrap();
    assert_eq!((lines[1], key.len()), ("x-mine: yes", 32));
    assert_eq!(run().await, printed, "the same proxy and the same key");
    let secret = fs::read_to_string(home.data().join("secret")).unwrap();
    assert!(!secret.contains(key));
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

#[tokio::test]
async fn two_at_once_share_a_proxy_which_outlives_one_that_is_killed() {
    let home = Home::new();
    let (mut one, mut other) = (home.run(ENDS_SOON), home.run(ENDS_SOON));
    let address = one.address().await;
    assert_eq!(other.address().await, address);
    let process = home.process();
    send_signal("KILL", one.child.id().into());
    one.wait().await;
    // Longer than a proxy without clients lives.
    tokio::time::sleep(SOON * 3).await;
    assert_serves(address).await;
    assert_eq!(home.process(), process);
    other.end_with(5).await;
    wait_until(async || is_closed(address).await && home.proxy().is_none()).await;
    assert!(!home.data().join("proxy.json").exists());
}

#[tokio::test]
async fn a_proxy_of_the_users_own_is_used_and_stays() {
    let home = Home::new();
    let listen = ["--listen", "127.0.0.1:0"];
    let own = Process::run(|command| {
        at_home(command, home.folder.path())
            .current_dir("/")
            .args(listen)
    })
    .await;
    let mut client = home.run(ENDS_SOON);
    assert_eq!(client.address().await, own.address);
    client.end_with(0).await;
    assert_serves(own.address).await;
    own.signal("TERM");
    assert!(own.wait_for_end().await.0.success());
    assert!(home.proxy().is_none(), "it has taken its file away");
}

#[tokio::test]
async fn a_proxy_of_other_settings_is_refused_by_name() {
    let home = Home::new();
    let mut client = home.run(STAYS);
    let address = client.address().await;
    let settings = home.folder.path().join("other.toml");
    fs::write(&settings, "[guard]\nreserve_tokens = 4321\n").unwrap();
    let mut other = home.command(STAYS);
    other
        .arg("--config")
        .arg(&settings)
        .args(["echo", "started"]);
    let (status, printed, said) = finish(&mut other).await;
    assert_eq!((status.code(), &*printed), (Some(1), ""));
    let expected = format!(
        "plimsoll: the proxy of this data directory runs at {address}, with no settings file: stop it (process {}), use \
         the same settings, or set another server.data_dir\n",
        home.process()
    );
    assert_eq!(said, expected);
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let home = Home::new();
    let (status, _, said) = finish(home.command(STAYS).arg("no-such-program")).await;
    assert_eq!(status.code(), Some(127));
    assert!(
        said.starts_with("plimsoll: no-such-program cannot be started: "),
        "{said}"
    );
    let (status, _, said) = finish(home.command(STAYS).arg("/etc/passwd")).await;
    assert_eq!(status.code(), Some(126), "{said}");
    let wrong = home.folder.path().join("wrong.toml");
    fs::write(&wrong, "[guard]\nreserve_tokens = \"many\"\n").unwrap();
    let mut command = home.command(STAYS);
    command
        .arg("--config")
        .arg(&wrong)
        .args(["echo", "started"]);
    let (status, printed, said) = finish(&mut command).await;
    assert_eq!((status.code(), &*printed), (Some(2), ""));
    assert!(said.contains("guard.reserve_tokens"), "{said}");
    let folder = home.folder.path().join("file");
    fs::write(&folder, "").unwrap();
    let mut command = home.command(STAYS);
    command
        .env("PLIMSOLL_SERVER__DATA_DIR", &folder)
        .args(["echo", "started"]);
    let (status, printed, said) = finish(&mut command).await;
    assert_eq!((status.code(), &*printed), (Some(1), ""));
    assert!(
        said.contains("cannot use") && said.contains("file"),
        "{said}"
    );
}

/// Not even root can make a file there.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_a_home_or_with_one_that_is_read_only_each_client_has_a_proxy_of_its_own() {
    let nowhere = Path::new("/proc/nowhere");
    let run = |with_home: bool| {
        let mut command = command_at(nowhere, ENDS_SOON);
        if !with_home {
            command.env_remove("HOME");
        }
        Running::start(command.args(["sh", "-c", CLIENT]))
    };
    let (mut one, mut other) = (run(true), run(false));
    let addresses = [one.address().await, other.address().await];
    assert_ne!(addresses[0], addresses[1]);
    for address in addresses {
        assert_serves(address).await;
    }
    one.end_with(0).await;
    other.end_with(0).await;
    for address in addresses {
        wait_until(async || is_closed(address).await).await;
    }
}
