//! A provider that answers at once, and a collector that accepts everything.

use std::{convert::Infallible, io, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Aye."},"finish_reason":"stop"}],"usage":{"prompt_tokens":700,"completion_tokens":20,"total_tokens":720}}"#;

/// Events of a stream without the last three.
const EVENTS: usize = 50;

pub(crate) struct TelemetryProvider {
    pub(crate) address: SocketAddr,
    _task: JoinSet<()>,
}

pub(crate) async fn start_provider() -> io::Result<TelemetryProvider> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let served =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            connections.spawn(served);
        }
    });
    Ok(TelemetryProvider {
        address,
        _task: task,
    })
}

async fn answer(
    request: Request<Incoming>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let traces = request.uri().path() == "/v1/traces";
    let Ok(body) = request.into_body().collect().await else {
        return Ok(Response::new(Full::default().boxed_unsync()));
    };
    let body = body.to_bytes();
    let streams = memchr::memmem::find(&body[..body.len().min(64)], b"\"stream\":true").is_some();
    let (kind, body) = match (traces, streams) {
        (true, _) => ("application/x-protobuf", Full::default().boxed_unsync()),
        (_, false) => ("application/json", Full::from(ANSWER).boxed_unsync()),
        (_, true) => ("text/event-stream", event_frames()),
    };
    let mut answer = Response::new(body);
    let kind = http::HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(answer)
}

/// Each event in its own frame, as from a model.
fn event_frames() -> UnsyncBoxBody<Bytes, Infallible> {
    let word = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" aye\"},\"finish_reason\":null}]}\n\n";
    let end = [
        "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":700,\"completion_tokens\":50}}\n\n",
        "data: [DONE]\n\n",
    ];
    let frames = std::iter::repeat_n(word, EVENTS).chain(end);
    let frames = frames.map(|event| Ok(Frame::data(Bytes::from_static(event.as_bytes()))));
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}
