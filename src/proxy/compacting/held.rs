//! A stream that begins before there is an answer, since its request waits for its summary.
//!
//! The client has a head at once, and comments while it waits; then the answer's own stream, as it
//! comes, with its trailers. What the provider's own headers would say is lost, and an error that
//! comes after the head ends the stream as an event, and abnormally.
//! CANCEL: a client that leaves drops the body, and with it the provider's request; its summary is
//! made to its end.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture, stream::unfold};
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_ENCODING, TRAILER},
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::Waiting;
use crate::{
    http::answer,
    proxy::{
        ask_usage::Sent, dispatch::Dispatch, generation::TRAILERS, own_answers,
        tool_loop::is_stream,
    },
    wire::Body,
};

/// How often a client that waits is told so.
const TELL_EVERY: Duration = Duration::from_secs(3);
/// What it is told; every parser passes over it.
const COMMENT: &[u8] = b": plimsoll compacting\n\n";
/// How long an error event has to be written out before the stream breaks.
const FLUSH_WAIT: Duration = Duration::from_millis(50);

/// Sends the answer on: the rest of a request's way.
type Relays = Box<dyn FnOnce(Sent, Dispatch) -> Response<Body> + Send>;

enum Phase {
    /// The first comment is due.
    Begins(BoxFuture<'static, Dispatch>, Relays),
    Waits(BoxFuture<'static, Dispatch>, Relays),
    /// The error event, where there is no stream.
    Asks(BoxFuture<'static, Result<Body, Bytes>>),
    Flows(Body),
    Breaks,
    Over,
}

/// Answers with a stream at once; `relays` makes the client's answer of the provider's.
pub fn held(
    mut dispatch: Dispatch,
    waiting: Waiting,
    relays: impl FnOnce(Sent, Dispatch) -> Response<Body> + Send + 'static,
) -> Response<Body> {
    let head = dispatch.generation.as_ref().map(|it| it.early_head());
    let trailers = answer::accepts_trailers(dispatch.client_headers());
    let waits = async move {
        dispatch.wait(waiting).await;
        dispatch
    };
    let phase = Phase::Begins(waits.boxed(), Box::new(relays));
    let frames = unfold(phase, next);
    let body = StreamBody::new(frames).boxed_unsync();
    let mut answer = answer::event_stream(body);
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.extend(head.unwrap_or_default());
    for name in TRAILERS.iter().filter(|_| trailers) {
        headers.append(TRAILER, HeaderValue::from_static(name));
    }
    answer
}

async fn next(mut phase: Phase) -> Option<(io::Result<Frame<Bytes>>, Phase)> {
    let told = |bytes: Bytes| Ok(Frame::data(bytes));
    loop {
        phase = match phase {
            Phase::Begins(waits, relays) => {
                let frame = told(Bytes::from_static(COMMENT));
                return Some((frame, Phase::Waits(waits, relays)));
            }
            Phase::Waits(mut waits, relays) => {
                match tokio::time::timeout(TELL_EVERY, &mut waits).await {
                    Ok(dispatch) => Phase::Asks(ask(dispatch, relays).boxed()),
                    Err(_) => Phase::Begins(waits, relays),
                }
            }
            Phase::Asks(asks) => match asks.await {
                Ok(body) => Phase::Flows(body),
                Err(event) => return Some((told(event), Phase::Breaks)),
            },
            Phase::Flows(mut body) => {
                let frame = body.frame().await?;
                return Some((frame, Phase::Flows(body)));
            }
            Phase::Breaks => {
                tokio::time::sleep(FLUSH_WAIT).await;
                let broken = io::Error::other("there was no answer");
                return Some((Err(broken), Phase::Over));
            }
            Phase::Over => return None,
        }
    }
}

/// The provider's stream, or what stands in its place.
async fn ask(mut dispatch: Dispatch, relays: Relays) -> Result<Body, Bytes> {
    let sent = match dispatch.send().await {
        Ok(sent) => sent,
        Err(failure) => return Err(answer::failure_event(&failure)),
    };
    let packed = sent.answer.headers().get(CONTENT_ENCODING);
    let plain = packed.is_none_or(|coding| coding == "identity");
    if is_stream(&sent.answer, true) && plain {
        return Ok(relays(sent, dispatch).into_body());
    }
    let provider = dispatch.provider().to_owned();
    Err(own_answers::refusal_event(sent.answer, &provider).await)
}
