//! `plimsoll inspect` compared with the proxy: it writes what the proxy sends.

use std::{fs, path::Path, process::Command};

use crate::support::{
    COMPLETION, ScriptedProvider, answer, at_home,
    generate::{ConversationSize, Recipe, SHAPES, Session},
    model_with_window,
};
use http::HeaderValue;
use plimsoll::format::chat::index_body;
use serde_json::Value;

const WINDOW: u32 = 16_384;

/// The report and the fitted request.
fn inspect(body: &[u8], folder: &Path) -> (Value, Vec<u8>) {
    let (input, output) = (folder.join("in.json"), folder.join("out.json"));
    fs::write(&input, body).unwrap();
    let done = at_home(&mut Command::new(env!("CARGO_BIN_EXE_plimsoll")), folder)
        .current_dir(folder)
        .arg("inspect")
        .arg(&input)
        .args(["--json", "--profile", "openai", "--window"])
        .arg(WINDOW.to_string())
        .arg("--output")
        .arg(&output)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    let report = serde_json::from_slice(&done.stdout).unwrap();
    (report, fs::read(&output).unwrap())
}

/// The request that a proxy sends, and the actions in its header.
async fn sent_by_proxy(body: &[u8], model: &str) -> (Vec<u8>, String) {
    let up = ScriptedProvider::start().await;
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let proxy = up.proxy().set(|config| {
        // As without settings, which is how `inspect` plans.
        config.guard.chars_per_token = None;
        config.guard.reserve_tokens = None;
        config.guard.when_unsure = None;
        // The proxy alone answers what a model recalls.
        config.guard.recall = plimsoll::config::RecallMode::Off;
        config
            .models
            .insert(model.to_owned(), model_with_window(WINDOW));
    });
    let proxy = proxy.start().await;
    let client = proxy.client();
    let mut request = client.chat_request(body.to_vec());
    // Every model belongs to this provider, and its name is unchanged.
    let chosen = HeaderValue::from_static("up");
    request.headers_mut().insert("x-plimsoll-provider", chosen);
    let got = client.send(request).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
    (up.request().await.body, actions.to_owned())
}

/// Asserts that the report is consistent.
fn adds_up(report: &Value) {
    let number = |value: &Value| value.as_u64().unwrap();
    let budget = number(&report["budget_tokens"]);
    for made in [&report["as_it_came"], &report["as_it_goes"]] {
        let parts = ["system", "tools", "history", "tool_results", "images"];
        let sum: u64 = parts.iter().map(|part| number(&made[*part])).sum();
        assert_eq!(sum, number(&made["prompt"]), "{report}");
        let (free, over) = (number(&made["free"]), number(&made["over"]));
        assert_eq!(sum + free, budget + over, "{report}");
        assert!(free == 0 || over == 0, "{report}");
    }
    let count = |made: &str| number(&report[made]["messages"]);
    let folded = &report["folded"];
    let gone = folded["messages"].as_u64().unwrap_or(0);
    let note = (count("as_it_goes") + gone).checked_sub(count("as_it_came"));
    assert!(matches!(note, Some(0 | 1)), "{report}");
    let cut = &report["next"]["folded"];
    let next = cut["messages"].as_u64().unwrap_or(0);
    assert!(
        gone + next < count("as_it_came"),
        "what is gone does not go again: {report}"
    );
    if let Some(last) = cut["last"].as_u64() {
        assert!(last + 1 < count("as_it_came"), "the newest stays: {report}");
    }
}

#[tokio::test]
async fn inspect_writes_what_the_proxy_sends() {
    let folder = tempfile::tempdir().unwrap();
    let mut edited = 0;
    for (seed, &shape) in (1..).zip(SHAPES) {
        let session = Session::new(seed, Recipe::new(shape), ConversationSize::Bytes(150_000));
        let body = session.whole();
        // The proxy also asks a stream for its usage, which the guard does not do.
        let text = String::from_utf8(body).unwrap();
        let body = text.replace("\"stream\": true", "\"stream\": false");
        let body = body.replace("\"stream\":true", "\"stream\":false");
        let conversation = index_body(body.clone().into()).unwrap();
        let model = conversation.model().unwrap();
        let (report, written) = inspect(body.as_bytes(), folder.path());
        let (expected, actions) = sent_by_proxy(body.as_bytes(), &model).await;
        assert!(written == expected, "{shape:?}: other bytes are sent");
        assert_eq!(report["actions"], actions, "{shape:?}");
        adds_up(&report);
        edited += usize::from(written != body.as_bytes());
    }
    assert!(edited * 2 > SHAPES.len(), "{edited} requests were edited");
}
