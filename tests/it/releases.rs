//! Upgrade and downgrade: what an earlier release stored is taken over, what a newer one stored is refused.
//!
//! `tests/data/releases/VERSION` is what that release stored: a data directory, a dump of Redis, what the client knows of
//! a session in each of them, and encoded states and commands with what they mean. `WRITE_RELEASE=1` writes the folder
//! of the version in `Cargo.toml`, once: it never writes into a folder that is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use plimsoll::session::{SessionCommands, SessionState};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::support::{
    Agent, AgentGeneration, Mixing, ModelSetup, NO_CATALOGUE, NoticeManner, Process, Redis,
    RunningModel, Settings, Worker, within_time,
};

const WINDOW: u32 = 8_000;

/// Ten years, so that what is stored in the folders does not expire.
const STORE: &str = "profile = \"openai\"\n[models.m]\ncontext_length = 8000\noptimal_max_tokens = 2700\n\
    critical_max_tokens = 3600\n[store]\nmax_age_s = 315360000\ntimeout_ms = 10000\n";

fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/releases")
}

/// The folders of all releases, and their versions.
fn stored() -> Vec<(PathBuf, String)> {
    let folders = fs::read_dir(releases()).unwrap();
    let folders = folders.map(|entry| entry.unwrap());
    let all: Vec<_> = folders
        .map(|entry| (entry.path(), entry.file_name().into_string().unwrap()))
        .collect();
    assert!(all.iter().any(|(_, version)| version == "0.1.0"));
    all
}

async fn model() -> RunningModel {
    let worker = Worker::new(NoticeManner::Follows, Mixing::Never);
    let model = ModelSetup::new(WINDOW);
    model.start(move |heard| worker.compose_reply(heard)).await
}

fn in_redis(redis: &Redis) -> String {
    format!("{STORE}url = \"{}/0\"\n", redis.url())
}

async fn started(settings: &Settings, store: &str) -> Process {
    settings.write(store);
    Process::start(&settings.file).await
}

async fn stopped(process: Process) -> String {
    process.signal("TERM");
    let (status, log) = process.wait_for_end().await;
    assert!(status.success(), "{log}");
    log
}

/// A start that fails: its output.
fn refused(settings: &Settings, store: &str) -> Output {
    settings.write(store);
    // One that starts after all is stopped.
    let mut command = Command::new("timeout");
    let command = command.args(["60", env!("CARGO_BIN_EXE_plimsoll")]);
    let command = command.envs(NO_CATALOGUE).env_remove("PLIMSOLL_LOG");
    command
        .arg("--config")
        .arg(&settings.file)
        .output()
        .unwrap()
}

#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("plimsoll: the proxy could not be started: "));
    for words in words {
        assert!(last.contains(words), "{words:?} is not in {last}");
    }
}

/// What the API says of a session and the client can know after a restart.
fn known(report: &Value) -> Value {
    let keys = [
        "id",
        "generations",
        "messages",
        "model",
        "provider",
        "format",
        "health",
        "prompt_tokens",
        "course",
        "recovery",
        "countdown",
        "updated_s",
        "reminders",
        "prompts",
        "clear_pending",
    ];
    keys.iter()
        .map(|&key| (key.to_owned(), report[key].clone()))
        .collect()
}

/// Runs an agent until its session has reminders and a course; returns what its client knows.
async fn told(process: &Process) -> Value {
    let mut agent = Agent::new(process.client());
    agent.result = |nth| crate::support::words(150, nth);
    let grown = |it: &AgentGeneration| it.number("reminders") >= Some(2) && it.course() > 1;
    let last = agent.until(90, grown).await;
    json!({"messages": agent.messages, "known": known(&agent.session(&last).await)})
}

