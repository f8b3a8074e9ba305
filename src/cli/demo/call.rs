//! One request of the demo's agent, over HTTP/1.1 on the loopback device.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The simulated provider answers in milliseconds; past this something is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// Answers of the demo are a few kilobytes.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there was none.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum CallError {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("the request could not be built: {0}")]
    Request(http::Error),
    #[error("the connection failed: {0}")]
    Exchange(hyper::Error),
    #[error("the answer could not be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer within a minute")]
    Late,
}

/// Sends one chat completion and reads the answer.
pub(super) async fn call(
    address: SocketAddr,
    body: Vec<u8>,
    unguarded: bool,
) -> Result<Answer, CallError> {
    let answer = tokio::time::timeout(PATIENCE, exchange(address, body, unguarded));
    answer.await.map_err(|_| CallError::Late)?
}

async fn exchange(
    address: SocketAddr,
    body: Vec<u8>,
    unguarded: bool,
) -> Result<Answer, CallError> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(CallError::Connect)?;
    let connected = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(CallError::Exchange)?;
    let mut request = Request::post("/v1/chat/completions")
        .header(header::HOST, address.to_string())
        .header(header::CONTENT_TYPE, "application/json");
    if unguarded {
        request = request.header("x-plimsoll-guard", "off");
    }
    let request = request.body(Full::new(Bytes::from(body)));
    let request = request.map_err(CallError::Request)?;
    let answered = async move {
        let response = sender
            .send_request(request)
            .await
            .map_err(CallError::Exchange)?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await;
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.map_err(CallError::Body)?.to_bytes(),
        })
    };
    // The connection ends by itself when its sender is dropped with the answer. How it ended
    // does not matter once the answer is whole, and fails the answer otherwise.
    let (answer, _) = tokio::join!(answered, connection);
    answer
}
