//! `POST fit`: it returns what a provider would get, and asks no provider.

mod apart;
mod given;
mod pins;
mod reasoning;

use std::{fs, process::Command};

use http::Method;
use serde_json::{Value, json, value::RawValue};

use super::{ADMIN, Api, keyed};
use crate::support::{
    COMPLETION, RunningProxy, ScriptedProvider, answer, at_home,
    generate::{ConversationSize, Recipe, SHAPES, Session},
    model_with_window,
};

const WINDOW: u32 = 16_384;

/// A proxy before `up` with this window for every model.
async fn proxy_before(up: &ScriptedProvider) -> RunningProxy {
    let proxy = up.proxy().set(|config| {
        config
            .models
            .insert("*".to_owned(), model_with_window(WINDOW));
    });
    proxy.start().await
}

/// The fitted request and the report.
fn split_fitted(body: &[u8]) -> (&[u8], Value) {
    let rest = body.strip_prefix(b"{\"request\":").unwrap();
    // Escapes are not decoded: recorded conversations contain lone surrogates.
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
    let request = values.next().unwrap().unwrap().get();
    let report = rest[request.len()..].strip_prefix(b",\"report\":");
    let report = report.unwrap().strip_suffix(b"}").unwrap();
    (request.as_bytes(), serde_json::from_slice(report).unwrap())
}

/// The report of `plimsoll inspect` for the same request.
fn inspect_report(body: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.json");
    fs::write(&input, body).unwrap();
    let done = at_home(
        &mut Command::new(env!("CARGO_BIN_EXE_plimsoll")),
        folder.path(),
    )
    .current_dir(folder.path())
    .arg("inspect")
    .arg(&input)
    .args(["--json", "--profile", "openai", "--window"])
    .arg(WINDOW.to_string())
    .output()
    .unwrap();
    assert!(done.status.success());
    serde_json::from_slice(&done.stdout).unwrap()
}

#[tokio::test]
async fn fit_returns_the_request_that_the_provider_would_get() {
    let mut edited = 0;
    for (seed, &shape) in (1..).zip(SHAPES) {
        let session = Session::new(seed, Recipe::new(shape), ConversationSize::Bytes(150_000));
        let body = String::from_utf8(session.whole()).unwrap();
        // The proxy also asks a stream for its usage, which the guard does not do.
        let body = body.replace("\"stream\": true", "\"stream\": false");
        let body = body.replace("\"stream\":true", "\"stream\":false");
        let up = ScriptedProvider::start().await;
        let proxy = proxy_before(&up).await;
        // As without settings, which is how `inspect` plans.
        proxy.reload(|config| {
            config.guard.chars_per_token = None;
            config.guard.reserve_tokens = None;
            config.guard.when_unsure = None;
            // The proxy alone answers what a model recalls.
            config.guard.recall = plimsoll::config::RecallMode::Off;
        });
        let api = Api::new(&proxy).with("x-plimsoll-provider", "up");
        let fit = api.post("fit", body.clone()).await;
        assert_eq!(fit.status, 200, "{}", fit.text());
        let (request, report) = split_fitted(&fit.body);
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let path = "/v1/chat/completions";
        let got = api.send(Method::POST, path, body.clone()).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let sent = up.request().await;
        assert_eq!(up.count_requests(), 1, "nobody was asked to fit it");
        assert!(
            request == sent.body.trim_ascii(),
            "{shape:?}: other bytes are sent"
        );
        let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
        assert_eq!(report["actions"], actions, "{shape:?}");
        let mut expected = inspect_report(&body);
        expected["window"]["source"] = report["window"]["source"].clone();
        expected["provider"] = "up".into();
        assert_eq!(report, expected, "{shape:?}");
        edited += usize::from(request != body.trim().as_bytes());
    }
    assert!(edited * 2 > SHAPES.len(), "{edited} requests were edited");
}

#[tokio::test]
async fn fit_stores_nothing_and_asks_no_provider() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).await;
    let api = Api::new(&proxy);
    let body = json!({"model": "up/m", "messages": [{"role": "user", "content": "x",
        "plimsoll": {"name": "ask", "priority": "low"}}]});
    let fit = api.post("fit", body.to_string()).await;
    let (request, report) = split_fitted(&fit.body);
    let expected = json!({"model": "up/m", "messages": [{"role": "user", "content": "x"}]});
    assert_eq!(serde_json::from_slice::<Value>(request).unwrap(), expected);
    assert_eq!(report["actions"], "none");
    assert_eq!(report["window"]["source"], "settings");
    assert_eq!(fit.headers["cache-control"], "no-store");
    let packed = zstd::encode_all(body.to_string().as_bytes(), 1).unwrap();
    let packed = Api::new(&proxy)
        .with("content-encoding", "zstd")
        .post("fit", packed)
        .await;
    assert_eq!(packed.body, fit.body);
    assert_eq!(api.json("sessions").await["sessions"], json!([]));
    let providers = api.json("providers").await;
    let up = &providers["providers"][1];
    assert_eq!(
        (&up["name"], &up["attempts"]["answer"]),
        (&"up".into(), &0.into())
    );
}

