//! Without client keys: the number of sessions of other keys is shown, and `admin.local` makes them
//! readable.

use http::Method;
use serde_json::Value;

use super::{ADMIN, Api, keyed};
use crate::support::{Process, ProxyBuilder, RunningProxy, ScriptedProvider, Settings};

const KEY: &str = "sk-secret-of-an-sdk";

async fn local() -> RunningProxy {
    let proxy = ProxyBuilder::new().set(|config| config.admin.local = true);
    proxy.start().await
}

fn session_ids(listed: &Value) -> Vec<&str> {
    let sessions = listed["sessions"].as_array().unwrap().iter();
    sessions
        .map(|session| session["id"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn the_list_says_how_many_sessions_other_keys_have_and_what_to_do() {
    let proxy = ProxyBuilder::new().start().await;
    let (sdk, page) = (Api::keyed(&proxy, KEY), Api::new(&proxy));
    let nothing = page.json("sessions").await;
    assert_eq!(nothing["of_other_keys"], 0);
    assert!(nothing["hint"].is_null());
    let id = sdk.begin_session("a task of the sdk").await;
    let listed = page.json("sessions").await;
    assert_eq!(session_ids(&listed), Vec::<&str>::new());
    assert_eq!(listed["of_other_keys"], 1);
    let hint = listed["hint"].as_str().unwrap();
    assert!(hint.contains("Bearer KEY") && hint.contains("admin.local = true"));
    // Only the number is shown.
    assert!(!listed.to_string().contains(&id));
    let other = page.get(&format!("sessions/{id}")).await;
    other.is_error(404, "session_not_found");
    let own = sdk.json("sessions").await;
    assert_eq!(session_ids(&own), [&id]);
    assert_eq!(own["of_other_keys"], 0);
    page.begin_session("a task of nobody").await;
    assert_eq!(sdk.json("sessions").await["of_other_keys"], 1);
}

#[tokio::test]
async fn with_client_keys_sessions_of_others_are_not_counted() {
    let proxy = keyed(ProxyBuilder::new()).start().await;
    let (alice, bob) = (
        Api::keyed(&proxy, "sk-secret-alice"),
        Api::keyed(&proxy, "sk-secret-bob"),
    );
    alice.begin_session("a task of alice").await;
    for api in [bob, Api::keyed(&proxy, ADMIN)] {
        let listed = api.json("sessions").await;
        assert!(listed["of_other_keys"].is_null() && listed["hint"].is_null());
    }
}

#[tokio::test]
async fn admin_local_lists_the_sessions_of_all_keys_without_their_texts() {
    let proxy = local().await;
    let (sdk, page) = (Api::keyed(&proxy, KEY), Api::new(&proxy));
    let sdk = sdk.with("user-agent", "an-sdk/1.2 (of a test)");
    let id = sdk.begin_session("a task of the sdk").await;
    let own = page.begin_session("a task of nobody").await;
    let listed = page.json("sessions").await;
    assert_eq!(session_ids(&listed), [&own, &id]);
    assert_eq!(listed["sessions"][0]["task"], "a task of nobody");
    assert_eq!(listed["sessions"][1]["task"], Value::Null);
    assert_eq!(listed["sessions"][1]["program"], "an-sdk");
    assert!(listed["of_other_keys"].is_null() && listed["hint"].is_null());
    assert_eq!(page.json("about").await["reader"], "local");
    let shown = page.json(&format!("sessions/{id}")).await;
    assert_eq!(shown["read_only"], true);
    for text in ["task", "reminders", "prompts", "summary"] {
        assert!(shown[text].is_null(), "{text}");
    }
    // The reader's own sessions are listed as always.
    let shown = page.json(&format!("sessions/{own}")).await;
    assert_eq!(shown["read_only"], false);
    assert!(shown["reminders"].is_array());
    // A key sees its own sessions.
    let listed = sdk.json("sessions").await;
    assert_eq!(
        (session_ids(&listed), &listed["of_other_keys"]),
        (vec![&*id], &1.into())
    );
}

#[tokio::test]
async fn admin_local_changes_nothing_of_another_key() {
    let proxy = local().await;
    let (sdk, page) = (Api::keyed(&proxy, KEY), Api::new(&proxy));
    let id = sdk.begin_session("a task of the sdk").await;
    for order in ["clear", "compact"] {
        let refused = page.post(&format!("sessions/{id}/{order}"), "").await;
        refused.is_error(403, "session_read_only");
    }
    let path = format!("/plimsoll/api/sessions/{id}");
    let refused = page.send(Method::PATCH, &path, r#"{"auto_compact": "on"}"#);
    refused.await.is_error(403, "session_read_only");
    let shown = sdk.json(&format!("sessions/{id}")).await;
    assert_eq!(shown["auto_compact"], "follow");
    assert_eq!(shown["clear_pending"], false);
    let missing = format!("sessions/{}/clear", "0".repeat(32));
    let missing = page.post(&missing, "").await;
    missing.is_error(404, "session_not_found");
    let own = page.begin_session("a task of nobody").await;
    let cleared = page.post(&format!("sessions/{own}/clear"), "").await;
    assert_eq!(cleared.status, 200, "{}", cleared.text());
}

#[tokio::test]
async fn admin_local_refuses_foreign_origins_and_forwarded_requests() {
    let proxy = local().await;
    let id = Api::keyed(&proxy, KEY)
        .begin_session("a task of the sdk")
        .await;
    let port = proxy.address.port();
    let other_port = format!("http://127.0.0.1:{}", port ^ 1);
    for (name, value, code) in [
        ("host", "rebound.example", "foreign_host"),
        ("origin", "https://example.com", "foreign_origin"),
        ("origin", &*other_port, "foreign_origin"),
        ("sec-fetch-site", "same-site", "foreign_origin"),
        ("sec-fetch-site", "cross-site", "foreign_origin"),
    ] {
        let page = Api::new(&proxy).with(name, value);
        for path in [
            "sessions".to_owned(),
            format!("sessions/{id}"),
            "events".to_owned(),
        ] {
            page.get(&path).await.is_error(403, code);
        }
    }
    for name in [
        "x-forwarded-for",
        "x-forwarded-host",
        "x-real-ip",
        "forwarded",
        "via",
    ] {
        let through = Api::new(&proxy).with(name, "192.0.2.7");
        let listed = through.json("sessions").await;
        assert_eq!(session_ids(&listed), Vec::<&str>::new(), "{name}");
        let other = through.get(&format!("sessions/{id}")).await;
        other.is_error(404, "session_not_found");
    }
    // Client keys override `admin.local`.
    proxy.reload(|config| {
        let keyed = ProxyBuilder::new().client("alice", "sk-secret-alice", &["*"]);
        keyed.set(|with| config.clients = with.clients.clone());
        config
            .providers
            .values_mut()
            .for_each(|it| it.auth = plimsoll::config::Auth::None);
    });
    let none = Api::new(&proxy).get("sessions").await;
    none.is_error(401, "invalid_api_key");
    let alice = Api::keyed(&proxy, "sk-secret-alice").json("sessions").await;
    assert_eq!(session_ids(&alice), Vec::<&str>::new());
    assert!(alice["of_other_keys"].is_null());
}

#[tokio::test]
async fn a_start_without_client_keys_says_whose_sessions_the_page_shows() {
    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write("");
    let mut process = Process::start(&settings.file).await;
    let line = process.wait_for_line("there are no client keys").await;
    let said = line["message"].as_str().unwrap();
    assert!(
        said.contains("/plimsoll/") && said.contains("admin.local = true"),
        "{said}"
    );
}
