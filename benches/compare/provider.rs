//! The mock provider: one address, on the load's core, whose answer depends on the model's name.
//!
//! It reads each body to its end, and parses only the model's name. Every event of a stream is a
//! separate write without Nagle's algorithm, and contains its time, from which the reader computes
//! the transit time.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::OnceLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use plimsoll::conversation::Format;
use tokio::{
    net::{TcpListener, TcpSocket},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::bodies::{MODEL, MODES, Mode};

/// Events of a stream that ends, without those at its end.
pub(crate) const EVENTS: usize = 50;
const PACE: Duration = Duration::from_millis(5);
const HELD: Duration = Duration::from_secs(1);

/// The text before the time in an event, and after it.
pub(crate) const TIME: (char, char) = ('@', ';');

type MockBody = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) struct MockProvider {
    pub(crate) address: SocketAddr,
    _task: JoinSet<()>,
}

/// Time since the first call.
pub(crate) fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

pub(crate) fn start() -> io::Result<MockProvider> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let listener = socket.listen(4_096)?;
    let address = listener.local_addr()?;
    let mut task = JoinSet::new();
    task.spawn(serve(listener));
    Ok(MockProvider {
        address,
        _task: task,
    })
}

async fn serve(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let served =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
        connections.spawn(served);
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<MockBody>, Infallible> {
    let path = request.uri().path().strip_prefix("/v1").unwrap_or_default();
    let format = Format::from_path(path).unwrap_or_default();
    let Some((mode, bytes)) = read(request.into_body()).await else {
        let mut answer = Response::new(Full::default().boxed_unsync());
        *answer.status_mut() = http::StatusCode::BAD_REQUEST;
        return Ok(answer);
    };
    let (kind, body) = match mode {
        Mode::Whole => ("application/json", whole_answer(format, bytes)),
        Mode::Burst => ("text/event-stream", burst_stream(bytes)),
        Mode::Paced => ("text/event-stream", paced_stream(PACE, EVENTS, bytes)),
        Mode::Endless => ("text/event-stream", paced_stream(PACE, usize::MAX, bytes)),
        Mode::Held => ("text/event-stream", paced_stream(HELD, usize::MAX, bytes)),
    };
    let mut answer = Response::new(body);
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(answer)
}

/// The kind of the answer, and the bytes of the body. `None` for another model, or for a body that
/// ends early.
async fn read(mut body: Incoming) -> Option<(Mode, usize)> {
    let (mut mode, mut bytes) = (None, 0);
    // A name may be split between two pieces.
    let mut edge = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else {
            continue;
        };
        bytes += data.len();
        if mode.is_none() {
            edge.extend_from_slice(&data[..data.len().min(64)]);
            mode = find_mode(&edge).or_else(|| find_mode(&data));
            edge.clear();
            edge.extend_from_slice(&data[data.len().saturating_sub(64)..]);
        }
    }
    Some((mode?, bytes))
}

fn find_mode(text: &[u8]) -> Option<Mode> {
    let start = memchr::memmem::find(text, MODEL.as_bytes())? + MODEL.len();
    let end = start + memchr::memchr(b'"', &text[start..])?;
    let mode = text[start..end].rsplit(|&byte| byte == b'-').next()?;
    MODES.into_iter().find(|it| it.name().as_bytes() == mode)
}

fn whole_answer(format: Format, bytes: usize) -> MockBody {
    let prompt = bytes / 4;
    let answer = match format {
        Format::Messages => format!(
            r#"{{"id":"c","type":"message","role":"assistant","model":"m","content":[{{"type":"text","text":"Aye."}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":{prompt},"output_tokens":{EVENTS}}}}}"#
        ),
        Format::Responses => format!(
            r#"{{"id":"c","object":"response","created_at":1,"status":"completed","model":"m","output":[{{"type":"message","id":"a","status":"completed","role":"assistant","content":[{{"type":"output_text","text":"Aye.","annotations":[]}}]}}],"usage":{{"input_tokens":{prompt},"output_tokens":{EVENTS},"total_tokens":{}}}}}"#,
            prompt + EVENTS
        ),
        _ => whole_chat_answer(bytes),
    };
    Full::from(answer).boxed_unsync()
}

fn whole_chat_answer(bytes: usize) -> String {
    format!(
        "{{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\
         \"message\":{{\"role\":\"assistant\",\"content\":\"Aye.\"}},\"finish_reason\":\"stop\"}}],{}}}",
        usage(bytes)
    )
}

/// An event with the current time.
fn event() -> Bytes {
    let (before, after) = TIME;
    Bytes::from(format!(
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\
         \"delta\":{{\"content\":\" aye{before}{}{after}\"}},\"finish_reason\":null}}]}}\n\n",
        now().as_nanos()
    ))
}

/// The event number `at` for a body of so many bytes. Three more follow the `events` of the stream.
fn nth_event(at: usize, events: usize, bytes: usize) -> Option<Bytes> {
    let head = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[";
    match at.checked_sub(events) {
        None => Some(event()),
        Some(0) => Some(Bytes::from(format!(
            "{head}{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n"
        ))),
        Some(1) => Some(Bytes::from(format!("{head}],{}}}\n\n", usage(bytes)))),
        Some(2) => Some(Bytes::from_static(b"data: [DONE]\n\n")),
        Some(_) => None,
    }
}

/// A token for four bytes of any text.
fn usage(bytes: usize) -> String {
    let prompt = bytes / 4;
    let total = prompt + EVENTS;
    format!(
        "\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{EVENTS},\"total_tokens\":{total}}}"
    )
}

/// The server writes when there is nothing more to read; yielding before each event gives each its
/// own write.
fn burst_stream(bytes: usize) -> MockBody {
    let events = stream::unfold(0, move |at| async move {
        tokio::task::yield_now().await;
        let event = nth_event(at, EVENTS, bytes)?;
        Some((Ok(Frame::data(event)), at + 1))
    });
    StreamBody::new(events).boxed_unsync()
}

fn paced_stream(pace: Duration, count: usize, bytes: usize) -> MockBody {
    let mut ticks = interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = stream::unfold((ticks, 0), move |(mut ticks, at)| async move {
        if at < count {
            ticks.tick().await;
        }
        let event = nth_event(at, count, bytes)?;
        Some((Ok(Frame::data(event)), (ticks, at + 1)))
    });
    StreamBody::new(events).boxed_unsync()
}
