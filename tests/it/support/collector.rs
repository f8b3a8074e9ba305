//! A collector of traces on a real socket, which parses what it receives.

use std::{collections::BTreeMap, time::SystemTime};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::any_value::Value as Any,
    trace::v1::{Span as Raw, span::SpanKind, status::StatusCode},
};
use prost::Message;
use serde_json::{Value, json};

use super::{
    provider::{ReceivedRequest, ScriptedProvider, answer},
    proxy::within_time,
};

pub(crate) struct TestCollector {
    pub(crate) server: ScriptedProvider,
}

/// A span as received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedSpan {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for a root span.
    pub(crate) parent: String,
    /// Trace and span ids of the linked spans.
    pub(crate) links: Vec<(String, String)>,
    pub(crate) kind: SpanKind,
    pub(crate) failed: bool,
    pub(crate) begun_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) attributes: BTreeMap<String, Value>,
}

impl TestCollector {
    pub(crate) async fn start() -> Self {
        let ok = |_: &ReceivedRequest| vec![answer("200 OK", "", "")];
        Self {
            server: ScriptedProvider::start_answering(ok).await,
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}/v1/traces", self.server.address)
    }

    /// Waits for at least `count` spans, and returns all received ones.
    pub(crate) async fn spans(&self, count: usize) -> Vec<ReceivedSpan> {
        within_time(async {
            for requests in 1.. {
                let seen = self.server.requests(requests).await;
                let spans: Vec<ReceivedSpan> = seen.iter().flat_map(read_spans).collect();
                if spans.len() >= count {
                    return spans;
                }
            }
            unreachable!("there is always one more to wait for")
        })
        .await
    }

    /// All spans received up to now.
    pub(crate) async fn received_spans(&self) -> Vec<ReceivedSpan> {
        let seen = self.server.requests(self.server.count_requests()).await;
        seen.iter().flat_map(read_spans).collect()
    }
}

impl ReceivedSpan {
    #[track_caller]
    pub(crate) fn assert_attribute(&self, key: &str, value: impl Into<Value>) {
        assert_eq!(
            self.attributes.get(key),
            Some(&value.into()),
            "{key} of {self:?}"
        );
    }

    #[track_caller]
    pub(crate) fn assert_no_attribute(&self, key: &str) {
        assert!(!self.attributes.contains_key(key), "{key} of {self:?}");
    }
}

/// The only span with that name.
#[track_caller]
pub(crate) fn only_span<'s>(spans: &'s [ReceivedSpan], name: &str) -> &'s ReceivedSpan {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} in {spans:#?}");
    found[0]
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_nanos() as u64
}

fn read_spans(seen: &ReceivedRequest) -> Vec<ReceivedSpan> {
    assert_eq!(seen.header("content-type"), Some("application/x-protobuf"));
    assert!(seen.line.starts_with("POST /v1/traces "), "{}", seen.line);
    let told = ExportTraceServiceRequest::decode(&*seen.body).expect("it is protobuf");
    let mut spans = Vec::new();
    for of in told.resource_spans {
        let resource = of.resource.expect("a resource").attributes;
        let name = resource.iter().find(|one| one.key == "service.name");
        assert!(name.is_some(), "{resource:?}");
        let raw = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(raw.map(to_span));
    }
    spans
}

fn to_span(raw: Raw) -> ReceivedSpan {
    ReceivedSpan {
        kind: raw.kind(),
        failed: raw
            .status
            .is_some_and(|status| status.code() == StatusCode::Error),
        name: raw.name,
        trace: hex::encode(raw.trace_id),
        id: hex::encode(raw.span_id),
        parent: hex::encode(raw.parent_span_id),
        links: raw
            .links
            .into_iter()
            .map(|link| (hex::encode(link.trace_id), hex::encode(link.span_id)))
            .collect(),
        begun_ns: raw.start_time_unix_nano,
        ended_ns: raw.end_time_unix_nano,
        attributes: raw
            .attributes
            .into_iter()
            .map(|one| (one.key, to_value(one.value.and_then(|value| value.value))))
            .collect(),
    }
}

fn to_value(value: Option<Any>) -> Value {
    match value {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::BoolValue(is)) => json!(is),
        Some(Any::IntValue(number)) => json!(number),
        Some(Any::DoubleValue(number)) => json!(number),
        Some(Any::ArrayValue(list)) => {
            let values = list.values.into_iter();
            values.map(|value| to_value(value.value)).collect()
        }
        other => panic!("no such attribute is sent: {other:?}"),
    }
}
