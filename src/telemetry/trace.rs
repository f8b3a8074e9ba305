//! Traces: one span for each request of a client, with children for what it waited for.
//!
//! Off unless `traces.endpoint` names a collector; then nothing is made and nothing allocated. On,
//! spans go into a bounded queue, and a thread of the library's sends them away in batches: a
//! collector that is slow or gone costs spans, never a request (`export.rs`). What a client says in
//! `traceparent` is the parent, and its decision about recording is followed. No texts of
//! conversations and no keys among the attributes.
//!
//! The library makes the spans, so that a child has its id before the request goes out that names it. An attempt
//! that is answered ends with its answer. Beyond 8,192 spans that wait, more are dropped.

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
use crate::config::TracesConfig;

/// How long what waits may take to be sent when the proxy ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Makes traces, where they are on.
#[derive(Debug, Default)]
pub struct Tracing(Option<Arc<ActiveTracer>>);

#[derive(Debug)]
struct ActiveTracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Tracing {
    /// Called from within a runtime where traces are on, since something is to be sent.
    ///
    /// # Errors
    /// There is no runtime, the TLS roots of this machine cannot be read, or the environment has
    /// settings for the exporter that it does not know.
    pub fn new(config: &TracesConfig, counts: &IntCounterVec) -> io::Result<Self> {
        let Some(endpoint) = &config.endpoint else {
            return Ok(Self::default());
        };
        let share = Sampler::TraceIdRatioBased(config.sample);
        let sampler = LinkedTraceSampler {
            usual: Sampler::ParentBased(Box::new(share)),
            made: counts.with_label_values(&["made"]),
        };
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new("service.name", config.service_name.clone()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ]);
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_resource(resource.build())
            .with_span_processor(export::build_span_processor(
                endpoint,
                &config.headers,
                counts,
            )?)
            .build();
        let tracer = provider.tracer("plimsoll");
        Ok(Self(Some(Arc::new(ActiveTracer { provider, tracer }))))
    }

    /// Begins the trace of a request with these headers.
    pub fn begin_trace(&self, headers: &HeaderMap) -> Trace {
        let Some(on) = &self.0 else {
            return Trace::default();
        };
        let parent = match has_valid_traceparent(headers) {
            true => {
                let said = HeaderExtractor(headers);
                TraceContextPropagator::new().extract_with_context(&Context::new(), &said)
            }
            false => Context::new(),
        };
        let follows = parent.span().span_context().is_valid();
        let builder = on.tracer.span_builder("request");
        let builder = builder.with_kind(SpanKind::Server);
        let root = on.tracer.build_with_context(builder, &parent);
        Trace::new(on, root, follows)
    }

    /// Sends what waits, within a bound. Nothing is made from then on.
    pub async fn close(&self) {
        let Some(on) = self.0.clone() else { return };
        let closed =
            tokio::task::spawn_blocking(move || on.provider.shutdown_with_timeout(CLOSE_WITHIN));
        let closed = tokio::time::timeout(CLOSE_WITHIN, closed).await;
        if !matches!(closed, Ok(Ok(Ok(())))) {
            tracing::warn!("some spans were not exported in time and are lost");
        }
    }
}

/// Whether a client's `traceparent` is one, and the only one, as W3C Trace Context spells it; the library
/// takes much else, and so would put requests that have nothing to do with each other into one trace.
fn has_valid_traceparent(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all("traceparent").iter();
    let (Some(value), None) = (said.next(), said.next()) else {
        return false;
    };
    let parts: Vec<&[u8]> = value.as_bytes().split(|byte| *byte == b'-').collect();
    let hex = |part: &&[u8]| {
        part.iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    // A later version may say more behind these four.
    let lengths = [2, 32, 16, 2];
    let fits = parts
        .iter()
        .zip(lengths)
        .all(|(part, length)| part.len() == length);
    let whole = parts.len() == 4 || (parts.len() > 4 && parts[0] != b"00");
    whole && fits && parts[..4].iter().all(hex)
}

impl Drop for ActiveTracer {
    fn drop(&mut self) {
        // Whoever did not close waits for nothing; the library would, for seconds.
        let _ = self.provider.shutdown_with_timeout(Duration::ZERO);
    }
}
