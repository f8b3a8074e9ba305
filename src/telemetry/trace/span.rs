//! The spans of one request.
//!
//! A [`Trace`] travels with its request like the record of the log. Where traces are off it is
//! empty, and all that is asked of it does nothing. A child ends when it is dropped, so that one
//! whose request is cancelled ends too.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use opentelemetry::{
    Context, KeyValue, Value,
    trace::{Link, Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _},
};
use opentelemetry_sdk::trace::Span;
use reqwest::Url;

use super::ActiveTracer;
use crate::telemetry::Operation;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace of a request; empty where there is none.
#[derive(Clone, Default)]
pub struct Trace(Option<Arc<ActiveTrace>>);

struct ActiveTrace {
    active_tracer: Arc<ActiveTracer>,
    /// Of the request's own span.
    context: SpanContext,
    /// It came with a trace of its client's.
    follows: bool,
    spans: Mutex<RequestSpans>,
}

struct RequestSpans {
    /// `None`: it ended.
    root: Option<Span>,
    /// The attempt whose answer is on its way.
    answering: Option<Span>,
    attempts: i64,
}

/// A request, or something that it waits for; ends when it is dropped.
#[derive(Default)]
#[must_use]
pub struct OpenSpan(Option<Span>);

/// One request to a provider.
#[must_use]
pub struct AttemptSpan {
    trace: Trace,
    /// Empty where the trace is not recorded.
    span: OpenSpan,
}

impl Trace {
    pub(super) fn new(on: &Arc<ActiveTracer>, root: Span, follows: bool) -> Self {
        Self(Some(Arc::new(ActiveTrace {
            active_tracer: Arc::clone(on),
            context: root.span_context().clone(),
            follows,
            spans: Mutex::new(RequestSpans {
                root: Some(root),
                answering: None,
                attempts: 0,
            }),
        })))
    }

    /// As the log and the collector name it, where it is recorded.
    pub fn trace_id(&self) -> Option<String> {
        let active = self.recorded_trace()?;
        Some(active.context.trace_id().to_string())
    }

    /// Something within the proxy that begins now.
    pub fn begin_child(&self, name: &'static str) -> OpenSpan {
        let Some(active) = self.recorded_trace() else {
            return OpenSpan::default();
        };
        let builder = active.active_tracer.tracer.span_builder(name);
        OpenSpan(Some(
            active.begin_span(builder.with_kind(SpanKind::Internal)),
        ))
    }

    /// A request to a provider that begins now; `model` in its words.
    pub fn begin_attempt(
        &self,
        provider: &str,
        base_url: Option<&str>,
        operation: Option<Operation>,
        model: Option<&str>,
    ) -> AttemptSpan {
        let span = self.recorded_trace().map(|active| {
            let word = operation.map_or("forward", Operation::as_str);
            let name = match model {
                Some(model) => format!("{word} {model}"),
                None => word.to_owned(),
            };
            let mut spans = active.lock_spans();
            // It is over: what comes now is asked because of it, or in its place.
            spans.answering = None;
            spans.attempts += 1;
            let number = spans.attempts;
            drop(spans);
            let attributes = [
                Some(KeyValue::new("gen_ai.provider.name", provider.to_owned())),
                operation.map(|it| KeyValue::new("gen_ai.operation.name", it.as_str())),
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

    /// Begins the trace of something that outlives the request and is done because of it. Empty where
    /// the request's is not recorded.
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

    /// The request is over; `tell` is asked only where somebody will read it. A second time nothing
    /// happens.
    pub fn end_request(&self, tell: impl FnOnce(&mut OpenSpan)) {
        let Some(active) = &self.0 else { return };
        let (root, answering) = {
            let mut spans = active.lock_spans();
            (spans.root.take(), spans.answering.take())
        };
        drop(answering);
        if let Some(root) = root.filter(|root| root.is_recording()) {
            tell(&mut OpenSpan(Some(root)));
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
        self.active_tracer
            .tracer
            .build_with_context(builder, &parent)
    }

    fn lock_spans(&self) -> MutexGuard<'_, RequestSpans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The same where there is a value.
    pub fn set_optional_attribute(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set_attribute(key, value);
        }
    }

    /// It is the proxy's own failure, or a provider's.
    pub fn set_failed(&mut self) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(""));
        }
    }
}

impl AttemptSpan {
    /// Tells the provider whose request it is. Without traces what the client said goes on.
    pub fn inject_headers(&self, headers: &mut HeaderMap) {
        let Some(active) = &self.trace.0 else { return };
        let own = self.span.0.as_ref().map(|span| span.span_context());
        let context = own.unwrap_or(&active.context);
        let value = format!(
            "00-{}-{}-{:02x}",
            context.trace_id(),
            context.span_id(),
            u8::from(context.is_sampled())
        );
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(TRACEPARENT, value);
        }
        if !active.follows {
            // It belongs to a trace that is not this one.
            headers.remove(TRACESTATE);
        }
    }

    /// The head of an answer came. That of a success ends with the request, or with the next
    /// attempt.
    pub fn record_answer(mut self, status: StatusCode) {
        let code = i64::from(status.as_u16());
        self.span.set_attribute("http.response.status_code", code);
        if status.is_client_error() || status.is_server_error() {
            self.span
                .set_attribute("error.type", status.as_str().to_owned());
            self.span.set_failed();
            return;
        }
        let Some(active) = &self.trace.0 else { return };
        let mut spans = active.lock_spans();
        // A request that is over has no attempt of its own any more.
        if spans.root.is_some() {
            spans.answering = self.span.0;
        }
    }

    /// No answer began.
    pub fn record_failure(mut self, why: &'static str) {
        self.span.set_attribute("error.type", why);
        self.span.set_failed();
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0.as_ref().map(|active| active.context.trace_id());
        f.debug_tuple("Trace").field(&id).finish()
    }
}

/// Where a provider is: its host and its port, and nothing else of its address.
fn server_attributes(base_url: &str) -> [Option<KeyValue>; 2] {
    let url = Url::parse(base_url).ok();
    let host = url.as_ref().and_then(Url::host_str);
    let port = url.as_ref().and_then(Url::port_or_known_default);
    [
        host.map(|host| KeyValue::new("server.address", host.to_owned())),
        port.map(|port| KeyValue::new("server.port", i64::from(port))),
    ]
}
