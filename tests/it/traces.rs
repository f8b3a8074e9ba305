//! Traces as a collector receives them: spans, parents and attributes; and no collector delays a
//! request.

mod collector_down;
mod passed_on;

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use plimsoll::config::Config;

use crate::support::{
    COMPLETION, DONE, FINISH, ProviderStep, ProxyBuilder, ReceivedSpan, RunningProxy,
    ScriptedProvider, TEXT, TestClient, TestCollector, USAGE, answer, endless_stream,
    model_with_window, next, now_ns, only_span, send_bytes, stream_head, stream_of,
};

const ASK: &str = r#"{"model":"up/m","messages":[{"role":"user","content":"a prompt"}]}"#;
const STREAM: &str =
    r#"{"model":"up/m","stream":true,"messages":[{"role":"user","content":"a prompt"}]}"#;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A proxy with traces.
fn traced_proxy(up: &ScriptedProvider, collector: &TestCollector) -> ProxyBuilder {
    let endpoint = collector.endpoint();
    up.proxy().set(|config| {
        config.traces.endpoint = Some(endpoint);
        config.models.insert("up/m".into(), model_with_window(100));
    })
}

/// The spans that it exported by its end.
async fn exported_spans(mut proxy: RunningProxy, collector: &TestCollector) -> Vec<ReceivedSpan> {
    proxy.stop();
    proxy.wait_until_gone().await;
    collector.received_spans().await
}

/// Asserts that these are the request's children, in the order of their start.
#[track_caller]
fn assert_children(spans: &[ReceivedSpan], root: &ReceivedSpan, names: &[&str]) {
    let mut found: Vec<_> = spans.iter().filter(|it| it.parent == root.id).collect();
    found.sort_by_key(|span| span.begun_ns);
    let found: Vec<_> = found
        .iter()
        .map(|span| {
            assert_eq!(span.trace, root.trace);
            assert!(span.begun_ns >= root.begun_ns && span.ended_ns <= root.ended_ns);
            span.name.as_str()
        })
        .collect();
    assert_eq!(found, names);
}

fn root_span(spans: &[ReceivedSpan]) -> &ReceivedSpan {
    let mut found = spans.iter().filter(|it| it.kind == SpanKind::Server);
    let root = found.next().expect("a span of the request");
    assert!(found.next().is_none(), "{spans:#?}");
    root
}

fn attempts(spans: &[ReceivedSpan]) -> Vec<&ReceivedSpan> {
    let mut found: Vec<_> = spans
        .iter()
        .filter(|it| it.kind == SpanKind::Client)
        .collect();
    found.sort_by_key(|span| span.begun_ns);
    found
}

#[tokio::test]
async fn a_whole_answer_is_a_span_with_its_children() {
    let up = ScriptedProvider::start().await;
    let collector = TestCollector::start().await;
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let proxy = traced_proxy(&up, &collector).start().await;
    let answer = proxy.chat(ASK).await;
    let session = answer.headers["x-plimsoll-session"].to_str().unwrap();
    let spans = exported_spans(proxy, &collector).await;
    let root = root_span(&spans);
    assert_eq!((&*root.name, &*root.parent), ("chat up/m", ""));
    assert!(!root.failed);
    root.assert_attribute("gen_ai.operation.name", "chat");
    root.assert_attribute("gen_ai.provider.name", "up");
    root.assert_attribute("gen_ai.request.model", "up/m");
    root.assert_attribute("gen_ai.conversation.id", session);
    root.assert_attribute("gen_ai.usage.input_tokens", 7);
    root.assert_attribute("gen_ai.usage.output_tokens", 1);
    root.assert_attribute("gen_ai.response.finish_reasons", vec!["stop"]);
    root.assert_attribute("http.request.method", "POST");
    root.assert_attribute("http.route", "/v1/chat/completions");
    root.assert_attribute("http.response.status_code", 200);
    root.assert_attribute("plimsoll.health", "healthy");
    root.assert_attribute("plimsoll.hard_util", 0.07);
    root.assert_attribute("plimsoll.actions", "none");
    root.assert_no_attribute("error.type");
    root.assert_no_attribute("gen_ai.response.time_to_first_chunk");
    let names = [
        "plimsoll.store.find",
        "plimsoll.guard",
        "chat m",
        "plimsoll.store.save",
    ];
    assert_children(&spans, root, &names);
    assert_eq!(spans.len(), 5);
    let attempt = only_span(&spans, "chat m");
    attempt.assert_attribute("gen_ai.provider.name", "up");
    attempt.assert_attribute("gen_ai.request.model", "m");
    attempt.assert_attribute("server.address", "127.0.0.1");
    attempt.assert_attribute("server.port", up.address.port());
    attempt.assert_attribute("http.response.status_code", 200);
    attempt.assert_attribute("plimsoll.attempt", 1);
    assert!(!format!("{spans:?}").contains("a prompt"));
}

