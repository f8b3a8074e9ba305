//! Settings reloaded by the real binary: after a change of the files, or on SIGHUP.

use std::{fs, os::unix::fs::symlink, process::Command, thread};

use sha2::{Digest, Sha256};

use super::ASK;
use crate::support::{
    COMPLETION, Process, SECRET, ScriptedProvider, Settings, TestClient, answer, at_home,
};

const IN_FORCE: &str = "new settings are in force";
const REFUSED: &str = "the new settings cannot be used";

fn window(tokens: u32) -> String {
    format!("[models.\"up/m\"]\ncontext_length = {tokens}\n")
}

/// The window in an answer's header.
async fn limit(client: &TestClient, up: &ScriptedProvider) -> String {
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let answer = client.chat(ASK).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let limit = answer.headers["x-plimsoll-context-limit"].to_str();
    limit.unwrap().to_owned()
}

#[tokio::test]
async fn a_bad_file_is_refused_with_reasons_and_a_good_one_replaces_it() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write(&window(8_000));
    let mut proxy = Process::start(&settings.file).await;
    let client = proxy.client();
    assert_eq!(limit(&client, &up).await, "8000");

    let key = format!("{SECRET}-pasted");
    let wrong = format!(
        "{}[guard]\nreserve_token = 3\nlow_water = 7.0\n[clients.a]\nkey_sha256 = {key:?}\n",
        window(9_000)
    );
    settings.write(&wrong);
    let line = proxy.wait_for_line(REFUSED).await;
    let said = line["message"].as_str().unwrap();
    for reason in [
        "guard.reserve_token",
        "guard.low_water",
        "clients.a.key_sha256",
    ] {
        assert!(said.contains(reason), "{reason} in {said}");
    }
    assert!(!said.contains(&key));
    assert_eq!(line["level"], "ERROR");
    assert_eq!(limit(&client, &up).await, "8000");

    // It is logged once, until a SIGHUP.
    proxy.signal("HUP");
    assert_eq!(proxy.wait_for_line(REFUSED).await["cause"], "SIGHUP");
    settings.write(&window(16_000));
    let (said, line) = proxy.wait_for_first_line(&[IN_FORCE, REFUSED]).await;
    assert_eq!((said, &line["changed"]), (0, &"models.\"up/m\"".into()));
    assert_eq!(limit(&client, &up).await, "16000");
    proxy.signal("HUP");
    proxy.wait_for_line("nothing is different").await;

    let metrics = client.get("/metrics").await;
    for line in [
        r#"plimsoll_config_reloads_total{result="ok"} 2"#,
        r#"plimsoll_config_reloads_total{result="refused"} 2"#,
    ] {
        assert!(metrics.text().contains(line), "{line}\n{}", metrics.text());
    }
}

#[tokio::test]
async fn settings_that_need_a_restart_are_named_and_others_apply() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write("");
    let mut proxy = Process::start(&settings.file).await;
    let other = settings
        .with_lines(&format!("{}[store]\nmax_sessions = 77\n", window(8_000)))
        .replace("127.0.0.1:0", "127.0.0.1:1");
    fs::write(&settings.file, other).unwrap();
    let line = proxy.wait_for_line(IN_FORCE).await;
    assert_eq!(line["changed"], "models.\"up/m\"");
    let line = proxy.wait_for_line("until the proxy is restarted").await;
    assert_eq!(line["settings"], "server.listen, store");
    assert_eq!(line["level"], "WARN");
    assert_eq!(limit(&proxy.client(), &up).await, "8000");
}

#[tokio::test]
async fn removing_the_last_key_needs_a_restart() {
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let up = ScriptedProvider::start().await;
        let settings = Settings::new(&up);
        let keyed = settings
            .with_lines(&of_alice())
            .replace("127.0.0.1:0", address);
        fs::write(&settings.file, keyed).unwrap();
        let mut proxy = Process::start(&settings.file).await;
        // Valid in itself, but a file that is not completely written looks like this.
        settings.write("");
        let line = proxy.wait_for_line(REFUSED).await;
        let said = line["message"].as_str().unwrap();
        assert!(said.contains("clients: has no client any more"), "{said}");
        let address = ([127, 0, 0, 1], proxy.address.port()).into();
        let got = TestClient::http1(address).chat(ASK).await;
        got.is_error(401, "invalid_api_key");
    }
}

#[tokio::test]
async fn settings_are_read_from_a_pipe_once() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    let made = Command::new("mkfifo").arg(&settings.file).status();
    assert!(made.unwrap().success());
    let (pipe, text) = (settings.file.clone(), settings.with_lines(&of_alice()));
    // As from a program that decrypts them.
    let writer = thread::spawn(move || fs::write(pipe, text).unwrap());
    let mut proxy = Process::start(&settings.file).await;
    writer.join().unwrap();
    proxy.signal("HUP");
    let line = proxy.wait_for_line(REFUSED).await;
    let said = line["message"].as_str().unwrap();
    assert!(said.contains("no file that can be read again"), "{said}");
    let got = proxy.client().chat(ASK).await;
    got.is_error(401, "invalid_api_key");
}

/// The settings of a client key.
fn of_alice() -> String {
    let digest = hex::encode(Sha256::digest(format!("{SECRET}-alice")));
    format!("[clients.alice]\nkey_sha256 = {digest:?}\n")
}

