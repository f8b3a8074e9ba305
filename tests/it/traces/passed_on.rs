//! `traceparent` and `tracestate`: from the client, and to the provider.

use super::{ASK, PARENT, TRACE, attempts, exported_spans, root_span, traced_proxy};
use crate::support::{
    COMPLETION, ClientAnswer, RunningProxy, ScriptedProvider, TestCollector, answer,
};

async fn ask(
    proxy: &RunningProxy,
    path: &str,
    body: &str,
    headers: &[(&str, &str)],
) -> ClientAnswer {
    let client = proxy.client();
    let mut request = client.chat_request(body.to_owned());
    *request.uri_mut() = format!("http://{}{path}", proxy.address).parse().unwrap();
    for (name, value) in headers {
        let value = http::HeaderValue::from_str(value).unwrap();
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value);
    }
    client.send(request).await
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_client_trace_continues_through_the_proxy() {
    let up = ScriptedProvider::start().await;
    let collector = TestCollector::start().await;
    let proxy = traced_proxy(&up, &collector).start().await;
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let said = [("traceparent", &*parent), ("tracestate", "a=b,c=d")];
    // On every path.
    for path in [CHAT, "/v1/embeddings"] {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        ask(&proxy, path, ASK, &said).await;
    }
    let spans = exported_spans(proxy, &collector).await;
    let seen = up.requests(2).await;
    let attempts = attempts(&spans);
    assert_eq!(attempts.len(), 2);
    for (seen, attempt) in seen.iter().zip(attempts) {
        assert_eq!(attempt.trace, TRACE);
        let root = spans.iter().find(|span| span.id == attempt.parent).unwrap();
        assert_eq!((&*root.trace, &*root.parent), (TRACE, PARENT));
        let expected = format!("00-{TRACE}-{}-01", attempt.id);
        assert_eq!(seen.header("traceparent"), Some(&*expected));
        assert_eq!(seen.header("tracestate"), Some("a=b,c=d"));
    }
    assert!(spans.iter().any(|span| span.name == "embeddings up/m"));
}

#[tokio::test]
async fn a_trace_the_client_does_not_sample_is_not_recorded() {
    let up = ScriptedProvider::start().await;
    let collector = TestCollector::start().await;
    let proxy = traced_proxy(&up, &collector).start().await;
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let parent = format!("00-{TRACE}-{PARENT}-00");
    ask(&proxy, CHAT, ASK, &[("traceparent", &parent)]).await;
    assert!(exported_spans(proxy, &collector).await.is_empty());
    let seen = up.request().await;
    let passed = seen.header("traceparent").unwrap();
    assert!(passed.starts_with(&format!("00-{TRACE}-")), "{passed}");
    assert!(
        passed.ends_with("-00") && !passed.contains(PARENT),
        "{passed}"
    );
}

#[tokio::test]
async fn with_sample_zero_a_sampled_client_trace_is_recorded() {
    let up = ScriptedProvider::start().await;
    let collector = TestCollector::start().await;
    let none = |config: &mut plimsoll::config::Config| config.traces.sample = 0.0;
    let proxy = traced_proxy(&up, &collector).set(none).start().await;
    for headers in [
        vec![],
        vec![("traceparent", format!("00-{TRACE}-{PARENT}-01"))],
    ] {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let headers: Vec<_> = headers.iter().map(|(name, it)| (*name, &**it)).collect();
        ask(&proxy, CHAT, ASK, &headers).await;
    }
    let spans = exported_spans(proxy, &collector).await;
    assert_eq!((root_span(&spans).trace.as_str(), spans.len()), (TRACE, 5));
}

#[tokio::test]
async fn an_invalid_traceparent_begins_a_new_trace() {
    let up = ScriptedProvider::start().await;
    let collector = TestCollector::start().await;
    let proxy = traced_proxy(&up, &collector).start().await;
    let bad = [
        "",
        "00-zz-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ];
    for said in bad {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let headers = [("traceparent", said), ("tracestate", "a=b")];
        ask(&proxy, CHAT, ASK, &headers).await;
        let seen = up.last_request();
        assert!(!seen.header("traceparent").unwrap().contains(TRACE));
        // It belongs to another trace.
        assert_eq!(seen.header("tracestate"), None);
    }
    let spans = exported_spans(proxy, &collector).await;
    let roots = spans.iter().filter(|span| span.parent.is_empty());
    assert_eq!(roots.count(), bad.len());
}

#[tokio::test]
async fn without_traces_the_traceparent_passes_unchanged() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    for path in [CHAT, "/v1/embeddings"] {
        for parent in [format!("00-{TRACE}-{PARENT}-01"), "what is this".to_owned()] {
            up.script_next([answer("200 OK", "", COMPLETION)]);
            let said = [("traceparent", &*parent), ("tracestate", "a=b, c=d")];
            ask(&proxy, path, ASK, &said).await;
            let seen = up.last_request();
            assert_eq!(seen.header("traceparent"), Some(&*parent));
            assert_eq!(seen.header("tracestate"), Some("a=b, c=d"));
        }
    }
    up.script_next([answer("200 OK", "", COMPLETION)]);
    ask(&proxy, CHAT, ASK, &[]).await;
    assert_eq!(up.last_request().header("traceparent"), None);
}
