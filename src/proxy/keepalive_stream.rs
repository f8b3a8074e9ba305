//! A stream that begins before there is an answer, since its request waits for its summary.
//!
//! The client gets a head at once, and comments while it waits; then the provider's stream as it comes,
//! with its trailers. The provider's own headers are lost, and an error that comes after the head is the
//! stream's last event, and breaks the stream.
//! CANCEL: a client that leaves drops the body, and with it the provider's request; its summary is
//! made to its end.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_ENCODING, TRAILER},
};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tokio::sync::oneshot;

use super::{
    dispatch::Dispatch, generation::TRAILERS, own_answers, send::ProviderReply,
    tool_loop::is_stream, wait_for_summary::SummaryWait,
};
use crate::{http::answer, wire::Body};

/// How often a client that waits gets a comment.
const COMMENT_EVERY: Duration = Duration::from_secs(3);
/// Every parser passes over it.
const COMMENT: &[u8] = b": plimsoll compacting\n\n";
/// How long an error event has to be written out before the stream breaks.
const FLUSH_WAIT: Duration = Duration::from_millis(50);

/// Answers with a stream at once; `relay` makes the client's answer of the provider's.
pub fn answer_while_waiting(
    mut dispatch: Dispatch,
    wait: SummaryWait,
    relay: impl FnOnce(ProviderReply, Dispatch) -> Response<Body> + Send + 'static,
) -> Response<Body> {
    let head = dispatch.generation.as_ref().map(|it| it.early_head());
    let trailers = answer::accepts_trailers(dispatch.client_headers());
    let (done, waited) = oneshot::channel();
    let waits = async move {
        dispatch.wait_for_summary(wait).await;
        // The body that receives it also drives this future.
        let _ = done.send(dispatch);
    };
    let comment = || Ok(frame(COMMENT));
    let comments = stream::repeat_with(|| tokio::time::sleep(COMMENT_EVERY))
        .then(move |pause| pause.map(move |()| comment()));
    let answers = async move {
        match waited.await {
            Ok(dispatch) => ask(dispatch, relay).await,
            Err(_) => Body::default(),
        }
    };
    let answers = stream::once(answers).flat_map(BodyStream::new);
    let frames = stream::iter([comment()])
        .chain(comments.take_until(waits.boxed()))
        .chain(answers);
    let mut answer = answer::event_stream(StreamBody::new(frames).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.extend(head.unwrap_or_default());
    for name in TRAILERS.iter().filter(|_| trailers) {
        headers.append(TRAILER, HeaderValue::from_static(name));
    }
    answer
}

/// The provider's stream, or an error event and a broken stream.
async fn ask(
    mut dispatch: Dispatch,
    relay: impl FnOnce(ProviderReply, Dispatch) -> Response<Body>,
) -> Body {
    let event = match dispatch.send().await {
        Ok(sent) => {
            let coding = sent.answer.headers().get(CONTENT_ENCODING);
            let plain = coding.is_none_or(|coding| coding == "identity");
            if plain && is_stream(&sent.answer, true) {
                return relay(sent, dispatch).into_body();
            }
            own_answers::refusal_event(sent.answer, dispatch.provider()).await
        }
        Err(failure) => answer::failure_event(&failure),
    };
    let breaks = async {
        tokio::time::sleep(FLUSH_WAIT).await;
        Err(io::Error::other("there was no answer"))
    };
    let event = stream::once(async { Ok(frame(event)) });
    StreamBody::new(event.chain(stream::once(breaks))).boxed_unsync()
}

fn frame(bytes: impl Into<Bytes>) -> Frame<Bytes> {
    Frame::data(bytes.into())
}
