//! Requests that leave HTTP: websockets, passed through with every byte as it came.
//!
//! Only from HTTP/1.1, and only as a websocket: other protocols would carry requests past us.
//! The bytes go on in a task of their own, which a drain waits for like a running answer.

use std::{sync::Arc, time::Instant};

use http::{
    HeaderValue, Method, Response, StatusCode, Version,
    header::{CONNECTION, UPGRADE},
    request::Parts,
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::{
    error::{Failure, format_error_chain},
    http::limit::Hold,
    provider::{OutgoingRequest, Provider, UpstreamError},
    proxy::{App, outgoing::clean_answer_headers, traced_send},
    relay::tunnel_bytes,
    telemetry::record::RequestRecord,
    wire::{Body, whole_body},
};

/// What it takes to leave HTTP on both sides.
pub(super) struct UpgradeRequest {
    /// The client's connection, once our answer has gone out.
    pub client: OnUpgrade,
    pub outgoing: OutgoingRequest,
    pub provider: Arc<Provider>,
    pub running: Arc<Hold>,
}

/// The connection of a client that asks for a websocket.
pub(super) fn find_websocket_upgrade(parts: &Parts) -> Option<OnUpgrade> {
    let says = |name, word: &str| {
        let values = parts.headers.get_all(name).iter();
        values
            .filter_map(|value: &HeaderValue| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|said| said.trim().eq_ignore_ascii_case(word))
    };
    let asks = parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && says(CONNECTION, "upgrade")
        && says(UPGRADE, "websocket");
    asks.then(|| parts.extensions.get::<OnUpgrade>().cloned())?
}

/// Asks the provider to leave HTTP, and does so with the client where it agrees. An answer that
/// refuses goes on as it is.
///
/// # Errors
/// No answer began.
pub(super) async fn upgrade_connection(
    app: &App,
    parts: &Parts,
    opening: UpgradeRequest,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let UpgradeRequest {
        client,
        mut outgoing,
        provider,
        running,
    } = opening;
    let headers = &mut outgoing.headers;
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let mut opened =
        traced_send::send_traced(&record.notes().trace, &provider, None, outgoing).await?;
    if opened.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(clean_answer_headers(opened));
    }
    let connection = hyper::upgrade::on(&mut opened).await.map_err(|error| {
        tracing::warn!(provider = %provider.name, error = %format_error_chain(&error), "a provider left HTTP and was gone");
        UpstreamError::Unreachable {
            provider: provider.name.to_string(),
        }
    })?;
    let protocol = opened.headers().get(UPGRADE).cloned();
    let mut answer = clean_answer_headers(opened.map(|_| whole_body("")));
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(
        UPGRADE,
        protocol.unwrap_or(HeaderValue::from_static("websocket")),
    );
    record.outcome = Some("upgraded");

    let open = parts.extensions.get::<Arc<Hold>>().cloned();
    app.tasks.spawn(async move {
        let begun = Instant::now();
        let idle = provider.config.idle_timeout;
        let client = match timeout(idle, client).await {
            Ok(Ok(client)) => TokioIo::new(client),
            Ok(Err(error)) => {
                tracing::debug!(error = %format_error_chain(&error), "a client was gone before its websocket");
                return;
            }
            Err(_) => {
                tracing::debug!("a client did not take the answer to its websocket");
                return;
            }
        };
        let carried = tunnel_bytes(client, TokioIo::new(connection), idle).await;
        tracing::info!(
            provider = %provider.name,
            bytes_sent = carried.sent,
            bytes = carried.received,
            duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            outcome = carried.ended,
            "a websocket ended"
        );
        drop((running, open));
    });
    Ok(answer)
}
