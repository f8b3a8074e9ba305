//! Recorded conversations over sockets: unchanged where they fit, valid where they were cut.

use plimsoll::{
    config::{Config, ModelConfig},
    guard::profile::find_profile,
};

use crate::support::{
    COMPLETION, DONE, FINISH, ProviderStep, ScriptedProvider, TEXT, USAGE, answer, data,
    generate::{self, SHAPES},
    parse, stream_head, strict,
};

const ASKED: &str = ",\"stream_options\":{\"include_usage\":true}";

struct Body {
    name: String,
    bytes: Vec<u8>,
    model: String,
    streams: bool,
}

/// All recorded bodies, or generated ones.
fn bodies() -> Vec<Body> {
    let recorded = data::requests().into_iter().chain(data::unusual());
    let mut bodies: Vec<_> = recorded.map(|file| (file.name, file.body)).collect();
    if bodies.is_empty() {
        let made = SHAPES
            .iter()
            .flat_map(|&shape| (0..4).map(move |seed| (seed, shape)));
        bodies.extend(made.map(|(seed, shape)| {
            let body = generate::conversation(seed, shape);
            (format!("{shape:?} {seed}"), body)
        }));
    }
    let bodies = bodies.into_iter().map(|(name, bytes)| {
        let value = parse::parse_value(&bytes).unwrap();
        Body {
            name,
            model: value["model"].as_str().unwrap_or_default().to_owned(),
            streams: value["stream"] == true,
            bytes,
        }
    });
    bodies.collect()
}

/// Every model of the bodies gets this window.
fn set_windows(config: &mut Config, bodies: &[Body], window: u32) {
    for body in bodies {
        let model = ModelConfig {
            context_length: Some(window),
            provider: Some("up".into()),
            ..ModelConfig::default()
        };
        config.models.insert(body.model.clone(), model);
    }
    config.default_provider = Some("up".into());
    // Generated bodies name simulated models, and all must go to `up`.
    config.providers.remove("simulated");
}

/// Sends a body, and returns what the provider got; the answer is unchanged.
async fn send_through(
    up: &ScriptedProvider,
    proxy: &crate::support::RunningProxy,
    body: &Body,
) -> Vec<u8> {
    let stream = format!("{TEXT}{FINISH}{USAGE}{DONE}");
    if body.streams {
        up.script_next([
            stream_head(),
            ProviderStep::Drip(stream.clone().into()),
            ProviderStep::Close,
        ]);
    } else {
        up.script_next([answer("200 OK", "", format!(" {COMPLETION}\n"))]);
    }
    let got = proxy.chat(body.bytes.clone()).await;
    assert!(
        got.whole && got.status == 200,
        "{}: {}",
        body.name,
        got.text()
    );
    let sent = up.last_request().body;
    let text = String::from_utf8_lossy(&body.bytes);
    let asked = text.contains("include_usage");
    match (body.streams, asked) {
        (false, _) => assert_eq!(got.text(), format!(" {COMPLETION}\n"), "{}", body.name),
        (true, true) => assert_eq!(got.text(), stream, "{}", body.name),
        (true, false) => assert_eq!(got.text(), stream.replace(USAGE, ""), "{}", body.name),
    }
    sent
}

#[tokio::test]
async fn in_a_huge_window_recorded_requests_are_unchanged() {
    let up = ScriptedProvider::start().await;
    let bodies = bodies();
    let proxy = up.proxy().set(|config| {
        set_windows(config, &bodies, 100_000_000);
        config.guard.max_tool_result_chars = Some(usize::MAX);
    });
    let proxy = proxy.start().await;
    assert!(bodies.len() >= 40);
    for body in &bodies {
        let sent = send_through(&up, &proxy, body).await;
        let without = String::from_utf8_lossy(&sent).replace(ASKED, "");
        let same = sent == body.bytes || (body.streams && without.as_bytes() == body.bytes);
        assert!(same, "{}: {without:.300}", body.name);
    }
}

#[tokio::test]
async fn in_small_windows_recorded_requests_stay_valid() {
    let up = ScriptedProvider::start().await;
    let bodies = bodies();
    let mut cut = 0;
    for window in [8_192, 32_768] {
        let proxy = up.proxy();
        let proxy = proxy.set(|config| set_windows(config, &bodies, window));
        let proxy = proxy.start().await;
        for body in &bodies {
            let sent = send_through(&up, &proxy, body).await;
            let broken =
                strict::find_broken_rules(&body.bytes, &sent, find_profile("openai").unwrap());
            assert_eq!(broken, [], "{} at {window}", body.name);
            cut += usize::from(sent.len() < body.bytes.len());
        }
    }
    assert!(cut > 10, "{cut} were cut");
}
