//! What somebody meets in the first hour: the binary with settings that are nearly right.

use std::process::{Command, Output};

use http::Method;
use serde_json::Value;

use crate::support::{Process, ScriptedProvider, Settings, answer, full_body};

/// Runs a command of the binary with a file of settings, and no variables but these.
fn run(
    folder: &std::path::Path,
    settings: &str,
    variables: &[(&str, &str)],
    args: &[&str],
) -> Output {
    std::fs::write(folder.join("config.toml"), settings).unwrap();
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["--config", "config.toml"])
        .args(args)
        .current_dir(folder)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

const OPENAI: &str = "[providers.openai]\nbase_url = \"https://api.openai.com/v1\"\napi_key_env = \"OPENAI_API_KEY\"\n";

#[test]
fn check_warns_of_a_missing_key_that_a_start_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let done = run(folder.path(), OPENAI, &[], &["check"]);
    let said = String::from_utf8(done.stdout).unwrap();
    assert_eq!(done.status.code(), Some(0), "{said}");
    let missing = "config.toml: providers.openai.api_key_env = \"OPENAI_API_KEY\": names an environment variable \
                   that is not set; set it, or name another";
    assert!(
        said.contains(&format!("  {missing}, before the proxy starts")),
        "{said}"
    );
    let done = run(folder.path(), OPENAI, &[], &["serve"]);
    assert_eq!(done.status.code(), Some(2));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.ends_with(&format!("{missing}\n")), "{said}");
}

#[test]
fn check_prints_json_and_what_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let done = run(folder.path(), OPENAI, &[], &["check", "--json"]);
    let shown: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (&shown["valid"], shown["settings"].as_array().unwrap().len()),
        (&true.into(), 2)
    );
    let done = run(
        folder.path(),
        "[server]\nlisten = \"127.0.0.1:99999\"",
        &[],
        &["check", "--json"],
    );
    assert_eq!((done.status.code(), done.stderr.len()), (Some(2), 0));
    let shown: Value = serde_json::from_slice(&done.stdout).unwrap();
    let message = shown["problems"][0]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "has a port that does not exist; ports are from 0 to 65535"
    );
}

#[tokio::test]
async fn a_browser_at_the_root_gets_the_page_and_a_path_without_v1_the_one_meant() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let client = proxy.client();
    let root = client.get("/").await;
    assert_eq!(
        (
            root.status.as_u16(),
            root.headers["location"].to_str().unwrap()
        ),
        (308, "plimsoll/")
    );
    for (path, meant) in [
        ("/messages", "/v1/messages"),
        ("/chat/completions", "/v1/chat/completions"),
    ] {
        let request = client.request(Method::POST, path).body(full_body("{}"));
        let answer = client.send(request.unwrap()).await;
        answer.is_error(404, "path_not_found");
        assert!(answer.text().contains(meant), "{}", answer.text());
    }
}

#[tokio::test]
async fn health_asks_the_proxy_of_the_settings() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write("");
    let process = Process::start(&settings.file).await;
    let folder = tempfile::tempdir().unwrap();
    let listen = format!("[server]\nlisten = \"{}\"\n", process.address);
    let done = run(folder.path(), &listen, &[], &["health"]);
    assert_eq!(
        (done.status.code(), &*done.stdout),
        (Some(0), &b"ready\n"[..])
    );
    drop(process);
    let done = run(folder.path(), &listen, &[], &["health"]);
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("/readyz gives no answer: "), "{said}");
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_named_to_clients_of_this_machine() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    // The port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    settings.write(&format!(
        "[providers.gone]\nbase_url = \"http://{gone}/secret/v1\"\nauth = \"none\""
    ));
    let process = Process::start(&settings.file).await;
    let body = r#"{"model":"gone/m","messages":[{"role":"user","content":"x"}]}"#;
    let client = process.client();
    let answer = client.chat(body).await;
    answer.is_error(502, "provider_unreachable");
    let named = format!("without an answer: http://{gone}: Connection refused");
    assert!(answer.text().contains(&named), "{}", answer.text());
    let mut forwarded = client.chat_request(body);
    forwarded
        .headers_mut()
        .insert("x-forwarded-for", "10.0.0.9".parse().unwrap());
    let answer = client.send(forwarded).await;
    answer.is_error(502, "provider_unreachable");
    assert!(
        !answer.text().contains(&gone.to_string()),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn a_key_that_the_provider_refuses_is_logged_with_its_variable() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    let address = up.address;
    settings.write(&format!("[providers.keyed]\nbase_url = \"http://{address}/v1\"\napi_key_env = \"UP_KEY\"\nask_models = false"));
    let mut process = Process::run(|command| {
        command
            .arg("--config")
            .arg(&settings.file)
            .env("UP_KEY", "sk-wrong")
    })
    .await;
    up.script_next([answer(
        "401 Unauthorized",
        "",
        r#"{"error":{"message":"Incorrect API key"}}"#,
    )]);
    let body = r#"{"model":"keyed/m","messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(process.client().chat(body).await.status, 401);
    let line = process
        .wait_for_line("refused the key in UP_KEY (401)")
        .await;
    assert!(!line.to_string().contains("sk-wrong"), "{line}");
}
