//! Sends to a provider, as an attempt in the request's trace.

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
    let (base_url, model) = (
        provider.config.base_url.as_deref(),
        outgoing.model.as_deref(),
    );
    let attempt = trace.begin_attempt(&provider.name, base_url, operation, model);
    attempt.inject_headers(&mut outgoing.headers);
    let sent = provider.send_request(outgoing).await;
    match &sent {
        Ok(answer) => attempt.record_answer(answer.status()),
        Err(error) => attempt.record_failure(error.as_str()),
    }
    sent
}