/// The session of that client is as it was, and its next request continues it.
async fn continues(process: &Process, told: &Value) {
    let mut agent = Agent::new(process.client());
    agent.messages = told["messages"].as_array().unwrap().clone();
    let before = &told["known"];
    let id = before["id"].as_str().unwrap();
    let path = format!("/plimsoll/api/sessions/{id}");
    let report = process.client().get(&path).await;
    assert_eq!(
        report.status,
        200,
        "0.1.0 states must stay readable: {}",
        report.text()
    );
    assert_eq!(known(&report.json()), *before);
    let next = agent.ask().await;
    assert_eq!(
        next.header("session"),
        Some(id),
        "0.1.0 sessions must be found"
    );
    let generations = before["generations"].as_u64().unwrap();
    assert_eq!(agent.session(&next).await["generations"], generations + 1);
}

fn copy(from: &Path, names: &[&str], to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in names {
        fs::copy(from.join(name), to.join(name)).unwrap();
        // As the proxy makes them; Git does not keep this.
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(to.join(name), own).unwrap();
    }
}

/// A data directory of that release in a folder of settings.
fn take(release: &Path, up: &RunningModel, names: &[&str]) -> (Settings, PathBuf) {
    let settings = Settings::new(&up.provider);
    let data = settings.folder.path().join("data");
    copy(release, names, &data);
    (settings, data)
}

/// A server with the dump of that release.
fn server(release: &Path) -> (Redis, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    copy(release, &["dump.rdb"], folder.path());
    let place = folder.path().to_str().unwrap();
    let options = ["--dir", place, "--enable-debug-command", "local"];
    (Redis::with("redis-server", &options), folder)
}

fn client(release: &Path) -> Value {
    serde_json::from_slice(&fs::read(release.join("client.json")).unwrap()).unwrap()
}

#[tokio::test]
async fn states_of_every_release_are_taken_over() {
    if std::env::var_os("WRITE_RELEASE").is_some() {
        write_release().await;
    }
    for (release, version) in stored() {
        check_meanings::<SessionState>(&release.join("states.txt"), &version, |bytes| {
            SessionState::from_bytes(bytes).map_err(|error| error.to_string())
        });
        check_meanings::<SessionCommands>(&release.join("commands.txt"), &version, |bytes| {
            SessionCommands::from_bytes(bytes).map_err(|error| error.to_string())
        });
        let up = model().await;
        let (settings, data) = take(&release, &up, &["sessions.db", "secret"]);
        let file = format!("{STORE}url = \"file\"\n");
        let process = started(&settings, &file).await;
        let told = &client(&release)["file"];
        // A backup beside the running process, as docs/operations/deploy.md has it, is taken over too.
        let restored = Settings::new(&up.provider);
        let place = restored.folder.path().join("data");
        copy(&data, &["secret"], &place);
        let open = rusqlite::Connection::open(data.join("sessions.db")).unwrap();
        let copy = place.join("sessions.db").display().to_string();
        open.execute("VACUUM INTO ?1", [copy]).unwrap();
        drop(open);
        continues(&process, told).await;
        continues(&started(&restored, &file).await, told).await;
        let log = stopped(process).await;
        assert!(!log.contains("aside") && !log.contains("WARN"), "{log}");
        assert!(!data.join("sessions.db.damaged-1").exists());

        let (redis, _folder) = server(&release);
        let (settings, _) = take(&release, &up, &["secret"]);
        let process = started(&settings, &in_redis(&redis)).await;
        continues(&process, &client(&release)["redis"]).await;
        assert_eq!(redis.run_command(&["get", "plimsoll:{all}f"]), "1");
    }
}

/// Adds one to a number of four bytes.
fn raise(bytes: &mut [u8], at: usize) {
    let number = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) + 1;
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
}

