//! The real binary as a process: its settings, signals and log.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{client::TestClient, provider::ScriptedProvider, proxy::within_time};

/// Is killed when dropped.
pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    child: Child,
    lines: UnboundedReceiver<String>,
    reader: Option<JoinHandle<()>>,
}

/// A settings file in a temporary folder, which holds the data too.
pub(crate) struct Settings {
    pub(crate) folder: TempDir,
    pub(crate) file: PathBuf,
    start: String,
}

impl Settings {
    /// A proxy on a free port before `up`.
    pub(crate) fn new(up: &ScriptedProvider) -> Self {
        Self::with_server(up, "")
    }

    /// The same with more lines in its `[server]`.
    pub(crate) fn with_server(up: &ScriptedProvider, server: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {:?}\n{server}\n\
             [providers.up]\nbase_url = \"http://{}/v1\"\nauth = \"none\"\nask_models = false\n",
            folder.path().join("data"),
            up.address
        );
        Self {
            file: folder.path().join("config.toml"),
            folder,
            start,
        }
    }

    /// The content of the file with these lines at its end; lines before the first section belong
    /// to the provider.
    pub(crate) fn with_lines(&self, lines: &str) -> String {
        format!("{}{lines}\n", self.start)
    }

    pub(crate) fn write(&self, lines: &str) {
        std::fs::write(&self.file, self.with_lines(lines)).unwrap();
    }
}

/// Tests ask nobody outside.
pub(crate) const NO_CATALOGUE: [(&str, &str); 1] = [("PLIMSOLL_CATALOGUE__URL", "")];

/// The command with a home of its own, so that it finds neither settings nor data of whoever runs the tests.
pub(crate) fn at_home<'c>(command: &'c mut Command, home: &Path) -> &'c mut Command {
    for variable in [
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "STATE_DIRECTORY",
        "PLIMSOLL_CONFIG",
    ] {
        command.env_remove(variable);
    }
    command.env("HOME", home)
}

impl Process {
    /// With the settings of that file.
    pub(crate) async fn start(settings: &Path) -> Self {
        Self::run(|command| command.arg("--config").arg(settings)).await
    }

    /// Returns once the process listens.
    pub(crate) async fn run(with: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.envs(NO_CATALOGUE);
        let mut child = with(&mut command)
            .env_remove("PLIMSOLL_LOG")
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = unbounded_channel();
        let reader = thread::spawn(move || {
            for line in log.lines() {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut process = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            child,
            lines,
            reader: Some(reader),
        };
        let line = process.wait_for_line("listening on").await;
        process.address = line["listen"].as_str().unwrap().parse().unwrap();
        process
    }

    pub(crate) fn client(&self) -> TestClient {
        TestClient::http1(self.address)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal: `HUP`, `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// The next line of the log; `None` once the process has ended.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// The next line of the log that contains these words.
    pub(crate) async fn wait_for_line(&mut self, words: &str) -> Value {
        self.wait_for_first_line(&[words]).await.1
    }

    /// The next line of the log that contains any of these words, and the index of the words.
    pub(crate) async fn wait_for_first_line(&mut self, words: &[&str]) -> (usize, Value) {
        loop {
            let line = within_time(self.lines.recv()).await;
            let line = line.unwrap_or_else(|| panic!("it ended without {words:?}"));
            if let Some(at) = words.iter().position(|words| line.contains(words)) {
                return (at, serde_json::from_str(&line).unwrap());
            }
        }
    }

    /// Waits for the end; returns the exit status and the rest of the log.
    pub(crate) async fn wait_for_end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        // The log ends with the process.
        while let Some(line) = within_time(self.lines.recv()).await {
            rest.push_str(&line);
            rest.push('\n');
        }
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