#[tokio::test]
async fn fit_returns_other_json_unchanged() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up).await;
    let api = Api::new(&proxy);
    for body in [
        r#"{"model":"up/m","messages":"\u0078"}"#,
        r#"{"model":"up/m"}"#,
        r#"{"messages":[7],"model":"up/m"}"#,
    ] {
        let fit = api.post("fit", body).await;
        assert_eq!(fit.status, 200, "{body}: {}", fit.text());
        let (request, report) = split_fitted(&fit.body);
        assert_eq!(request, body.as_bytes());
        assert_eq!(report["actions"], "invalid-as-sent", "{body}");
        assert_eq!(report["stands_back"]["word"], "invalid-as-sent");
        assert!(report["stands_back"]["why"].as_str().unwrap().len() > 5);
        assert_eq!(report["as_it_goes"]["bytes"], body.len());
        assert!(report["budget_tokens"].as_u64() > Some(1_000));
    }
    let orphan = r#"{"model":"up/m", "messages":[{"role":"user","content":"x"},
        {"role":"tool","tool_call_id":"nobody","content":"y"}], "odd": 1.0e2}"#;
    let fit = api.post("fit", orphan).await;
    let (request, report) = split_fitted(&fit.body);
    assert_eq!(
        (request, &report["actions"]),
        (orphan.as_bytes(), &json!("none"))
    );
    let got = api.post("fit", "\u{feff}{\"model\":\"up/m\"}").await;
    assert_eq!(split_fitted(&got.body).0, br#"{"model":"up/m"}"#);
}

#[tokio::test]
async fn fit_refuses_invalid_requests() {
    let up = ScriptedProvider::start().await;
    let proxy = keyed(up.proxy())
        .set(|config| config.server.max_body_bytes = 10_000)
        .start()
        .await;
    let alice = Api::keyed(&proxy, "sk-secret-alice");
    let body = |model: &str| json!({"model": model, "messages": []}).to_string();
    alice.post("fit", "{").await.is_error(400, "invalid_json");
    alice.post("fit", "").await.is_error(400, "invalid_json");
    let invalid = b"{\"model\":\"up/m\",\"messages\":\"\xff\"}".to_vec();
    alice
        .post("fit", invalid)
        .await
        .is_error(400, "invalid_json");
    let nobody = Api::keyed(&proxy, "sk-secret-alice").with("x-plimsoll-provider", "nobody");
    let nobody = nobody.post("fit", body("up/m")).await;
    nobody.is_error(404, "provider_not_found");
    let long = alice.post("fit", "x".repeat(10_001)).await;
    long.is_error(413, "body_too_large");
    let coded = Api::keyed(&proxy, "sk-secret-alice").with("content-encoding", "rot13");
    let coded = coded.post("fit", body("up/m")).await;
    coded.is_error(415, "unsupported_content_encoding");
    let none = Api::new(&proxy).post("fit", body("up/m")).await;
    none.is_error(401, "invalid_api_key");
    alice.get("fit").await.is_error(405, "method_not_allowed");
    // A key for some models can fit for these only.
    let carol = Api::keyed(&proxy, "sk-secret-carol");
    assert_eq!(carol.post("fit", body("up/small-one")).await.status, 200);
    for hidden in ["up/large", "simulated/plimsoll-8k"] {
        let got = carol.post("fit", body(hidden)).await;
        got.is_error(404, "model_not_found");
    }
    let admin = Api::keyed(&proxy, ADMIN);
    assert_eq!(admin.post("fit", body("up/large")).await.status, 200);
}

#[tokio::test]
async fn a_key_fits_what_it_may_send() {
    let proxy = keyed(crate::support::ProxyBuilder::new())
        .set(|config| config.clients.get_mut("bob").unwrap().paths.clear())
        .start()
        .await;
    let body = r#"{"model":"simulated/plimsoll-8k","messages":[{"role":"user","content":"Ahoy"}]}"#;
    for (key, path, may) in [
        ("sk-secret-alice", "fit", true),
        ("sk-secret-alice", "fit?format=messages", false),
        ("sk-secret-bob", "fit", false),
        (ADMIN, "fit?format=messages", true),
    ] {
        let got = Api::keyed(&proxy, key).post(path, body).await;
        if may {
            assert_eq!(got.status, 200, "{key} {path} {}", got.text())
        } else {
            got.is_error(403, "path_not_allowed")
        }
    }
}
