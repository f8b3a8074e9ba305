//! Which settings file and which data folder the binary uses where nobody names them: nothing of a stranger's folder.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::support::{
    COMPLETION, Process, ProviderStep, ReceivedRequest, ScriptedProvider, answer,
    process::{NO_CATALOGUE, at_home},
};

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs a command in a folder, with a home of its own.
fn run(program: &Path, folder: &Path, home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    at_home(&mut command, home)
        .args(args)
        .current_dir(folder)
        .envs(NO_CATALOGUE)
        .output()
        .unwrap()
}

fn check(folder: &Path, home: &Path) -> String {
    let done = run(
        Path::new(env!("CARGO_BIN_EXE_plimsoll")),
        folder,
        home,
        &["check", "--all"],
    );
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(
        done.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    said
}

/// A provider at this address, for every name.
fn settings(up: &ScriptedProvider) -> String {
    format!(
        "default_provider = \"up\"\n[providers.up]\nbase_url = \"http://{}/v1\"\nauth = \"client\"\n\
         ask_models = false\nmodels = [\"m\"]\n",
        up.address
    )
}

fn reply(_: &ReceivedRequest) -> Vec<ProviderStep> {
    vec![answer("200 OK", "", COMPLETION)]
}

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;

/// A cloned repository brings settings that would send a login to its own server.
#[tokio::test]
async fn settings_of_a_strangers_folder_get_no_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let (clone, home) = (folder.path().join("clone"), folder.path().join("home"));
    let stranger = ScriptedProvider::start_answering(reply).await;
    let ours = ScriptedProvider::start_answering(reply).await;
    write(&clone.join("config.toml"), &settings(&stranger));
    write(&clone.join("data/secret"), "not ours");
    write(&home.join(".config/plimsoll/config.toml"), &settings(&ours));
    let process =
        Process::run(|command| at_home(command, &home).current_dir(&clone).args(LISTEN)).await;
    let answered = process.client().chat(ASK).await;
    assert_eq!(
        (
            answered.status,
            ours.count_requests(),
            stranger.count_requests()
        ),
        (http::StatusCode::OK, 1, 0)
    );
    process.signal("TERM");
    let (status, _) = process.wait_for_end().await;
    assert!(status.success());
    assert!(home.join(".local/state/plimsoll/sessions.db").is_file());
    let kept: Vec<_> = fs::read_dir(clone.join("data")).unwrap().collect();
    assert_eq!(kept.len(), 1, "nothing is written there");
}

/// The log of a start in a folder, up to the line that the proxy listens.
fn log_of_start(folder: &Path, home: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    at_home(&mut command, home)
        .args(LISTEN)
        .current_dir(folder)
        .envs(NO_CATALOGUE);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut seen = String::new();
    // They end with the process too.
    for line in log.lines().map_while(Result::ok) {
        seen += &line;
        if line.contains("listening on") {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(seen.contains("listening on"), "{seen}");
    seen
}

#[tokio::test]
async fn what_is_not_used_is_named_in_log_and_check() {
    let folder = tempfile::tempdir().unwrap();
    let up = ScriptedProvider::start().await;
    write(&folder.path().join("config.toml"), &settings(&up));
    write(&folder.path().join("data/sessions.db"), "");
    let home = folder.path().join("home");
    let (said, logged) = (
        check(folder.path(), &home),
        log_of_start(folder.path(), &home),
    );
    assert!(said.contains("\nsettings, without a file\n"), "{said}");
    for line in [
        "config.toml: not read; use --config config.toml",
        "data: sessions and a secret of an earlier start are here and are not used; set server.data_dir to this folder to use them",
    ] {
        assert!(
            said.contains(&format!("\n  {line}\n")),
            "no {line} in\n{said}"
        );
        assert!(logged.contains(line), "no {line} in\n{logged}");
    }
}

/// Not even root can make a file there.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_a_folder_to_write_to_the_proxy_keeps_all_in_memory_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = Path::new("/proc/nowhere");
    let warning = "server.data_dir: no file can be made in /proc/nowhere/.local/state/plimsoll: the secret, and without";
    let said = check(folder.path(), nowhere);
    assert!(said.contains(warning), "{said}");
    assert!(said.contains("memory: no folder can be written"), "{said}");
    assert!(log_of_start(folder.path(), nowhere).contains(warning));
    let process = Process::run(|command| {
        at_home(command, nowhere)
            .current_dir(folder.path())
            .args(LISTEN)
    })
    .await;
    let body = r#"{"model":"simulated/plimsoll-8k","messages":[{"role":"user","content":"x"}]}"#;
    let client = process.client();
    let session = client.chat(body).await.headers["x-plimsoll-session"].clone();
    let seen = client
        .get(&format!(
            "/plimsoll/api/sessions/{}",
            session.to_str().unwrap()
        ))
        .await;
    assert_eq!(seen.status, 200, "{}", seen.text());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// `cargo run` has the working directory above the program that it built.
#[tokio::test]
async fn a_program_that_was_built_here_reads_the_file_and_keeps_the_data_here() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let here = folder.path().join("clone");
    let program = here.join("target/debug/plimsoll");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let built = env!("CARGO_BIN_EXE_plimsoll");
    fs::hard_link(built, &program)
        .or_else(|_| fs::copy(built, &program).map(|_| ()))
        .unwrap();
    write(
        &here.join("config.toml"),
        "[guard]\nreserve_tokens = 4321\n",
    );
    let shown = |folder: &Path| {
        let done = run(&program, folder, &home, &["check"]);
        String::from_utf8(done.stdout).unwrap()
    };
    let said = shown(&here);
    assert!(said.contains("\nsettings of config.toml\n"), "{said}");
    assert!(
        said.contains("4321") && !said.contains("not read"),
        "{said}"
    );
    let all = run(&program, &here, &home, &["check", "--all"]);
    let all = String::from_utf8(all.stdout).unwrap();
    let data = all
        .lines()
        .find(|line| line.contains("server.data_dir"))
        .unwrap();
    assert!(
        data.split_whitespace()
            .eq(["server.data_dir", "data", "default"]),
        "{data}"
    );
    let above = shown(folder.path());
    assert!(above.contains("\nsettings, without a file\n"), "{above}");
}

/// The variable names a file as the flag does, for every command, and for one that runs in a container.
#[test]
fn a_variable_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        at_home(&mut command, folder.path())
            .args(["check"])
            .env("PLIMSOLL_CONFIG", &file)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let missing = run();
    assert_eq!(missing.status.code(), Some(2));
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(said.contains("mine.toml: cannot be read: "), "{said}");
    write(&file, "[guard]\nreserve_tokens = 4321\n");
    let said = String::from_utf8(run().stdout).unwrap();
    assert!(
        said.contains("mine.toml\n") && said.contains("4321"),
        "{said}"
    );
}

/// Such as Hugo's and Zola's, which have the same name.
#[test]
fn a_file_of_a_site_generator_does_not_stop_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "baseURL = \"https://example.org/\"\n[params]\nx = 1\n",
        "base_url = [[[",
        "\u{0}",
    ] {
        write(&folder.path().join("config.toml"), text);
        let said = check(folder.path(), &folder.path().join("home"));
        assert!(said.starts_with("The settings are valid.\n"), "{said}");
    }
}
