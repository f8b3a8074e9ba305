//! Sending to a provider, as an attempt in the trace of whoever asks.

use http::Response;

use crate::{
    provider::{Outgoing, Provider, Unsent},
    telemetry::{Operation, trace::Trace},
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
    let attempt = trace.attempt(
        &provider.name,
        provider.config.base_url.as_deref(),
        operation,
        outgoing.model.as_deref(),
    );
    attempt.inject(&mut outgoing.headers);
    let sent = provider.send(outgoing).await;
    match &sent {
        Ok(answer) => attempt.answered(answer.status()),
        Err(unsent) => attempt.failed(unsent.word()),
    }
    sent
}
