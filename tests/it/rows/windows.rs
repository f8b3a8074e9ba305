//! Row 003.3: the windows of models, from where they are known.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use serde_json::{Value, json};

use super::{Meter, Program, Settings, header, lines_with, say, user};
use crate::support::{Process, ScriptedProvider, answer, within_time};

/// Settings of a provider named `openai`, which is no host of OpenAI.
fn settings_of_openai(meter: &Meter, lines: &str) -> Settings {
    let settings = Settings::new(&meter.up);
    let lines = format!("profile = \"openai\"\n{lines}");
    let text = settings
        .with_lines(&lines)
        .replace("[providers.up]", "[providers.openai]");
    std::fs::write(&settings.file, text).unwrap();
    settings
}

/// The window and its source, as a request's header and the list of providers tell them.
async fn window_of(program: &Program, model: &str) -> (String, Value) {
    let body = json!({"model": format!("openai/{model}"), "messages": [user(model)]});
    let got = program.chat(&body).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let listed = program
        .get(&format!("/v1/models/openai/{model}"))
        .await
        .json();
    (
        header(&got, "context-limit").to_owned(),
        listed["window_from"].clone(),
    )
}

/// 003.3: the windows of known models are built in, found by the exact name; 96,000 where nobody knows, with a
/// hint in the log, the list and the session.
#[tokio::test]
async fn row_003_3_built_in_and_unknown_windows() {
    let meter = Meter::start(say).await;
    let settings = settings_of_openai(&meter, "[admin]\nlocal = true\n");
    let program = Program::start_with(settings).await;
    for (model, window) in [
        ("gpt-4o", "128000"),
        ("gpt-4o-mini", "128000"),
        ("gpt-3.5-turbo", "16385"),
    ] {
        assert_eq!(
            window_of(&program, model).await,
            (window.to_owned(), json!("catalogue")),
            "{model}"
        );
    }
    let body = json!({"model": "openai/nobody-knows-it", "messages": [user("How much?")]});
    meter.set_tokens(1_000);
    let got = program.chat(&body).await;
    assert_eq!(header(&got, "context-limit"), "unknown");
    let session = program.session(&got).await;
    assert_eq!(session["health_reason"], "window_unknown");
    let (_, report) = program.fit(&body).await;
    assert_eq!(report["window"]["tokens"], 96_000);
    assert_eq!(report["window"]["source"], "assumed");
    let told = program.get("/plimsoll/api/providers").await.json();
    let hint =
        json!({"id": "openai/nobody-knows-it", "context_length": null, "window_from": "assumed"});
    let mut providers = told["providers"].as_array().unwrap().iter();
    let models = &providers.find(|it| it["name"] == "openai").unwrap()["models"];
    assert!(models.as_array().unwrap().contains(&hint), "{models}");
    // A fetched list is read again once a week at the latest.
    let settings = program.get("/plimsoll/api/settings").await.json();
    let mut settings = settings["settings"].as_array().unwrap().iter();
    let age = settings
        .find(|it| it["key"] == "catalogue.max_age_s")
        .unwrap();
    assert!(
        age["value"].as_u64().is_some_and(|age| age <= 7 * 86_400),
        "{age}"
    );
    let log = program.stop().await;
    let warned = lines_with(
        &log,
        "is unknown, so 96000 tokens are assumed; set context_length",
    );
    assert_eq!(warned.len(), 1, "{log}");
    assert_eq!(
        (&warned[0]["level"], &warned[0]["window"]),
        (&json!("WARN"), &json!(96_000))
    );
}

/// 003.3: exact name, then the longest known name that ends where a separator follows, then the default.
#[tokio::test]
async fn row_003_3_by_prefix() {
    let meter = Meter::start(say).await;
    let program = Program::start_with(settings_of_openai(&meter, "")).await;
    for (model, window) in [
        ("gpt-3.5-turbo-xyz", "16385"),
        ("gpt-4o:tuned", "128000"),
        ("gpt-4o-mini@eu", "128000"),
        ("gpt-4o_team", "128000"),
    ] {
        let found = window_of(&program, model).await;
        assert_eq!(
            found,
            (window.to_owned(), json!("catalogue by prefix")),
            "{model}"
        );
    }
    // A part of a word is no prefix, and a size is another model.
    for model in [
        "gpt-4omega",
        "gpt-4o-32k",
        "gpt-4o-nano",
        "gpt-4o:8b",
        "gpt-4o-1m",
    ] {
        assert_eq!(window_of(&program, model).await.0, "unknown", "{model}");
    }
}

/// A program that reads its list of models there.
async fn start_with_list(settings: &Path, list: &ScriptedProvider) -> Process {
    let url = format!("http://{}/api.json", list.address);
    Process::run(|command| {
        command
            .arg("--config")
            .arg(settings)
            .env("PLIMSOLL_CATALOGUE__URL", url)
    })
    .await
}

/// Waits until a model has the window of the list.
async fn wait_for_window(process: &Process, model: &str, window: u32) {
    let client = process.client();
    let path = format!("/v1/models/openai/{model}");
    within_time(async {
        loop {
            let got = client.get(&path).await;
            if got.status == 200 && got.json()["context_length"] == window {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// 003.3: a list in the form of models.dev is fetched and kept, over a restart and while it cannot be read.
#[tokio::test]
async fn row_003_3_fetched_list() {
    const LIST: &str = r#"{"openai":{"id":"openai","models":{"newest":{"id":"newest","limit":{"context":77000,"output":8000}}}}}"#;
    let meter = Meter::start(say).await;
    let settings = settings_of_openai(&meter, "");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let list = ScriptedProvider::start_answering(move |_| {
        vec![match count.fetch_add(1, SeqCst) {
            0 => answer("200 OK", "", LIST),
            _ => answer("500 Internal Server Error", "", "{}"),
        }]
    })
    .await;
    let process = start_with_list(&settings.file, &list).await;
    wait_for_window(&process, "newest", 77_000).await;
    let kept = settings.folder.path().join("data/catalogue");
    within_time(async {
        while !kept.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(process);
    // It is there from the start, and not read again while it is fresh.
    let process = start_with_list(&settings.file, &list).await;
    let got = process.client().get("/v1/models/openai/newest").await;
    assert_eq!(got.json()["context_length"], 77_000);
    assert_eq!(asked.load(SeqCst), 1);
    drop(process);
    // Once it is due and cannot be read, it is used all the same.
    let text = std::fs::read_to_string(&settings.file).unwrap();
    std::fs::write(
        &settings.file,
        format!("{text}[catalogue]\nmax_age_s = 60\n"),
    )
    .unwrap();
    let list_file = std::fs::read_to_string(&kept).unwrap();
    let (head, rest) = list_file.split_once('\n').unwrap();
    let (head, fetched) = head.rsplit_once(' ').unwrap();
    let an_hour_ago = fetched.parse::<u64>().unwrap() - 3_600;
    std::fs::write(&kept, format!("{head} {an_hour_ago}\n{rest}")).unwrap();
    let mut process = start_with_list(&settings.file, &list).await;
    process.wait_for_line("fetching the catalogue failed").await;
    let got = process.client().get("/v1/models/openai/newest").await;
    assert_eq!(got.json()["context_length"], 77_000);
    assert_eq!(asked.load(SeqCst), 2);
}
