//! A session stored by an earlier release, from before there were several wire formats, continues.
//!
//! `tests/data/stored/` has the data of that release after 31 generations of an agent's session
//! with the simulated provider, during its countdown: the file, the keys of a Redis server (made
//! permanent), the secrets, and the next request.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::{Process, Redis, programs};

const SESSIONS: [&str; 2] = [
    "192280724254b6cc7f6cdc8696259aa2",
    "4dd64227e9390ac096ff0c8c5d9a99e4",
];

fn read_stored(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stored");
    fs::read(folder.join(name)).unwrap()
}

/// Starts the proxy on a data directory with these files, and sends the request.
async fn go_on(url: &str, files: &[(&str, &str)], session: &str) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    for (name, from) in files {
        fs::write(data.join(name), read_stored(from)).unwrap();
    }
    let settings = folder.path().join("config.toml");
    // The states are as old as this test, and so is the limit of critical.
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {data:?}\n\
         [store]\nurl = \"{url}\"\nmax_age_s = 315360000\n\
         [models.\"simulated/plimsoll-8k\"]\ncritical_max_tokens = 2000\n"
    );
    fs::write(&settings, text).unwrap();
    let process = Process::start(&settings).await;
    let client = process.client();
    let answer = client.chat(read_stored("next.json")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let header = |name: &str| {
        answer.headers[format!("x-plimsoll-{name}")]
            .to_str()
            .unwrap()
    };
    assert_eq!(header("session"), session);
    assert_eq!(header("countdown"), "2");
    // The next prompt of the countdown.
    assert!(
        header("actions").contains("injected=critical"),
        "{}",
        header("actions")
    );
    let told = client
        .get(&format!("/plimsoll/api/sessions/{session}"))
        .await;
    let told: Value = told.json();
    assert_eq!(told["generations"], 32);
    assert_eq!(told["course"], 1);
}

#[tokio::test]
async fn the_file_of_an_earlier_release_is_read() {
    let files = [("sessions.db", "sessions.db"), ("secret", "file.secret")];
    go_on("file", &files, SESSIONS[0]).await;
}

#[tokio::test]
async fn redis_values_of_an_earlier_release_are_read() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("dump.rdb"), read_stored("redis.rdb")).unwrap();
        let folder = folder.path().to_str().unwrap();
        let redis = Redis::with(program, &["--dir", folder]);
        go_on(&redis.url(), &[("secret", "redis.secret")], SESSIONS[1]).await;
    }
}
