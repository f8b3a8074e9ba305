//! A client that checks what holds of every answer: known headers only, no secret, error bodies in
//! shape.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use super::proxy::within_time;

/// The `x-plimsoll-` headers that an answer may have.
const PROXY_HEADERS: &[&str] = &[
    "x-plimsoll-actions",
    "x-plimsoll-attempts",
    "x-plimsoll-billed-tokens",
    "x-plimsoll-context-limit",
    "x-plimsoll-count",
    "x-plimsoll-countdown",
    "x-plimsoll-course",
    "x-plimsoll-error",
    "x-plimsoll-hard-util",
    "x-plimsoll-health",
    "x-plimsoll-health-from",
    "x-plimsoll-optimal-util",
    "x-plimsoll-prompt-tokens",
    "x-plimsoll-provider",
    "x-plimsoll-reminders",
    "x-plimsoll-session",
];

/// Part of every key in the tests; no answer may contain it.
pub(crate) const SECRET: &str = "sk-secret";

pub(crate) type TestUpload = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) struct TestClient {
    address: SocketAddr,
    inner: legacy::Client<HttpConnector, TestUpload>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct ClientAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether the body ended normally.
    pub(crate) whole: bool,
}

impl ClientAnswer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Asserts that the proxy made this error.
    pub(crate) fn is_error(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.headers["x-plimsoll-error"], code);
        assert_eq!(self.json()["error"]["code"], code);
    }
}

impl TestClient {
    pub(crate) fn new(address: SocketAddr, http2: bool) -> Self {
        Self {
            address,
            inner: legacy::Client::builder(TokioExecutor::new())
                .http2_only(http2)
                .build_http(),
        }
    }

    pub(crate) fn http1(address: SocketAddr) -> Self {
        Self::new(address, false)
    }

    /// With HTTP/2 by prior knowledge.
    pub(crate) fn http2(address: SocketAddr) -> Self {
        Self::new(address, true)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let url = format!("http://{}{path}", self.address);
        Request::builder().method(method).uri(url)
    }

    pub(crate) async fn get(&self, path: &str) -> ClientAnswer {
        self.send_with(self.request(Method::GET, path), "").await
    }

    /// Sends a chat completion.
    pub(crate) async fn chat(&self, body: impl Into<Bytes>) -> ClientAnswer {
        self.send(self.chat_request(body)).await
    }

    pub(crate) fn chat_request(&self, body: impl Into<Bytes>) -> Request<TestUpload> {
        self.request(Method::POST, "/v1/chat/completions")
            .header("content-type", "application/json")
            .body(full_body(body))
            .unwrap()
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<TestUpload>) -> ClientAnswer {
        read_answer(self.begin(request).await, None).await
    }

    /// Sends a request with this body, and reads the whole answer.
    pub(crate) async fn send_with(
        &self,
        request: http::request::Builder,
        body: impl Into<Bytes>,
    ) -> ClientAnswer {
        self.send(request.body(full_body(body)).unwrap()).await
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn begin(&self, request: Request<TestUpload>) -> Response<Incoming> {
        self.try_begin(request).await.unwrap()
    }

    /// The same for a request that may get no answer.
    pub(crate) async fn try_begin(
        &self,
        request: Request<TestUpload>,
    ) -> Result<Response<Incoming>, legacy::Error> {
        within_time(self.inner.request(request)).await
    }
}

pub(crate) fn full_body(body: impl Into<Bytes>) -> TestUpload {
    Full::new(body.into()).boxed_unsync()
}

/// A chunked body of these pieces.
pub(crate) fn chunked_body(pieces: impl IntoIterator<Item = Bytes>) -> TestUpload {
    let frames: Vec<_> = pieces.into_iter().map(|it| Ok(Frame::data(it))).collect();
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

/// Reads an answer to its end and checks it. `pace` is a pause after each of the first pieces.
pub(crate) async fn read_answer(
    answer: Response<Incoming>,
    pace: Option<Duration>,
) -> ClientAnswer {
    /// Pieces after which the reader pauses no more.
    const SLOW: usize = 40;
    let (head, mut body) = answer.into_parts();
    let mut bytes = BytesMut::new();
    let (mut trailers, mut whole) = (None, true);
    let mut pieces = 0;
    while let Some(frame) = within_time(body.frame()).await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => bytes.extend_from_slice(&data),
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(_) => {
                whole = false;
                break;
            }
        }
        pieces += 1;
        if let Some(pace) = pace.filter(|_| pieces < SLOW) {
            tokio::time::sleep(pace).await;
        }
    }
    let answer = ClientAnswer {
        status: head.status,
        headers: head.headers,
        body: bytes.freeze(),
        trailers,
        whole,
    };
    check_headers(&answer);
    answer
}

/// The next piece of an answer.
pub(crate) async fn next(body: &mut Incoming) -> Bytes {
    let frame = within_time(body.frame()).await.unwrap().unwrap();
    frame.into_data().unwrap()
}

fn check_headers(answer: &ClientAnswer) {
    for (name, value) in answer
        .headers
        .iter()
        .chain(answer.trailers.iter().flatten())
    {
        if name.as_str().starts_with("x-plimsoll-") {
            assert!(
                PROXY_HEADERS.contains(&name.as_str()),
                "{name} is not a header of the proxy"
            );
        }
        let value = String::from_utf8_lossy(value.as_bytes());
        assert!(!value.contains(SECRET), "{name} holds a secret");
    }
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains(SECRET), "a secret in {text}");
    assert!(!answer.headers.contains_key("set-cookie"));
    if let Some(code) = answer.headers.get("x-plimsoll-error") {
        assert!(answer.status.is_client_error() || answer.status.is_server_error());
        assert_eq!(answer.headers["content-type"], "application/json");
        if !answer.body.is_empty() {
            let body = answer.json();
            let error = &body["error"];
            assert!(error["message"].as_str().is_some_and(|m| m.len() > 10));
            assert!(error["type"].is_string());
            if body["type"] == "error" {
                // In the shape of Messages, which has no code.
                return;
            }
            assert!(error.as_object().unwrap().contains_key("param"));
            assert_eq!(error["code"], code.to_str().unwrap());
        }
    }
}