#[tokio::test]
async fn a_stream_is_a_span_until_its_last_byte() {
    let up = ScriptedProvider::start().await;
    let collector = TestCollector::start().await;
    up.script_next([
        stream_head(),
        send_bytes(TEXT),
        ProviderStep::Stall,
        send_bytes(format!("{FINISH}{USAGE}{DONE}")),
        ProviderStep::Close,
    ]);
    let proxy = traced_proxy(&up, &collector).start().await;
    let client = proxy.client();
    let begun = now_ns();
    let mut body = client.begin(client.chat_request(STREAM)).await.into_body();
    assert_eq!(next(&mut body).await, TEXT);
    let middle = now_ns();
    up.release_stalled();
    while next_or_end(&mut body).await {}
    let spans = exported_spans(proxy, &collector).await;
    let root = root_span(&spans);
    assert!(root.ended_ns > middle);
    let attempt = only_span(&spans, "chat m");
    assert!(attempt.begun_ns < middle && attempt.ended_ns > middle);
    root.assert_attribute("gen_ai.usage.input_tokens", 7);
    root.assert_attribute("plimsoll.health", "healthy");
    root.assert_attribute("gen_ai.response.finish_reasons", vec!["stop"]);
    let first = root.attributes["gen_ai.response.time_to_first_chunk"].as_f64();
    // The test has its own clock, and the proxy reads its two clocks at different moments.
    let until_middle = Duration::from_nanos(middle - begun).as_secs_f64();
    assert!(first.is_some_and(|first| 0.0 < first && first <= until_middle));
    let names = [
        "plimsoll.store.find",
        "plimsoll.guard",
        "chat m",
        "plimsoll.store.save",
    ];
    assert_children(&spans, root, &names);
}

async fn next_or_end(body: &mut hyper::body::Incoming) -> bool {
    use http_body_util::BodyExt;
    crate::support::within_time(body.frame()).await.is_some()
}

