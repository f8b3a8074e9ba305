//! Decides which traces are recorded.

use opentelemetry::{
    Context, KeyValue,
    trace::{Link, SpanKind, TraceContextExt, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};
use prometheus::IntCounter;

/// A new trace with a link (a summary for a request) is recorded if the linked trace is. The usual sampler decides on
/// all others.
#[derive(Clone, Debug)]
pub(super) struct LinkedTraceSampler {
    pub(super) usual: Sampler,
    /// Counts the spans that are recorded.
    pub(super) made: IntCounter,
}

impl ShouldSample for LinkedTraceSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let is_root = parent.is_none_or(|parent| !parent.span().span_context().is_valid());
        let is_linked = links.iter().any(|link| link.span_context.is_sampled());
        let sampled = if is_root && is_linked {
            SamplingResult {
                decision: SamplingDecision::RecordAndSample,
                attributes: Vec::new(),
                trace_state: TraceState::default(),
            }
        } else {
            (self.usual).should_sample(parent, trace, name, kind, attributes, links)
        };
        if sampled.decision == SamplingDecision::RecordAndSample {
            self.made.inc();
        }
        sampled
    }
}
