//! The row of the card: what was asked for in the first place.

use std::{fs, path::Path};

use http::Method;
use serde_json::json;

use super::{Meter, Program, header, messages_of, say, user};
use crate::support::{Agent, full_body};

/// Card: any client's base URL; streams; a gateway before several providers; health in response headers;
/// recovery messages on later requests.
#[tokio::test]
async fn row_card_gateway() {
    let (up, other) = (Meter::start(say).await, Meter::start(say).await);
    let lines = format!(
        "profile = \"openai\"\nmodels = [\"m\"]\n\
         [providers.other]\nbase_url = \"http://{}/v1\"\nauth = \"none\"\nask_models = false\n\
         profile = \"openai\"\nmodels = [\"n\"]\n\
         [models.m]\ncontext_length = 100000\noptimal_max_tokens = 40000\n\
         [models.n]\ncontext_length = 50000\n",
        other.up.address
    );
    let program = Program::start(&up.up, &lines).await;
    up.set_tokens(1_000);
    other.set_tokens(1_000);
    for (model, provider, limit) in [("m", "up", "100000"), ("n", "other", "50000")] {
        for stream in [false, true] {
            let agent = Agent::bare(program.process.client())
                .set("model", model)
                .set("stream", stream)
                .says("Who answers?");
            let got = agent.ask().await;
            assert_eq!(header(&got.answer, "provider"), provider);
            assert_eq!(got.header("context-limit"), Some(limit));
            assert_eq!(got.header("health"), Some("healthy"));
            assert_eq!(got.header("prompt-tokens"), Some("1000"));
            assert!(got.text().starts_with("Answer "));
        }
    }
    assert_eq!((up.up.count_requests(), other.up.count_requests()), (2, 2));
    // A base URL may name the provider.
    let client = program.process.client();
    let body = json!({"model": "n", "messages": [user("And so?")]}).to_string();
    let request = client.request(Method::POST, "/other/v1/chat/completions");
    let request = request.header("content-type", "application/json");
    let got = client.send(request.body(full_body(body)).unwrap()).await;
    assert_eq!(
        (got.status.as_u16(), header(&got, "provider")),
        (200, "other")
    );
    let listed = client.get("/v1/models").await.json();
    for id in ["m", "n", "up/m", "other/n"] {
        let mut models = listed["data"].as_array().unwrap().iter();
        assert!(models.any(|model| model["id"] == id), "{id}: {listed}");
    }
    // A message of recovery comes with the next request, and stays.
    up.set_tokens(50_000);
    let mut agent = program.agent();
    let first = agent.step().await;
    assert_eq!(
        (first.header("health"), first.injected()),
        (Some("caution"), None)
    );
    for nth in 0..2 {
        let next = agent.step().await;
        assert_eq!(next.injected(), (nth == 0).then_some("caution"));
        let sent = up.last_body();
        let told = messages_of(&sent)[3].to_string();
        assert!(told.contains("add_reminder"), "{told}");
    }
}

/// Card: hyper, hyper-util, tokio, reqwest, serde_json, bytes, tracing, figment; `Cargo.toml`, `src`,
/// `config.toml`, `tests`, `benches`, `README.md`.
#[test]
fn row_card_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["src", "tests", "benches"] {
        assert!(root.join(name).is_dir(), "{name}");
    }
    for name in ["Cargo.toml", "config.toml", "README.md"] {
        assert!(root.join(name).is_file(), "{name}");
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("\n[dependencies]\n").unwrap();
    let (dependencies, _) = rest.split_once("\n[").unwrap();
    for name in [
        "hyper",
        "hyper-util",
        "tokio",
        "reqwest",
        "serde_json",
        "bytes",
        "tracing",
        "figment",
    ] {
        let begins = |line: &str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(" = "))
        };
        assert!(dependencies.lines().any(begins), "{name}");
    }
}
