//! Sending to a provider, as an attempt in the trace of whoever asks.

use http::Response;

use crate::{
    provider::{Outgoing, Provider, Unsent},
    telemetry::{
        Operation,
        trace::{Attempt, Trace},
    },
    wire::Body,
};

/// Sends a request and waits for the head of its answer.
///
/// # Errors
/// No answer began.
pub async fn send(
    trace: &Trace,
    provider: &Provider,
    operation: Option<Operation>,
    mut outgoing: Outgoing,
) -> Result<Response<Body>, Unsent> {
    let attempt = begin(trace, provider, operation, &outgoing);
    attempt.inject(&mut outgoing.headers);
    let sent = provider.send(outgoing).await;
    match &sent {
        Ok(answer) => attempt.answered(answer.status()),
        Err(unsent) => attempt.failed(unsent.word()),
    }
    sent
}

/// The span of a request that goes to a provider now.
pub fn begin(
    trace: &Trace,
    provider: &Provider,
    operation: Option<Operation>,
    outgoing: &Outgoing,
) -> Attempt {
    let base_url = provider.config.base_url.as_deref();
    trace.attempt(
        &provider.name,
        base_url,
        operation,
        outgoing.model.as_deref(),
    )
}
