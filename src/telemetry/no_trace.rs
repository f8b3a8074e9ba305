//! Traces of a build without the feature `otlp`: there are none, and settings that ask for them are refused.

use std::io;

use http::{HeaderMap, StatusCode};
use prometheus::IntCounterVec;

use crate::{
    config::{Outgoing, TracesConfig},
    telemetry::Operation,
};

#[derive(Debug, Default)]
pub struct Tracing;

impl Tracing {
    /// # Errors
    /// The settings name a collector.
    pub fn new(config: &TracesConfig, _: &Outgoing, _: &IntCounterVec) -> io::Result<Self> {
        if config.endpoint.is_some() {
            let why = "traces.endpoint is set, but this build exports no traces: build it with the feature `otlp`";
            return Err(io::Error::other(why));
        }
        Ok(Self)
    }

    pub fn begin_trace(&self, _: &HeaderMap) -> Trace {
        Trace
    }

    pub async fn close(&self) {}
}

#[derive(Clone, Debug, Default)]
pub struct Trace;

impl Trace {
    pub fn trace_id(&self) -> Option<String> {
        None
    }

    pub fn begin_child(&self, _: &'static str) -> OpenSpan {
        OpenSpan
    }

    pub fn begin_attempt(
        &self,
        _: &str,
        _: Option<&str>,
        _: Option<Operation>,
        _: Option<&str>,
    ) -> AttemptSpan {
        AttemptSpan
    }

    pub fn begin_linked_trace(&self, _: &'static str) -> Self {
        Self
    }

    pub fn end_request(&self, _: impl FnOnce(&mut OpenSpan)) {}
}

#[must_use]
pub struct OpenSpan;

impl OpenSpan {
    pub fn set_name(&mut self, _: String) {}

    pub fn set_attribute<T>(&mut self, _: &'static str, _: T) {}

    pub fn set_optional_attribute<T>(&mut self, _: &'static str, _: Option<T>) {}

    pub fn set_list(&mut self, _: &'static str, _: Option<&'static str>) {}

    pub fn set_failed(&mut self) {}
}

#[must_use]
pub struct AttemptSpan;

impl AttemptSpan {
    pub fn inject_headers(&self, _: &mut HeaderMap) {}

    pub fn record_answer(self, _: StatusCode) {}

    pub fn record_failure(self, _: &'static str) {}
}
