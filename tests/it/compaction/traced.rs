//! A summary has its own trace, linked to its request.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::{Pair, agent_past_threshold, good_summary, summary_key, wait_for_summary};
use crate::support::{TestCollector, only_span};

#[tokio::test]
async fn a_summary_is_a_trace_of_its_own_linked_to_its_request() {
    let pair = Pair::new(good_summary).await;
    let collector = TestCollector::start().await;
    let endpoint = collector.endpoint();
    let proxy = pair.proxy();
    let mut proxy = proxy
        .set(|config| {
            config.traces.endpoint = Some(endpoint);
            // The sampling decision of its request holds for the summary.
            config.traces.sample = 0.0;
        })
        .start()
        .await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut agent = agent_past_threshold(&proxy).with("traceparent", parent);
    let generation = agent.step().await;
    wait_for_summary(&agent, &generation).await;
    proxy.stop();
    proxy.wait_until_gone().await;
    let spans = collector.received_spans().await;
    let summary = only_span(&spans, "plimsoll.summary");
    let request = spans.iter().find(|it| it.kind == SpanKind::Server).unwrap();
    assert_eq!(summary.parent, "");
    assert_ne!(summary.trace, request.trace);
    assert_eq!(summary.links, [(request.trace.clone(), request.id.clone())]);
    summary.assert_attribute("plimsoll.outcome", "made");
    summary.assert_attribute(
        "gen_ai.conversation.id",
        generation.header("session").unwrap(),
    );
    assert!(summary.attributes["gen_ai.usage.input_tokens"].as_i64() > Some(0));
    let asked = spans.iter().find(|it| it.parent == summary.id).unwrap();
    assert_eq!(
        (asked.kind, &asked.trace),
        (SpanKind::Client, &summary.trace)
    );
    let seen = pair.up.provider.requests(2).await;
    let of_summary = seen.iter().find(|seen| {
        let body = serde_json::from_slice(&seen.body).unwrap();
        summary_key(&body).is_some()
    });
    let expected = format!("00-{}-{}-01", asked.trace, asked.id);
    let passed = of_summary.unwrap().header("traceparent");
    assert_eq!(passed, Some(&*expected));
}
