//! Traces: one span for each request of a client, with a child span for each thing that it waits for.
//!
//! Traces are off unless `traces.endpoint` names a collector; then nothing is allocated. Spans go into a bounded
//! queue, and a thread of the library exports them in batches. A slow or unreachable collector costs spans, never a
//! request (`export.rs`). A client's `traceparent` is the parent, and its sampling decision is followed. Attributes
//! hold no texts of conversations and no keys.
//!
//! The spans are no spans of the crate `tracing`: the layer that would export those (`tracing-opentelemetry`) belongs to
//! the subscriber of the whole process, and a collector to the settings of one proxy. It would replace a few wrappers in
//! `span.rs`; the export, the sampler and what a valid `traceparent` is would stay.
//!
//! A span has its id before the request that names it is sent. The span of an answered attempt ends with its answer.

mod export;
mod sampler;
mod span;

use std::{io, sync::Arc, time::Duration};

use http::HeaderMap;
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator,
    trace::{SpanKind, TraceContextExt, Tracer as _, TracerProvider as _},
};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracer, SdkTracerProvider},
};
use prometheus::IntCounterVec;

use self::sampler::LinkedTraceSampler;
pub use self::span::{AttemptSpan, OpenSpan, Trace};
use crate::config::{Outgoing, TracesConfig};

/// How long the export of waiting spans may take at shutdown.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Begins traces; empty where they are off.
#[derive(Debug, Default)]
pub struct Tracing(Option<Arc<ActiveTracer>>);

#[derive(Debug)]
struct ActiveTracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Tracing {
    /// # Errors
    /// There is no Tokio runtime, the TLS roots of this machine cannot be read, or the environment has unknown
    /// settings for the exporter.
    pub fn new(
        config: &TracesConfig,
        outgoing: &Outgoing,
        counts: &IntCounterVec,
    ) -> io::Result<Self> {
        if config.endpoint.is_none() {
            return Ok(Self::default());
        }
        let ratio = Sampler::TraceIdRatioBased(config.sample);
        let sampler = LinkedTraceSampler {
            usual: Sampler::ParentBased(Box::new(ratio)),
            made: counts.with_label_values(&["made"]),
        };
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new("service.name", config.service_name.clone()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ]);
        let processor = export::build_span_processor(config, outgoing, counts)?;
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_resource(resource.build())
            .with_span_processor(processor)
            .build();
        let tracer = provider.tracer("plimsoll");
        Ok(Self(Some(Arc::new(ActiveTracer { provider, tracer }))))
    }

    /// Begins the trace of a request with these headers.
    pub fn begin_trace(&self, headers: &HeaderMap) -> Trace {
        let Some(active) = &self.0 else {
            return Trace::default();
        };
        let mut parent = Context::new();
        if has_valid_traceparent(headers) {
            let headers = HeaderExtractor(headers);
            parent = TraceContextPropagator::new().extract_with_context(&parent, &headers);
        }
        let has_parent = parent.span().span_context().is_valid();
        let builder = active.tracer.span_builder("request");
        let builder = builder.with_kind(SpanKind::Server);
        let root = active.tracer.build_with_context(builder, &parent);
        Trace::new(active, root, has_parent)
    }

    /// Exports waiting spans within 5 s. No span is made afterwards.
    pub async fn close(&self) {
        let Some(active) = self.0.clone() else { return };
        let shut_down = move || active.provider.shutdown_with_timeout(CLOSE_WITHIN);
        let closed = tokio::task::spawn_blocking(shut_down);
        let closed = tokio::time::timeout(CLOSE_WITHIN, closed).await;
        if !matches!(closed, Ok(Ok(Ok(())))) {
            tracing::warn!("some spans were not exported in time and are lost");
        }
    }
}

/// Whether there is exactly one `traceparent`, in the form of W3C Trace Context. The library accepts much else, which
/// would put unrelated requests into one trace.
fn has_valid_traceparent(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all("traceparent").iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let parts: Vec<&[u8]> = value.as_bytes().split(|byte| *byte == b'-').collect();
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut required = parts.iter().zip([2, 32, 16, 2]);
    // A later version may have more than these four parts.
    let complete = parts.len() == 4 || (parts.len() > 4 && parts[0] != b"00");
    complete && required.all(|(part, length)| part.len() == length && part.iter().all(is_hex))
}

impl Drop for ActiveTracer {
    fn drop(&mut self) {
        // Without this the library waits for seconds.
        let _ = self.provider.shutdown_with_timeout(Duration::ZERO);
    }
}
