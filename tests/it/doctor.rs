//! `plimsoll doctor` in broken set-ups, each on real sockets: it names the cause and the remedy, and shows no key.

mod clients;
mod machine;
mod providers;

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    ScriptedProvider, answer,
    process::{Process, Settings},
    redis::Redis,
};

const SECRET: &str = "sk-never-shown";

/// A folder with settings, data and a home, and what the environment of the command has.
struct SetUp {
    folder: TempDir,
    listen: SocketAddr,
    lines: String,
    variables: Vec<(String, String)>,
}

/// What is expected of a finding: its level, and words of its subject, cause and remedy.
struct Expected<'e> {
    level: &'e str,
    subject: &'e str,
    cause: &'e str,
    remedy: &'e str,
}

impl SetUp {
    fn new(lines: impl Into<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        Self {
            folder,
            listen: free_address(),
            lines: lines.into(),
            variables: vec![("KEY".to_owned(), SECRET.to_owned())],
        }
    }

    /// Before a provider at that address, with more lines of its section and behind it.
    fn before(base_url: &str, lines: &str) -> Self {
        Self::new(format!(
            "[providers.up]\nbase_url = \"{base_url}\"\n{lines}\n"
        ))
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("config.toml")
    }

    /// Writes the settings, unless they are there, and runs the command.
    fn run(&self, arguments: &[&str]) -> Output {
        let (file, data) = (self.file(), self.data());
        if !file.exists() {
            let server = format!(
                "[server]\nlisten = \"{}\"\ndata_dir = {data:?}\nknown_providers = false\n[catalogue]\nurl = \"\"\n",
                self.listen
            );
            fs::write(&file, server + &self.lines).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let command = command
            .args(["doctor", "--config"])
            .arg(&file)
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null());
        tokio::task::block_in_place(|| command.output().unwrap())
    }

    /// The report, which holds no key, and whether the exit code is 0.
    fn examine(&self) -> (Value, bool) {
        let done = self.run(&["--json"]);
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(!text.contains(SECRET), "{text}");
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (report, done.status.success())
    }

    #[track_caller]
    fn finds(&self, expected: Expected) {
        let (report, is_healthy) = self.examine();
        let is_fault = expected.level == "fault";
        assert_eq!(report["healthy"], is_healthy);
        assert!(!(is_fault && is_healthy), "{report:#}");
        let has = |finding: &Value, key: &str, words: &str| {
            finding[key].as_str().is_some_and(|it| it.contains(words))
        };
        let found = report["findings"].as_array().unwrap().iter().any(|it| {
            it["level"] == expected.level
                && has(it, "subject", expected.subject)
                && has(it, "cause", expected.cause)
                && has(it, "remedy", expected.remedy)
        });
        let Expected {
            level,
            subject,
            cause,
            remedy,
        } = expected;
        assert!(
            found,
            "no {level} of {subject}: {cause} -> {remedy} in\n{report:#}"
        );
    }
}

/// Nobody listens on a port that was released.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A provider that answers every request so.
async fn provider(status: &'static str, headers: &'static str, body: Value) -> ScriptedProvider {
    let body = body.to_string();
    ScriptedProvider::start_answering(move |_| vec![answer(status, headers, &body)]).await
}

fn base_url(of: &ScriptedProvider) -> String {
    format!("http://{}/v1", of.address)
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const LISTED: &str = "listed";

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_set_up_has_no_fault() {
    let up = provider(
        "200 OK",
        "",
        json!({"data": [{"id": LISTED, "meta": {"n_ctx": 8192}}]}),
    )
    .await;
    let set_up = SetUp::before(&base_url(&up), "api_key_env = \"KEY\"");
    let (report, is_healthy) = set_up.examine();
    assert!(is_healthy && report["healthy"] == true, "{report:#}");
    for finding in report["findings"].as_array().unwrap() {
        assert_ne!(finding["level"], "fault");
        let has_remedy = finding["remedy"].is_string();
        assert_eq!(has_remedy, finding["level"] != "ok", "{finding}");
    }
    // Lists are all that is asked for.
    let asked = up.requests(2).await;
    assert!(asked.iter().all(|it| it.line.starts_with("GET /v1/models")));
    let shown = String::from_utf8(set_up.run(&[]).stdout).unwrap();
    assert!(
        shown.contains("ok       providers.up: can be reached, and takes the key"),
        "{shown}"
    );
    assert!(
        shown.contains("\nfaults: 0, warnings: 0, sound: "),
        "{shown}"
    );
    // A running proxy is no fault, nor is what it has open.
    let process = Process::run(|command| {
        command
            .arg("--config")
            .arg(set_up.file())
            .env("KEY", SECRET)
    })
    .await;
    assert_eq!(process.address, set_up.listen);
    let (report, is_healthy) = set_up.examine();
    assert!(is_healthy, "{report:#}");
    assert!(report.to_string().contains("a proxy runs at"), "{report:#}");
}