#[tokio::test]
async fn retries_and_fallbacks_are_attempts_of_one_request() {
    let up = ScriptedProvider::start().await;
    let other = ScriptedProvider::start().await;
    let collector = TestCollector::start().await;
    for _ in 0..2 {
        up.script_next([answer("500 Internal Server Error", "", "{}")]);
    }
    other.script_next([answer("200 OK", "", COMPLETION)]);
    let proxy = traced_proxy(&up, &collector)
        .provider("other", &other)
        .providers(|provider| provider.auth = plimsoll::config::Auth::None)
        .set(|config| {
            config.retry.max_retries = 1;
            config.retry.base_delay = Duration::from_millis(1);
            let model = config.models.get_mut("up/m").unwrap();
            model.fallback = vec!["other/b".into()];
        })
        .start()
        .await;
    assert_eq!(proxy.chat(ASK).await.status, 200);
    let spans = exported_spans(proxy, &collector).await;
    let root = root_span(&spans);
    root.assert_attribute("gen_ai.provider.name", "other");
    root.assert_attribute("plimsoll.attempts", 3);
    let attempts = attempts(&spans);
    let told: Vec<_> = attempts
        .iter()
        .map(|span| {
            assert_eq!(span.parent, root.id);
            let of = |key: &str| span.attributes.get(key).cloned().unwrap_or_default();
            let status = of("http.response.status_code").as_i64().unwrap();
            (span.name.clone(), status, span.failed, of("error.type"))
        })
        .collect();
    let failed = ("chat m".to_owned(), 500, true, "500".into());
    let answered = ("chat b".to_owned(), 200, false, serde_json::Value::Null);
    assert_eq!(told, [failed.clone(), failed, answered]);
    // Each candidate has its own plan.
    let guards = spans.iter().filter(|span| span.name == "plimsoll.guard");
    assert_eq!(guards.count(), 2);
    let parents: Vec<_> = [up.requests(2).await, other.requests(1).await].concat();
    for (seen, attempt) in parents.iter().zip(&attempts) {
        let expected = format!("00-{}-{}-01", root.trace, attempt.id);
        assert_eq!(seen.header("traceparent"), Some(&*expected));
    }
}

#[tokio::test]
async fn failures_and_disconnects_are_recorded() {
    let up = ScriptedProvider::start().await;
    let collector = TestCollector::start().await;
    let gone = |config: &mut Config| {
        let gone = plimsoll::config::ProviderConfig {
            base_url: Some("http://127.0.0.1:1/v1".into()),
            ..config.providers["up"].clone()
        };
        config.providers.insert("gone".into(), gone);
    };
    let proxy = traced_proxy(&up, &collector).set(gone).start().await;
    let client = proxy.client();
    let answer = client.chat(ASK.replace("up/m", "gone/m")).await;
    answer.is_error(502, "provider_unreachable");
    // Half a stream whose client disconnects.
    up.script_next(endless_stream());
    let leaving = TestClient::http1(proxy.address);
    let mut body = leaving
        .begin(leaving.chat_request(STREAM))
        .await
        .into_body();
    assert_eq!(next(&mut body).await, TEXT);
    drop((body, leaving));
    up.closed(0).await;
    // And one that breaks.
    up.script_next(stream_of([TEXT]));
    assert!(!client.chat(STREAM).await.whole);
    client.get("/v1/models").await;
    client.get("/healthz").await;
    let spans = exported_spans(proxy, &collector).await;
    let with_error = |error: &str| {
        let is = |span: &&ReceivedSpan| {
            let said = span.attributes.get("error.type");
            span.kind == SpanKind::Server && said.is_some_and(|it| it == error)
        };
        let found: Vec<_> = spans.iter().filter(is).collect();
        assert_eq!(found.len(), 1, "{error} in {spans:#?}");
        found[0]
    };
    let unreachable = with_error("provider_unreachable");
    assert!(unreachable.failed);
    unreachable.assert_attribute("http.response.status_code", 502);
    let attempt = attempts(&spans)
        .into_iter()
        .find(|it| it.parent == unreachable.id);
    let attempt = attempt.unwrap();
    assert!(attempt.failed);
    attempt.assert_attribute("error.type", "unreachable");
    let left = with_error("client_left");
    assert!(!left.failed);
    left.assert_no_attribute("gen_ai.usage.input_tokens");
    let names = ["plimsoll.store.find", "plimsoll.guard", "chat m"];
    assert_children(&spans, left, &names);
    assert!(with_error("broken").failed);
    let list = only_span(&spans, "GET /v1/models");
    list.assert_no_attribute("gen_ai.operation.name");
    assert!(!spans.iter().any(|span| span.name.contains("healthz")));
    let servers = spans.iter().filter(|it| it.kind == SpanKind::Server);
    assert_eq!(servers.count(), 4);
}
