//! Websockets, forwarded byte for byte.
//!
//! Only from HTTP/1.1, and only websockets: other protocols would carry requests past the proxy's checks. The bytes
//! are copied in a separate task; a drain waits for it as for a running answer.

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
    proxy::{App, outgoing},
    relay::tunnel_bytes,
    telemetry::record::RequestRecord,
    wire::{Body, split_header_list, whole_body},
};

/// A websocket to open on both sides.
pub(super) struct UpgradeRequest {
    /// The client's connection, once the proxy's answer is sent.
    pub client: OnUpgrade,
    pub outgoing: OutgoingRequest,
    pub provider: Arc<Provider>,
    pub running: Arc<Hold>,
}

/// The connection of a client that asks for a websocket.
pub(super) fn find_websocket_upgrade(parts: &Parts) -> Option<OnUpgrade> {
    let has_token = |name, token: &str| {
        let mut listed = split_header_list(&parts.headers, &name);
        listed.any(|listed| listed.eq_ignore_ascii_case(token))
    };
    let is_upgrade = parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && has_token(CONNECTION, "upgrade")
        && has_token(UPGRADE, "websocket");
    is_upgrade.then(|| parts.extensions.get::<OnUpgrade>().cloned())?
}

/// Opens the provider's websocket, and the client's if the provider agrees. An answer that refuses is forwarded.
///
/// # Errors
/// No answer began.
pub(super) async fn upgrade_connection(
    app: &App,
    parts: &Parts,
    upgrade: UpgradeRequest,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let UpgradeRequest {
        client,
        mut outgoing,
        provider,
        running,
    } = upgrade;
    let websocket = HeaderValue::from_static("websocket");
    let headers = &mut outgoing.headers;
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, websocket.clone());
    let mut reply = outgoing::send_traced(&record.notes.trace, &provider, None, outgoing).await?;
    if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(outgoing::clean_answer_headers(reply));
    }
    let provider_side = hyper::upgrade::on(&mut reply).await.map_err(|error| {
        tracing::warn!(
            provider = %provider.name, error = %format_error_chain(&error),
            "websocket upgrade failed: the provider closed the connection"
        );
        UpstreamError::Unreachable {
            cause: String::new(),
            connected: true,
            provider: provider.name.to_string(),
        }
    })?;
    let protocol = reply.headers().get(UPGRADE).cloned();
    let mut answer = outgoing::clean_answer_headers(reply.map(|_| whole_body("")));
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol.unwrap_or(websocket));
    record.outcome = Some("upgraded");

    let connection = parts.extensions.get::<Arc<Hold>>().cloned();
    app.tasks.spawn(async move {
        let begun = Instant::now();
        let idle = provider.config.idle_timeout;
        let client = match timeout(idle, client).await {
            Ok(Ok(client)) => TokioIo::new(client),
            Ok(Err(error)) => {
                let error = format_error_chain(&error);
                tracing::debug!(%error, "websocket upgrade failed: the client closed the connection");
                return;
            }
            Err(_) => {
                tracing::debug!("websocket upgrade timed out: the client did not read the answer");
                return;
            }
        };
        let carried = tunnel_bytes(client, TokioIo::new(provider_side), idle).await;
        tracing::info!(
            provider = %provider.name,
            bytes_sent = carried.sent,
            bytes = carried.received,
            duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            outcome = carried.ended,
            "websocket closed"
        );
        drop((running, connection));
    });
    Ok(answer)
}
