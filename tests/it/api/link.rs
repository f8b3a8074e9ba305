//! The one-time link that a start on a terminal prints: all sessions with their titles, read only.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use http::Method;
use plimsoll::config::Auth;
use serde_json::Value;

use super::{Api, keyed};
use crate::support::{
    NO_CATALOGUE, ProxyBuilder, RunningProxy, ScriptedProvider, Settings, TestClient,
};

const KEY: &str = "sk-secret-of-an-sdk";
const TASK: &str = "a task of the sdk";

fn issue(proxy: &RunningProxy) -> String {
    proxy.live.app().page_link.issue_token().unwrap()
}

async fn exchange(api: Api, token: &str) -> Value {
    let got = api.with("x-plimsoll-link", token).post("link", "").await;
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()["tab"].clone()
}

async fn is_refused(api: Api, token: &str) {
    let got = api.with("x-plimsoll-link", token).post("link", "").await;
    got.is_error(403, "link_over");
}

#[tokio::test]
async fn a_link_shows_all_sessions_with_titles_and_no_other_texts() {
    let proxy = ProxyBuilder::new().start().await;
    let sdk = Api::keyed(&proxy, KEY);
    let id = sdk.begin_session(TASK).await;
    let token = issue(&proxy);
    let tab = exchange(Api::new(&proxy), &token).await;
    let tab = tab.as_str().unwrap();
    assert_ne!(tab, token);
    let page = Api::new(&proxy).with("x-plimsoll-tab", tab);
    let own = page.begin_session("a task of nobody").await;
    assert_eq!(page.json("about").await["reader"], "link");
    let listed = page.json("sessions").await;
    let tasks = [
        &listed["sessions"][0]["task"],
        &listed["sessions"][1]["task"],
    ];
    assert_eq!(tasks, ["a task of nobody", TASK]);
    assert!(listed["of_other_keys"].is_null());
    // Not even of the sessions that this client would own by itself.
    for id in [&id, &own] {
        let shown = page.json(&format!("sessions/{id}")).await;
        assert_eq!(shown["read_only"], true);
        for text in ["task", "reminders", "prompts", "summary"] {
            assert!(shown[text].is_null(), "{text}");
        }
        for order in ["clear", "compact"] {
            let got = page.post(&format!("sessions/{id}/{order}"), "").await;
            got.is_error(403, "session_read_only");
        }
        let path = format!("/plimsoll/api/sessions/{id}");
        let got = page.send(Method::PATCH, &path, r#"{"auto_compact": "on"}"#);
        got.await.is_error(403, "session_read_only");
    }
    page.get("settings").await.is_error(403, "admin_only");
    // What the secret opens in the API is of no use elsewhere: a key still owns its sessions.
    let listed = sdk.json("sessions").await;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_link_opens_one_tab() {
    let proxy = ProxyBuilder::new().start().await;
    // Nothing is open before a link was printed.
    is_refused(Api::new(&proxy), "").await;
    let token = issue(&proxy);
    is_refused(Api::new(&proxy), &"0".repeat(32)).await;
    is_refused(Api::new(&proxy), &token[1..]).await;
    let tab = exchange(Api::new(&proxy), &token).await;
    is_refused(Api::new(&proxy), &token).await;
    for wrong in ["", &token, &"0".repeat(32)] {
        let page = Api::new(&proxy).with("x-plimsoll-tab", wrong);
        page.get("sessions").await.is_error(403, "link_over");
    }
    let page = Api::new(&proxy).with("x-plimsoll-tab", tab.as_str().unwrap());
    page.json("sessions").await;
}

#[tokio::test]
async fn a_link_holds_without_client_keys_on_this_machine_and_while_it_is_on() {
    let proxy = ProxyBuilder::new().start().await;
    let token = issue(&proxy);
    let forwarded = [
        "x-forwarded-for",
        "x-forwarded-host",
        "forwarded",
        "via",
        "x-real-ip",
    ];
    for name in forwarded {
        is_refused(Api::new(&proxy).with(name, "192.0.2.7"), &token).await;
    }
    let foreign = Api::new(&proxy).with("origin", "https://example.com");
    let foreign = foreign.with("x-plimsoll-link", &token);
    let got = foreign.post("link", "").await;
    got.is_error(403, "foreign_origin");
    proxy.reload(|config| config.admin.link = false);
    is_refused(Api::new(&proxy), &token).await;
    proxy.reload(|config| config.admin.link = true);
    let tab = exchange(Api::new(&proxy), &token).await;
    let page = || Api::new(&proxy).with("x-plimsoll-tab", tab.as_str().unwrap());
    page().json("sessions").await;
    for name in forwarded {
        let through = page().with(name, "192.0.2.7").get("sessions").await;
        through.is_error(403, "link_over");
    }
    proxy.reload(|config| config.admin.link = false);
    page().get("sessions").await.is_error(403, "link_over");
    proxy.reload(|config| {
        config.admin.link = true;
        keyed(ProxyBuilder::new()).set(|with| config.clients = with.clients.clone());
        let providers = config.providers.values_mut();
        providers.for_each(|it| it.auth = Auth::None);
    });
    let with_key = page().with("authorization", "Bearer sk-secret-alice");
    with_key.get("sessions").await.is_error(403, "link_over");
}

/// A proxy on a terminal, with what it prints there.
struct OnTerminal {
    script: Child,
    pid: String,
    printed: Vec<String>,
    rest: Lines<BufReader<ChildStdout>>,
}

impl OnTerminal {
    /// Starts the proxy; returns once a line has these words.
    fn start(settings: &Settings, until: &str) -> Self {
        let run = format!(
            "echo pid=$$; exec {} serve --config {}",
            env!("CARGO_BIN_EXE_plimsoll"),
            settings.file.display()
        );
        let mut command = Command::new("timeout");
        command
            .args(["60", "script", "-qfec", &run, "/dev/null"])
            .envs(NO_CATALOGUE);
        command.env_remove("PLIMSOLL_LOG").env_remove("RUST_LOG");
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut script = piped.spawn().unwrap();
        let mut rest = BufReader::new(script.stdout.take().unwrap()).lines();
        let mut printed = Vec::new();
        for line in rest.by_ref().map_while(Result::ok) {
            let is_last = line.contains(until);
            printed.push(line);
            if is_last {
                break;
            }
        }
        let pid = printed.iter().find_map(|line| line.strip_prefix("pid="));
        Self {
            pid: pid.unwrap().trim().to_owned(),
            script,
            printed,
            rest,
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status();
        let _ = self.script.wait();
    }
}

#[tokio::test]
async fn the_start_prints_the_link_on_a_terminal() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write("");
    let running = OnTerminal::start(&settings, "#link=");
    let line = running.printed.last().unwrap().trim();
    let (address, token) = line.split_once("/plimsoll/#link=").unwrap();
    let address = address.strip_prefix("http://").unwrap().parse().unwrap();
    let api = || Api {
        client: TestClient::http1(address),
        headers: http::HeaderMap::new(),
    };
    let tab = exchange(api(), token).await;
    let page = api().with("x-plimsoll-tab", tab.as_str().unwrap());
    assert_eq!(page.json("about").await["reader"], "link");
    is_refused(api(), token).await;
}

#[tokio::test]
async fn no_link_is_printed_where_it_is_off_or_clients_have_keys() {
    let up = ScriptedProvider::start().await;
    let digest = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    for lines in [
        "[admin]\nlink = false".to_owned(),
        format!("[clients.alice]\nkey_sha256 = \"{digest}\""),
    ] {
        let settings = Settings::new(&up);
        settings.write(&lines);
        let mut running = OnTerminal::start(&settings, "listening on");
        // The end of the process ends what it prints.
        let _ = Command::new("kill").args(["-TERM", &running.pid]).status();
        let rest: String = running.rest.by_ref().map_while(Result::ok).collect();
        let all = running.printed.concat() + &rest;
        assert!(!all.contains("link="), "{all}");
    }
}

#[tokio::test]
async fn a_request_has_a_short_line_on_a_terminal() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write("");
    let mut running = OnTerminal::start(&settings, "#link=");
    let line = running.printed.last().unwrap().trim();
    let address = line.split('/').nth(2).unwrap().parse().unwrap();
    let api = Api {
        client: TestClient::http1(address),
        headers: http::HeaderMap::new(),
    };
    api.begin_session("How full are you?").await;
    let is_of_request = |line: &String| line.contains("plimsoll-8k");
    let mut lines = running.rest.by_ref().map_while(Result::ok);
    let line = lines.find(is_of_request).unwrap();
    let (line, time) = line.split_once(" healthy none ").unwrap();
    assert!(
        line.ends_with(" 200 simulated/plimsoll-8k 13 of 8,192"),
        "{line}"
    );
    let (took, unit) = time.trim().split_once(' ').unwrap();
    assert!(took.parse::<u32>().is_ok() && unit == "ms", "{time}");
    // A name is the client's: it makes no second line, and no colours.
    let forged =
        r#"{"model":"a\n200 forged\u001b[31m","messages":[{"role":"user","content":"x"}]}"#;
    assert_ne!(api.client.chat(forged).await.status, 200);
    let line = lines.find(|line| line.contains(" ms") && line.contains("forged"));
    let line = line.unwrap();
    assert!(
        line.contains(" a\u{fffd}200 forged\u{fffd}[31m "),
        "{line:?}"
    );
}
