//! Sending to a provider, as an attempt in the trace of whoever asks.

use http::Response;

use crate::{
    provider::{OutgoingRequest, Provider, UpstreamError},
    telemetry::{Operation, trace::Trace},
    wire::Body,
};

/// Sends a request and waits for the head of its answer.
///
/// # Errors
/// No answer began.
pub async fn send_traced(
    trace: &Trace,
    provider: &Provider,
    operation: Option<Operation>,
    mut outgoing: OutgoingRequest,
) -> Result<Response<Body>, UpstreamError> {
    let attempt = trace.begin_attempt(
        &provider.name,
        provider.config.base_url.as_deref(),
        operation,
        outgoing.model.as_deref(),
    );
    attempt.inject_headers(&mut outgoing.headers);
    let sent = provider.send_request(outgoing).await;
    match &sent {
        Ok(answer) => attempt.record_answer(answer.status()),
        Err(unsent) => attempt.record_failure(unsent.as_str()),
    }
    sent
}