#[tokio::test]
async fn a_data_directory_of_a_newer_release_is_refused_until_that_release_is_back() {
    let up = model().await;
    let release = releases().join("0.1.0");
    let (settings, data) = take(&release, &up, &["sessions.db", "secret"]);
    let path = data.join("sessions.db");
    let mut newer = fs::read(&path).unwrap();
    // SQLite's fields `user_version` and `application_id`.
    raise(&mut newer, 60);
    raise(&mut newer, 68);
    fs::write(&path, &newer).unwrap();
    let file = format!("{STORE}url = \"file\"\n");
    for _ in 0..2 {
        assert_refused(
            &refused(&settings, &file),
            &[
                "data/sessions.db was written by a newer release (format 3, this one supports 2)",
                "start that release, or move the file away or set another server.data_dir",
                "it was not changed",
            ],
        );
        assert!(fs::read(&path).unwrap() == newer, "the file is changed");
    }
    assert!(!data.join("sessions.db.damaged-1").exists());
    // No command but the proxy opens the file.
    let check = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["check", "--config"])
        .arg(&settings.file)
        .output()
        .unwrap();
    assert!(check.status.success());
    fs::copy(release.join("sessions.db"), &path).unwrap();
    continues(&started(&settings, &file).await, &client(&release)["file"]).await;
}

#[tokio::test]
async fn a_redis_of_a_newer_release_is_refused_and_not_changed() {
    let up = model().await;
    let release = releases().join("0.1.0");
    let (redis, _folder) = server(&release);
    let (settings, _) = take(&release, &up, &["secret"]);
    let store = in_redis(&redis);
    let told = &client(&release)["redis"];
    let key = "plimsoll:{all}f";
    let mut process = started(&settings, &store).await;
    // An empty server gets the format with the first session.
    assert_eq!(redis.run_command(&["del", key]), "1");
    within_time(Agent::new(process.client()).ask()).await;
    assert_eq!(redis.run_command(&["get", key]), "1");
    // A newer release comes while the process runs: the process does not use the server once it connects anew.
    assert_eq!(redis.run_command(&["set", key, "2"]), "OK");
    let stored = || redis.run_command(&["debug", "digest"]);
    let before = stored();
    assert_eq!(before.len(), 40, "{before}");
    redis.run_command(&["client", "kill", "type", "normal"]);
    let mut agent = Agent::new(process.client());
    agent.messages = told["messages"].as_array().unwrap().clone();
    let is_served = async || {
        let answer = within_time(agent.ask()).await;
        assert_ne!(answer.header("session"), told["known"]["id"].as_str());
    };
    // The first request finds the connection closed.
    is_served().await;
    let line = process.wait_for_line(
        "the session store is not used: the sessions in store.url were written by a newer",
    );
    assert_eq!(line.await["level"], "ERROR");
    is_served().await;
    for _ in 0..2 {
        assert_refused(
            &refused(&settings, &store),
            &[
                "the sessions in store.url were written by a newer release (format 2, this one supports 1)",
                "start that release, or set another store.prefix",
                "nothing was changed",
            ],
        );
    }
    assert_eq!(stored(), before);
    // A full server is refused too, and another prefix is not.
    assert_eq!(
        redis.run_command(&["config", "set", "maxmemory", "1"]),
        "OK"
    );
    assert_refused(&refused(&settings, &store), &["a newer release"]);
    assert_eq!(
        redis.run_command(&["config", "set", "maxmemory", "0"]),
        "OK"
    );
    let other = started(&settings, &format!("{store}prefix = \"other:\"\n")).await;
    stopped(other).await;
    assert_eq!(redis.run_command(&["get", "other:{all}f"]), "1");
    // The format of this release is back.
    assert_eq!(redis.run_command(&["set", key, "1"]), "OK");
    process.wait_for_line("the session store answers").await;
    continues(&process, told).await;
}

