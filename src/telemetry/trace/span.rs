//! The spans of one request.
//!
//! A [`Trace`] travels with its request like the log record. Where traces are off it is empty, and its methods do
//! nothing. A child span ends when it is dropped, also when its request is cancelled.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use opentelemetry::{
    Array, Context, KeyValue, Value,
    trace::{Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _},
};
use opentelemetry_sdk::trace::Span;
use reqwest::Url;

use super::ActiveTracer;
use crate::telemetry::Operation;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace of a request; empty where traces are off.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<ActiveTrace>>);

struct ActiveTrace {
    active_tracer: Arc<ActiveTracer>,
    /// The context of the request's span.
    context: SpanContext,
    /// The request came with a valid `traceparent`.
    has_parent: bool,
    spans: Mutex<RequestSpans>,
}

struct RequestSpans {
    /// `None` once the request has ended.
    root: Option<Span>,
    /// The attempt whose answer is being received.
    answering: Option<Span>,
    attempts: i64,
}

/// The span of a request or of something that it waits for; ends when it is dropped.
#[derive(Default)]
#[must_use]
pub struct OpenSpan(Option<Span>);

/// The span of one request to a provider.
#[must_use]
pub struct AttemptSpan {
    trace: Trace,
    /// Empty where the trace is not recorded.
    span: OpenSpan,
}

impl Trace {
    pub(super) fn new(tracer: &Arc<ActiveTracer>, root: Span, has_parent: bool) -> Self {
        Self(Some(Arc::new(ActiveTrace {
            active_tracer: Arc::clone(tracer),
            context: root.span_context().clone(),
            has_parent,
            spans: Mutex::new(RequestSpans {
                root: Some(root),
                answering: None,
                attempts: 0,
            }),
        })))
    }

    /// `None` where the trace is not recorded.
    pub fn trace_id(&self) -> Option<String> {
        let active = self.recorded_trace()?;
        Some(active.context.trace_id().to_string())
    }

    /// Begins the span of work within the proxy.
    pub fn begin_child(&self, name: &'static str) -> OpenSpan {
        OpenSpan(self.recorded_trace().map(|active| {
            let builder = active.active_tracer.tracer.span_builder(name);
            active.begin_span(builder.with_kind(SpanKind::Internal))
        }))
    }

    /// Begins the span of a request to a provider. `model` is the provider's name of the model.
    pub fn begin_attempt(
        &self,
        provider: &str,
        base_url: Option<&str>,
        operation: Option<Operation>,
        model: Option<&str>,
    ) -> AttemptSpan {
        let span = self.recorded_trace().map(|active| {
            let word = operation.map_or("forward", Operation::as_str);
            let name = model.map_or_else(|| word.to_owned(), |model| format!("{word} {model}"));
            let mut spans = active.spans.lock();
            // The previous attempt ends with the beginning of the next.
            spans.answering = None;
            spans.attempts += 1;
            let number = spans.attempts;
            drop(spans);
            let attributes = [
                Some(KeyValue::new("gen_ai.provider.name", provider.to_owned())),
                operation.map(|kind| KeyValue::new("gen_ai.operation.name", kind.as_str())),
                model.map(|model| KeyValue::new("gen_ai.request.model", model.to_owned())),
                Some(KeyValue::new("plimsoll.attempt", number)),
            ];
            let address = server_attributes(base_url.unwrap_or_default());
            let attributes = attributes.into_iter().chain(address).flatten();
            let builder = active.active_tracer.tracer.span_builder(name);
            let builder = builder.with_kind(SpanKind::Client);
            active.begin_span(builder.with_attributes(attributes))
        });
        AttemptSpan {
            trace: self.clone(),
            span: OpenSpan(span),
        }
    }

    /// Begins the trace of work that the request causes and that outlives it. Empty where the request's trace is not
    /// recorded.
    pub fn begin_linked_trace(&self, name: &'static str) -> Self {
        let Some(active) = self.recorded_trace() else {
            return Self::default();
        };
        let tracer = &active.active_tracer.tracer;
        let link = Link::new(active.context.clone(), Vec::new(), 0);
        let builder = tracer.span_builder(name).with_kind(SpanKind::Internal);
        let root = tracer.build_with_context(builder.with_links(vec![link]), &Context::new());
        Self::new(&active.active_tracer, root, false)
    }

