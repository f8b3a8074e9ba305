//! Commands that ask a running proxy, as processes: who gets the key, and whose windows are shown.

use std::{
    fs,
    net::SocketAddr,
    process::{Command, Output, Stdio},
};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::{COMPLETION, NO_CATALOGUE, Process, ScriptedProvider, Settings, answer};

const KEY: &str = "sk-of-a-client";

/// A command with the key in its environment, with settings that name this address.
async fn ask(listen: SocketAddr, settings: &Settings, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .arg("--config")
        .arg(&settings.file)
        .arg("--listen")
        .arg(listen.to_string())
        .args(arguments)
        .env_clear()
        .envs(NO_CATALOGUE)
        .env("HOME", settings.folder.path())
        .env("PLIMSOLL_KEY", KEY)
        .stdin(Stdio::null());
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    run.await.unwrap()
}

fn said(done: &Output) -> String {
    let both = [&done.stdout[..], &done.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

/// Settings that ask clients for a key.
fn with_client_keys(up: &ScriptedProvider) -> Settings {
    let settings = Settings::new(up);
    let digest = hex::encode(Sha256::digest(KEY));
    settings.write(&format!(
        "[models.\"up/m\"]\ncontext_length = 16384\n[clients.me]\nkey_sha256 = \"{digest}\"\n"
    ));
    settings
}

/// Returns once `proxy.json` is there: before the first request is served.
async fn start(settings: &Settings) -> Process {
    let process = Process::start(&settings.file).await;
    process.client().get("/readyz").await;
    process
}

const COMMANDS: [&[&str]; 3] = [&["sessions"], &["models"], &["connect", "opencode"]];

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_of_the_data_directory_gets_the_key() {
    let up = ScriptedProvider::start().await;
    let settings = with_client_keys(&up);
    let process = start(&settings).await;
    for (command, expected) in COMMANDS.into_iter().zip([
        "No sessions yet",
        "Windows are those of the proxy at",
        "models, of the proxy at",
    ]) {
        let done = ask(process.address, &settings, command).await;
        assert!(
            done.status.success() && said(&done).contains(expected),
            "{}",
            said(&done)
        );
    }
    // With another data directory nothing proves whose proxy it is, until the user names it.
    let elsewhere = with_client_keys(&up);
    let done = ask(process.address, &elsewhere, &["sessions"]).await;
    let url = format!("http://{}", process.address);
    let remedy = format!("if it is your proxy, name it with --url {url}");
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains(&remedy), "{}", said(&done));
    let done = ask(process.address, &elsewhere, &["sessions", "--url", &url]).await;
    assert!(done.status.success(), "{}", said(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_listener_gets_no_key() {
    let up = ScriptedProvider::start().await;
    let settings = with_client_keys(&up);
    // What a proxy has left that was killed, at a port that somebody else has now.
    let proxy_file = settings.folder.path().join("data/proxy.json");
    let process = start(&settings).await;
    let left = fs::read_to_string(&proxy_file).unwrap();
    drop(process);
    let other = ScriptedProvider::start_answering(|_| {
        vec![answer("401 Unauthorized", "", r#"{"error":{}}"#)]
    });
    let other = other.await;
    let mut left: serde_json::Value = serde_json::from_str(&left).unwrap();
    left["address"] = json!(other.address);
    for has_file in [true, false] {
        if has_file {
            fs::write(&proxy_file, left.to_string()).unwrap();
        } else {
            fs::remove_file(&proxy_file).unwrap();
        }
        for command in COMMANDS {
            let done = ask(other.address, &settings, command).await;
            let expected = "so the key in PLIMSOLL_KEY is not sent; if it is your proxy, name it";
            assert!(said(&done).contains(expected), "{}", said(&done));
        }
    }
    let asked = other.requests(other.count_requests()).await;
    assert!(
        asked.iter().any(|it| it.line.contains("/plimsoll/lease")),
        "it was challenged"
    );
    for request in &asked {
        let headers = format!("{:?}", request.headers);
        assert!(!headers.contains(KEY), "{} {headers}", request.line);
    }
    let url = format!("http://{}", other.address);
    ask(other.address, &settings, &["sessions", "--url", &url]).await;
    let sent = other.last_request();
    assert_eq!(
        sent.header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn models_have_the_windows_that_the_proxy_has_learnt() {
    let up = ScriptedProvider::start_answering(|request| {
        let refused = json!({"error": {"code": "context_length_exceeded",
            "message": "This model's maximum context length is 8192 tokens."}});
        vec![if request.body.len() > 30_000 {
            answer("400 Bad Request", "", refused.to_string())
        } else {
            answer("200 OK", "", COMPLETION)
        }]
    });
    let up = up.await;
    let settings = Settings::new(&up);
    settings.write("[models.\"up/m\"]\ncontext_length = 65536\n");
    let process = Process::start(&settings.file).await;
    for model in ["up/m", "up/not-listed"] {
        let turn = |role: &str| json!({"role": role, "content": "a mast and a sail ".repeat(400)});
        let turns: Vec<_> = ["user", "assistant"]
            .repeat(3)
            .into_iter()
            .map(turn)
            .collect();
        let mut messages = turns;
        messages.push(json!({"role": "user", "content": "go on"}));
        let body = json!({"model": model, "messages": messages}).to_string();
        process.client().chat(body).await;
    }
    let show = async |arguments: &[&str]| said(&ask(process.address, &settings, arguments).await);
    let row = |shown: &str, model: &str| {
        let mut lines = shown
            .lines()
            .map(|it| it.split_whitespace().collect::<Vec<_>>());
        let row = lines.find(|words| words.first() == Some(&model));
        row.unwrap_or_else(|| panic!("{model} in {shown}"))
            .join(" ")
    };
    let shown = show(&["models"]).await;
    assert!(
        row(&shown, "up/m").starts_with("up/m 8192 an error"),
        "{shown}"
    );
    let shown = show(&["models", "up/m", "up/not-listed"]).await;
    for model in ["up/m", "up/not-listed"] {
        let learnt = format!("{model} 8192 an error");
        assert!(row(&shown, model).starts_with(&learnt), "{shown}");
    }
    // Without a proxy, those of the settings.
    process.signal("TERM");
    let address = process.address;
    process.wait_for_end().await;
    let shown = said(&ask(address, &settings, &["models"]).await);
    assert!(
        row(&shown, "up/m").starts_with("up/m 65536 settings"),
        "{shown}"
    );
    let source = format!("Windows are those of the settings: no proxy runs at http://{address}.");
    assert!(shown.contains(&source), "{shown}");
}
