//! The commands that the pages show, run against a proxy.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::json;

use super::{Page, documents, page, root};
use crate::support::process::{NO_CATALOGUE, Process, at_home};

/// What the pages call the address of the proxy.
const ADDRESS: &str = "127.0.0.1:1876";
const KEY: &str = "a-key";

/// Blocks of commands with one of these are not run: they take long, or stand for another place.
const NOT_RUN: [&str; 8] = [
    "cargo bench",
    "cargo test",
    "benches/engine/run",
    "benches/small_model/run",
    "tests/clients/more/run",
    "tests/run",
    "tests/engine/run",
    "tests/packages/run",
];

/// A function in the place of each command that is not to be run as it stands.
const PRELUDE: &str = r#"
set -eu
curl() {
  code=0
  command curl --silent --show-error --fail --max-time 3 "$@" >out || code=$?
  # A stream of events has no end.
  if [ "$code" -ne 0 ] && [ "$code" -ne 28 ]; then cat out; return "$code"; fi
  test -s out
}
plimsoll() {
  case "${1:-}" in
    demo) "$BIN" "$@" --steps 3 >out ;;
    --*) "$BIN" check "$@" >out ;;
    "") ;;
    *) "$BIN" "$@" >out ;;
  esac
}
"#;

fn scripts(page: &Page) -> Vec<String> {
    let blocks = page.blocks("sh").into_iter();
    let blocks = blocks.filter(|block| !NOT_RUN.iter().any(|it| block.contains(it)));
    blocks.map(str::to_owned).collect()
}

/// The script as it can be run here.
fn adapted(script: &str, address: SocketAddr, session: &str) -> String {
    let script = script
        .replace("cargo run --release -- --listen", "plimsoll --listen")
        .replace("cargo run --release -- ", "plimsoll ")
        .replace("cargo run --release", "plimsoll")
        .replace(&format!("http://{ADDRESS}"), &format!("http://{address}"))
        .replace("/sessions/ID", &format!("/sessions/{session}"));
    // A variable before a command holds for a function in some shells only, and after it in others.
    let script = script.replace(
        "cut -d' ' -f1) \\\n",
        "cut -d' ' -f1)\nexport PLIMSOLL_CLIENTS__ALICE__KEY_SHA256\n",
    );
    format!("{PRELUDE}{script}")
}

fn run(script: &str, folder: &Path) -> Result<(), String> {
    let done = at_home(&mut Command::new("sh"), folder)
        .args(["-c", script])
        .current_dir(folder)
        .env("BIN", env!("CARGO_BIN_EXE_plimsoll"))
        .env("KEY", KEY)
        .envs(NO_CATALOGUE)
        .env_remove("PLIMSOLL_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = || String::from_utf8_lossy(&done.stderr).into_owned();
    done.status.success().then_some(()).ok_or_else(told)
}

fn is_installed(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").output();
    asked.is_ok_and(|it| it.status.success())
}

#[tokio::test]
async fn every_command_works() {
    assert!(
        is_installed("curl"),
        "curl is not installed: run tests/run, which installs it"
    );
    let folder = tempfile::tempdir().unwrap();
    // The commands are for the root of the repository, and leave files there.
    std::os::unix::fs::symlink(root().join("tests"), folder.path().join("tests")).unwrap();
    let process = Process::run(|command| {
        let command = at_home(command, folder.path()).current_dir(folder.path());
        command.args(["--listen", "127.0.0.1:0"])
    })
    .await;
    let session = begin_session(&process).await;
    let mut seen = 0;
    for page in documents() {
        for script in scripts(&page) {
            seen += 1;
            let adapted = adapted(&script, process.address, &session);
            let done = run(&adapted, folder.path());
            assert!(
                done.is_ok(),
                "{}: {script}\n{}",
                page.path,
                done.unwrap_err()
            );
        }
    }
    assert!(seen > 8, "{seen} blocks of commands");
}

/// The id of a session of the key.
async fn begin_session(process: &Process) -> String {
    let client = process.client();
    let body = json!({"model": "simulated/plimsoll-8k",
        "messages": [{"role": "user", "content": "Ahoy"}]});
    let mut request = client.chat_request(body.to_string());
    let key = format!("Bearer {KEY}").parse().unwrap();
    request.headers_mut().insert("authorization", key);
    let answer = client.send(request).await;
    answer.headers["x-plimsoll-session"]
        .to_str()
        .unwrap()
        .to_owned()
}

#[test]
fn every_bench_that_is_named_exists() {
    let manifest = super::read("Cargo.toml");
    let mut seen = 0;
    for page in documents() {
        let named = page.text.split("cargo bench --bench ").skip(1);
        for name in named.filter_map(|it| it.split(|it: char| !it.is_alphanumeric()).next()) {
            seen += 1;
            let entry = format!("[[bench]]\nname = \"{name}\"");
            assert!(manifest.contains(&entry), "{}: no bench {name}", page.path);
        }
    }
    assert!(seen > 10, "{seen} benches");
}

#[test]
fn every_command_of_the_binary_is_described() {
    let done = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("--help")
        .output();
    let help = String::from_utf8(done.unwrap().stdout).unwrap();
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    let names = rest
        .lines()
        .map_while(|line| line.strip_prefix("  ")?.split(' ').next());
    let start = page("docs/start.md");
    for name in names.filter(|it| *it != "help") {
        let is_there = start
            .rows()
            .any(|row| row[0].starts_with(&format!("`plimsoll {name}")));
        assert!(is_there, "no row for {name}");
    }
}