    /// Ends the spans of the request. `set_attributes` is called only for a recorded trace. A second call does
    /// nothing.
    pub fn end_request(&self, set_attributes: impl FnOnce(&mut OpenSpan)) {
        let Some(active) = &self.0 else { return };
        let mut spans = active.spans.lock();
        let (root, answering) = (spans.root.take(), spans.answering.take());
        drop(spans);
        drop(answering);
        if let Some(root) = root.filter(|root| root.is_recording()) {
            set_attributes(&mut OpenSpan(Some(root)));
        }
    }

    fn recorded_trace(&self) -> Option<&Arc<ActiveTrace>> {
        let active = self.0.as_ref()?;
        active.context.is_sampled().then_some(active)
    }
}

impl ActiveTrace {
    fn begin_span(&self, builder: opentelemetry::trace::SpanBuilder) -> Span {
        let parent = Context::new().with_remote_span_context(self.context.clone());
        let tracer = &self.active_tracer.tracer;
        tracer.build_with_context(builder, &parent)
    }
}

impl OpenSpan {
    pub fn set_name(&mut self, name: String) {
        if let Some(span) = &mut self.0 {
            span.update_name(name);
        }
    }

    pub fn set_attribute(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, value));
        }
    }

    pub fn set_optional_attribute(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set_attribute(key, value);
        }
    }

    /// Sets a list of one word.
    pub fn set_list(&mut self, key: &'static str, only: Option<&'static str>) {
        let list = only.map(|word| Value::Array(Array::String(vec![word.into()])));
        self.set_optional_attribute(key, list);
    }

    /// Marks a failure of the proxy or a provider.
    pub fn set_failed(&mut self) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(""));
        }
    }
}

impl AttemptSpan {
    /// Sets the trace headers of a request to a provider. Without traces the client's headers stay.
    pub fn inject_headers(&self, headers: &mut HeaderMap) {
        let Some(active) = &self.trace.0 else { return };
        let context = self.span.0.as_ref().map(|span| span.span_context());
        let context = context.unwrap_or(&active.context);
        let value = format!(
            "00-{}-{}-{:02x}",
            context.trace_id(),
            context.span_id(),
            u8::from(context.is_sampled())
        );
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(TRACEPARENT, value);
        }
        if !active.has_parent {
            // The client's state belongs to another trace.
            headers.remove(TRACESTATE);
        }
    }

    /// Records the status of an answer. The span of a success ends with the request or the next attempt.
    pub fn record_answer(mut self, status: StatusCode) {
        let code = i64::from(status.as_u16());
        self.span.set_attribute("http.response.status_code", code);
        if status.is_client_error() || status.is_server_error() {
            let error = status.as_str().to_owned();
            self.span.set_attribute("error.type", error);
            self.span.set_failed();
            return;
        }
        let Some(active) = &self.trace.0 else { return };
        let mut spans = active.spans.lock();
        // After the end of the request no span may stay open.
        if spans.root.is_some() {
            spans.answering = self.span.0;
        }
    }

    /// Records an attempt without an answer.
    pub fn record_failure(mut self, error: &'static str) {
        self.span.set_attribute("error.type", error);
        self.span.set_failed();
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0.as_ref().map(|active| active.context.trace_id());
        f.debug_tuple("Trace").field(&id).finish()
    }
}

/// Host and port of a provider, without the rest of its address.
fn server_attributes(base_url: &str) -> [Option<KeyValue>; 2] {
    let url = Url::parse(base_url).ok();
    let host = url.as_ref().and_then(Url::host_str);
    let port = url.as_ref().and_then(Url::port_or_known_default);
    [
        host.map(|host| KeyValue::new("server.address", host.to_owned())),
        port.map(|port| KeyValue::new("server.port", i64::from(port))),
    ]
}