#[tokio::test]
async fn a_changed_link_and_a_changed_prompt_file_are_reloaded() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    let at = |name: &str| settings.folder.path().join(name);
    for (name, tokens) in [("one", 8_000), ("two", 16_000)] {
        fs::create_dir(at(name)).unwrap();
        let text = settings.with_lines(&window(tokens));
        fs::write(at(name).join("config.toml"), text).unwrap();
    }
    // Like mounted config maps.
    symlink("one", at("data-now")).unwrap();
    symlink("data-now/config.toml", &settings.file).unwrap();
    let mut proxy = Process::start(&settings.file).await;
    let client = proxy.client();
    assert_eq!(limit(&client, &up).await, "8000");
    symlink("two", at("data-next")).unwrap();
    fs::rename(at("data-next"), at("data-now")).unwrap();
    proxy.wait_for_line(IN_FORCE).await;
    assert_eq!(limit(&client, &up).await, "16000");

    fs::create_dir_all(at("texts/en")).unwrap();
    let with_texts = format!(
        "{}[recovery]\nprompts_dir = {:?}\n",
        window(16_000),
        at("texts")
    );
    let next = at("next.toml");
    fs::write(&next, settings.with_lines(&with_texts)).unwrap();
    // Like editors.
    fs::rename(&next, &settings.file).unwrap();
    assert_eq!(proxy.wait_for_line(IN_FORCE).await["changed"], "recovery");
    fs::write(at("texts/en/caution-text.txt"), "Mind the line.").unwrap();
    assert_eq!(proxy.wait_for_line(IN_FORCE).await["changed"], "recovery");
    fs::write(at("texts/en/caution-text.txt"), "").unwrap();
    let line = proxy.wait_for_line(REFUSED).await;
    let said = line["message"].as_str().unwrap();
    assert!(said.contains("en/caution-text.txt is empty"), "{said}");
    fs::remove_file(at("texts/en/caution-text.txt")).unwrap();
    assert_eq!(proxy.wait_for_line(IN_FORCE).await["changed"], "recovery");
}

#[tokio::test]
async fn a_new_file_is_read_and_a_missing_one_is_reported() {
    let up = ScriptedProvider::start().await;
    let mut settings = Settings::new(&up);
    let home = settings.folder.path();
    settings.file = home.join(".config/plimsoll/config.toml");
    let mut proxy = Process::run(|command| {
        let here = at_home(command, home).current_dir(home);
        here.args(["--listen", "127.0.0.1:0"])
    })
    .await;
    let relative = settings.with_lines(&window(8_000));
    let data = format!("{:?}", home.join("data"));
    fs::create_dir_all(settings.file.parent().unwrap()).unwrap();
    fs::write(&settings.file, relative.replace(&data, "\"data\"")).unwrap();
    proxy.wait_for_line(IN_FORCE).await;
    let client = proxy.client();
    assert_eq!(limit(&client, &up).await, "8000");
    fs::remove_file(&settings.file).unwrap();
    let line = proxy.wait_for_line(REFUSED).await;
    let said = line["message"].as_str().unwrap();
    assert!(said.contains("config.toml: is gone"), "{said}");
    assert_eq!(limit(&client, &up).await, "8000");
}

#[tokio::test]
async fn a_warning_is_logged_only_when_it_is_new() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    let doubtful = "[clients.a]\nmodels = []\nkey_sha256 = \
                    \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";
    settings.write(doubtful);
    let mut proxy = Process::start(&settings.file).await;
    settings.write(&format!("{doubtful}{}", window(8_000)));
    proxy.wait_for_line(IN_FORCE).await;
    let other = doubtful.replace("clients.a", "clients.b");
    settings.write(&other);
    let (said, line) = proxy
        .wait_for_first_line(&["clients.a.models", "clients.b.models"])
        .await;
    assert_eq!((said, &line["level"]), (1, &"WARN".into()), "{line}");
    proxy.signal("TERM");
    let (status, _) = proxy.wait_for_end().await;
    assert!(status.success());
}

/// The key that a request to `keyed/m` brings to its provider.
async fn sent_key(client: &TestClient, up: &ScriptedProvider) -> String {
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let answer = client.chat(ASK.replace("up/m", "keyed/m")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    up.last_request()
        .header("authorization")
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_key_file_is_read_again_when_it_changes() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    let folder = settings.folder.path();
    // As a mounted secret: a link that is put in the place of another.
    let mount = |name: &str, key: &str| {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("key"), format!("{key}\n")).unwrap();
        symlink(name, folder.join("next")).unwrap();
        fs::rename(folder.join("next"), folder.join("secret")).unwrap();
    };
    let key = |name: &str| format!("{SECRET}-{name}");
    mount("first", &key("one"));
    let file = folder.join("secret/key");
    settings.write(&format!(
        "[providers.keyed]\nbase_url = \"http://{}/v1\"\nask_models = false\napi_key_file = {file:?}\n",
        up.address
    ));
    let mut proxy = Process::start(&settings.file).await;
    let client = proxy.client();
    assert_eq!(
        sent_key(&client, &up).await,
        format!("Bearer {}", key("one"))
    );
    mount("second", &key("two"));
    let line = proxy.wait_for_line(IN_FORCE).await;
    assert_eq!(line["changed"], "providers.keyed");
    assert_eq!(
        sent_key(&client, &up).await,
        format!("Bearer {}", key("two"))
    );
    // Without its file the old key stays.
    fs::remove_file(folder.join("second/key")).unwrap();
    let line = proxy.wait_for_line(REFUSED).await;
    let said = line["message"].as_str().unwrap();
    assert!(said.contains("providers.keyed.api_key_file"), "{said}");
    assert_eq!(
        sent_key(&client, &up).await,
        format!("Bearer {}", key("two"))
    );
    mount("third", &key("three"));
    proxy.wait_for_line(IN_FORCE).await;
    assert_eq!(
        sent_key(&client, &up).await,
        format!("Bearer {}", key("three"))
    );
}
