//! Every header of a buffered answer.

use plimsoll::config::ModelConfig;
use serde_json::json;

use super::{Talk, completion, completion_of, header, health_line, proxy_before, user};
use crate::support::{ProviderStep, ProxyBuilder, ScriptedProvider, answer};

/// The health headers of an answer with this reported usage.
async fn check(
    proxy: ProxyBuilder,
    up: &ScriptedProvider,
    prompt_tokens: Option<u32>,
    expected: &str,
) {
    up.script_next([completion_of("hi", prompt_tokens)]);
    let proxy = proxy.start().await;
    let mut talk = Talk::new(&proxy);
    let answer = talk.say("x").await;
    assert_eq!(health_line(&answer.headers), expected);
    let shown = talk.session(&answer).await;
    let known = expected.split(' ').next().unwrap();
    assert_eq!(shown["health"], known);
    assert_eq!(shown["prompt_tokens"], json!(prompt_tokens));
}

#[tokio::test]
async fn every_health_level_has_its_headers() {
    let up = ScriptedProvider::start().await;
    // A quarter of the window and a margin are kept free: caution is over 60 % of the rest,
    // critical over 90 %.
    for (used, expected) in [
        (Some(1), "healthy response 1 10000 0.000 0.000"),
        (Some(1_234), "healthy response 1234 10000 0.123 0.279"),
        (Some(4_429), "healthy response 4429 10000 0.443 1.000"),
        (Some(4_430), "caution response 4430 10000 0.443 1.000"),
        (Some(6_644), "caution response 6644 10000 0.664 1.500"),
        (Some(6_645), "critical response 6645 10000 0.664 1.500"),
        (Some(12_345), "critical response 12345 10000 1.234 2.787"),
        (None, "unknown response unknown 10000 - -"),
    ] {
        check(proxy_before(&up, 10_000), &up, used, expected).await;
    }
}

#[tokio::test]
async fn an_assumed_window_is_no_limit() {
    let up = ScriptedProvider::start().await;
    for (used, expected) in [
        (Some(95_000), "healthy response 95000 unknown - 0.950"),
        (Some(500_000), "caution response 500000 unknown - 5.000"),
        (Some(10), "healthy response 10 unknown - 0.000"),
        (None, "unknown response unknown unknown - -"),
    ] {
        check(up.proxy(), &up, used, expected).await;
    }
}

#[tokio::test]
async fn configured_limits_decide_the_health_level() {
    let up = ScriptedProvider::start().await;
    for (used, expected) in [
        (100, "healthy response 100 10000 0.010 1.000"),
        (101, "caution response 101 10000 0.010 1.010"),
        (201, "critical response 201 10000 0.020 2.010"),
    ] {
        let model = ModelConfig {
            context_length: Some(10_000),
            optimal_max_tokens: Some(100),
            critical_max_tokens: Some(200),
            ..ModelConfig::default()
        };
        let proxy =
            proxy_before(&up, 1).set(|config| drop(config.models.insert("m".into(), model)));
        check(proxy, &up, Some(used), expected).await;
    }
}

#[tokio::test]
async fn headers_of_the_provider_never_replace_the_proxys() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let theirs = "x-plimsoll-health: forged\r\nx-plimsoll-session: forged\r\nx-plimsoll-countdown: 3\r\nx-request-id: r1\r\nserver-timing: db;dur=1\r\n";
    let body = completion(&json!({"content": "hi"}), Some(7));
    up.script_next([answer("200 OK", theirs, &body)]);
    let mut talk = Talk::new(&proxy);
    let got = talk.say("x").await;
    assert_eq!(got.text(), body);
    assert_eq!(
        health_line(&got.headers),
        "healthy response 7 10000 0.001 0.002"
    );
    let session = header(&got, "session");
    assert!(session.len() == 32 && session.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(header(&got, "actions"), "none");
    assert_eq!(header(&got, "provider"), "up");
    assert_eq!(header(&got, "attempts"), "1");
    assert!(!got.headers.contains_key("x-plimsoll-countdown"));
    assert_eq!(got.headers["x-request-id"], "r1");
    let timings = got.headers.get_all("server-timing").iter();
    let timings: Vec<_> = timings.map(|value| value.to_str().unwrap()).collect();
    let ours = timings.iter().find(|value| value.contains("guard;dur="));
    let mut parts = ours.unwrap().split(", ");
    for name in ["guard;dur=", "upstream;dur="] {
        let (_, number) = parts.next().unwrap().split_once(name).unwrap();
        let (_, decimals) = number.split_once('.').unwrap();
        assert!(number.parse::<f64>().unwrap() >= 0.0 && decimals.len() == 3);
    }
    assert_eq!(parts.next(), None);
    assert!(timings.contains(&"db;dur=1"), "{timings:?}");
}

#[tokio::test]
async fn provider_errors_pass_with_the_proxys_headers() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_before(&up, 10_000).start().await;
    let mut talk = Talk::new(&proxy);
    let first = talk.say_once(&up).await;
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "503 Service Unavailable",
    ] {
        let body = r#"{ "error" : {"message":"no","code":1e0}}"#;
        up.script_next([answer(status, "retry-after: 7\r\n", body)]);
        let got = talk.ask().await;
        assert_eq!(got.status.as_str(), &status[..3]);
        assert_eq!(got.text(), body);
        assert_eq!(got.headers["retry-after"], "7");
        assert!(!got.headers.contains_key("x-plimsoll-error"));
        assert_eq!(header(&got, "session"), header(&first, "session"));
        assert_eq!(header(&got, "actions"), "none");
        assert_eq!(header(&got, "provider"), "up");
        // The health of the previous answer is known.
        assert_eq!(
            health_line(&got.headers),
            "healthy previous 500 10000 0.050 0.113"
        );
    }
    assert_eq!(talk.session(&first).await["generations"], 1);
    up.script_next([ProviderStep::Close]);
    up.script_next([ProviderStep::Close]);
    talk.ask().await.is_error(502, "provider_unreachable");
}

impl Talk {
    /// Runs one turn, and adds the next question.
    async fn say_once(&mut self, up: &ScriptedProvider) -> crate::support::ClientAnswer {
        up.script_next([completion_of("hi", Some(500))]);
        let answer = self.say("x").await;
        self.messages.push(user("y"));
        answer
    }
}