/// The states or commands in a file are read, and mean what they meant. Each is a line of hexadecimal digits, and below
/// it a line of what it means, as JSON. Now this may have more parts, for fields that were added later. If a field or a
/// variant has another name now, write that name into the file.
#[track_caller]
fn check_meanings<T: Serialize>(
    file: &Path,
    version: &str,
    read: impl Fn(&[u8]) -> Result<T, String>,
) {
    let text = fs::read_to_string(file).unwrap();
    let mut seen = 0;
    let lines: Vec<&str> = text.lines().collect();
    for &[hex, meaning] in lines.as_chunks().0 {
        let value = read(&hex::decode(hex).unwrap()).unwrap_or_else(|error| {
            panic!("{version} states must stay readable: add a new version beside theirs ({error})")
        });
        let now = serde_json::to_string(&value).unwrap();
        let mut parts = now.split(',');
        let lost = meaning
            .split(',')
            .find(|part| !parts.any(|now| now == *part));
        assert_eq!(
            lost, None,
            "{version} states must keep their meaning: add a new version beside theirs: {now}"
        );
        seen += 1;
    }
    assert!(seen > 0);
}

async fn write_release() {
    let folder = releases().join(env!("CARGO_PKG_VERSION"));
    assert!(
        !folder.exists(),
        "{} is there and is not written anew: raise `version` in Cargo.toml first; only before the \
         release of that version may its folder be deleted by hand",
        folder.display()
    );
    fs::create_dir_all(&folder).unwrap();
    let up = model().await;
    let settings = Settings::new(&up.provider);
    let data = settings.folder.path().join("data");
    let process = started(&settings, &format!("{STORE}url = \"file\"\n")).await;
    let in_file = told(&process).await;
    stopped(process).await;
    copy(&data, &["sessions.db", "secret"], &folder);
    let dump = tempfile::tempdir().unwrap();
    let redis = Redis::with("redis-server", &["--dir", dump.path().to_str().unwrap()]);
    let process = started(&settings, &in_redis(&redis)).await;
    let in_redis = told(&process).await;
    stopped(process).await;
    assert_eq!(redis.run_command(&["save"]), "OK");
    copy(dump.path(), &["dump.rdb"], &folder);
    let client = json!({"file": in_file, "redis": in_redis});
    fs::write(
        folder.join("client.json"),
        serde_json::to_string(&client).unwrap(),
    )
    .unwrap();
    write_meanings::<SessionState>(&folder.join("states.txt"), |state| {
        state.encode_bounded().unwrap().bytes
    });
    write_meanings::<SessionCommands>(&folder.join("commands.txt"), |commands| {
        commands.to_bytes().unwrap()
    });
}

/// Writes few values, which together have every variant and field that random bytes reach.
fn write_meanings<T: Serialize + DeserializeOwned>(file: &Path, encode: impl Fn(&T) -> Vec<u8>) {
    let (mut values, mut counts, mut random) = (Vec::new(), BTreeMap::new(), 1_u64);
    for _ in 0..400_000 {
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 20) as u8 % if random % 16 < 13 { 2 } else { 12 }
        };
        let bytes: Vec<u8> = (0..600).map(|_| next()).collect();
        let Ok((value, _)) = postcard::take_from_bytes::<T>(&bytes) else {
            continue;
        };
        let meaning = serde_json::to_string(&value).unwrap();
        let lines = serde_json::to_string_pretty(&value).unwrap();
        // Such as `"course": {` and `"refused": "Nothing"`.
        let lines = lines.lines().map(|line| line.trim().to_owned());
        let no_value = |line: &String| {
            line.chars()
                .all(|it| it.is_ascii_alphabetic() || "_:\"{[, ".contains(it))
        };
        let words: BTreeSet<String> = lines.filter(no_value).collect();
        if words.iter().any(|word| !counts.contains_key(word)) {
            for word in &words {
                *counts.entry(word.clone()).or_insert(0) += 1;
            }
            values.push((
                words,
                format!("{}\n{meaning}\n", hex::encode(encode(&value))),
            ));
        }
    }
    values.retain(|(words, _)| {
        let is_spare = words.iter().all(|word| counts[word] > 1);
        if is_spare {
            words
                .iter()
                .for_each(|word| *counts.get_mut(word).unwrap() -= 1);
        }
        !is_spare
    });
    let text: String = values.into_iter().map(|(_, text)| text).collect();
    fs::write(file, text).unwrap();
}
