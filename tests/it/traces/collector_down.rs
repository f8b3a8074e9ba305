//! A collector that is down, slow or refuses: requests continue, and it is logged once.

use std::time::Instant;

use super::{ASK, TestCollector, exported_spans, traced_proxy};
use crate::support::{
    COMPLETION, ClientAnswer, Process, ProviderStep, ReceivedRequest, RunningProxy,
    ScriptedProvider, Settings, answer,
};

async fn answering_provider() -> ScriptedProvider {
    ScriptedProvider::start_answering(|_: &ReceivedRequest| vec![answer("200 OK", "", COMPLETION)])
        .await
}

#[tokio::test]
async fn a_collector_that_is_down_is_logged_once() {
    let up = answering_provider().await;
    let settings = Settings::new(&up);
    settings.write(
        "[traces]\nendpoint = \"http://127.0.0.1:1/v1/traces?token=sk-secret\"\n\
         headers_env = \"OTLP_HEADERS\"",
    );
    let mut process = Process::run(|command| {
        command
            .arg("--config")
            .arg(&settings.file)
            .env("OTLP_HEADERS", "authorization=Bearer sk-secret")
    })
    .await;
    let client = process.client();
    let asked = || async {
        for _ in 0..3 {
            assert_eq!(client.chat(ASK).await.status, 200);
        }
    };
    asked().await;
    let warned = process
        .wait_for_line("spans do not reach their collector")
        .await;
    assert_eq!(warned["level"], "WARN");
    // A later batch is lost too, without another log line.
    asked().await;
    wait_for_failed(&process).await;
    process.signal("TERM");
    let (status, log) = process.wait_for_end().await;
    assert!(status.success());
    assert!(!log.contains("collector"), "{log}");
    assert!(
        !log.contains("penTelemetry") && !log.contains("opentelemetry"),
        "{log}"
    );
    assert!(!log.contains("sk-secret") && !warned.to_string().contains("sk-secret"));
    let line = log.lines().find(|line| line.contains("request answered"));
    let line: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
    assert_eq!(line["trace_id"].as_str().unwrap().len(), 32);
    assert!(line["guard_ms"].is_number(), "{line}");
}

/// Waits until the spans of both batches are counted as lost.
async fn wait_for_failed(process: &Process) {
    crate::support::within_time(async {
        loop {
            let metrics = process.client().get("/metrics").await;
            let failed = metrics
                .text()
                .lines()
                .find_map(|line| line.strip_prefix("plimsoll_spans_total{outcome=\"failed\"} "));
            if failed.unwrap().parse::<u32>().unwrap() >= 30 {
                return;
            }
        }
    })
    .await;
}

async fn send_five(proxy: &RunningProxy) -> Vec<ClientAnswer> {
    let client = proxy.client();
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(client.chat(ASK).await);
    }
    answers
}

#[tokio::test]
async fn a_collector_that_never_answers_holds_up_no_request() {
    let up = answering_provider().await;
    let collector = TestCollector {
        server: ScriptedProvider::start_answering(|_: &ReceivedRequest| vec![ProviderStep::Stall])
            .await,
    };
    let mut proxy = traced_proxy(&up, &collector).start().await;
    for answer in send_five(&proxy).await {
        assert_eq!(answer.status, 200);
    }
    // The collector has the first batch, and does not answer.
    collector.server.request().await;
    for answer in send_five(&proxy).await {
        assert_eq!(answer.status, 200);
    }
    let begun = Instant::now();
    proxy.stop();
    proxy.wait_until_gone().await;
    assert!(begun.elapsed().as_secs() < 8, "the end is bounded");
}

#[tokio::test]
async fn a_collector_that_refuses_redirects_or_floods_costs_nothing() {
    let answers: [(&str, &str); 3] = [
        ("500 Internal Server Error", ""),
        (
            "307 Temporary Redirect",
            "location: http://127.0.0.1:1/\r\n",
        ),
        ("400 Bad Request", ""),
    ];
    for (status, headers) in answers {
        let up = answering_provider().await;
        let collector = TestCollector {
            server: ScriptedProvider::start_answering(move |_: &ReceivedRequest| {
                vec![answer(status, headers, "x".repeat(200_000))]
            })
            .await,
        };
        let proxy = traced_proxy(&up, &collector).start().await;
        for answer in send_five(&proxy).await {
            assert_eq!(answer.status, 200);
        }
        assert!(!exported_spans(proxy, &collector).await.is_empty());
    }
}

#[tokio::test]
async fn queued_spans_are_sent_at_shutdown_with_configured_headers() {
    let (up, collector) = (answering_provider().await, TestCollector::start().await);
    let headers = [("authorization", "Bearer c"), ("x-team", "t")];
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let proxy = traced_proxy(&up, &collector).set(|config| {
        config
            .traces
            .headers
            .extend::<[(http::HeaderName, _); 2]>(headers);
        config.traces.service_name = "my-proxy".into();
    });
    let proxy = proxy.start().await;
    send_five(&proxy).await;
    let spans = exported_spans(proxy, &collector).await;
    assert_eq!(spans.len(), 25);
    let seen = collector.server.request().await;
    assert_eq!(seen.header("authorization"), Some("Bearer c"));
    assert_eq!(seen.header("x-team"), Some("t"));
    assert!(String::from_utf8_lossy(&seen.body).contains("my-proxy"));
}
