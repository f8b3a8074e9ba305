//! A stream that begins before there is an answer, since its request waits for its summary.
//!
//! The client gets a head at once, and comments while it waits. Then it gets the provider's stream as it comes, with
//! trailers. The provider's headers are lost. An error is the stream's last event, and breaks the stream.
//! CANCEL: a client that leaves drops the body, and with it the provider's request. The summary job continues.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{
    HeaderMap, HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_ENCODING, TRAILER},
};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tokio::sync::oneshot;

use super::{proxy_answers, relay_answer::relay_stream};
use crate::{
    error::Failure,
    http::{answer, limit::Hold},
    proxy::{
        ClientRequest, ProviderRequest,
        dispatch::{
            AnsweredRequest, fallbacks::Fallbacks, provider_reply::is_stream, send_with_fallbacks,
        },
        response_headers::{TRAILERS, build_early_headers},
        summary::{SummaryWait, wait_for_summary},
    },
    wire::Body,
};

/// How often a client that waits gets a comment.
const COMMENT_EVERY: Duration = Duration::from_secs(3);
/// A comment, which every parser ignores.
const COMMENT: &[u8] = b": plimsoll compacting\n\n";
/// The time in which an error event can be written before the stream breaks.
const FLUSH_WAIT: Duration = Duration::from_millis(50);

/// Answers with a stream at once, and sends the request once its summary is made. `hold`: the share of the request's body
/// in the bytes in flight.
pub(in crate::proxy) fn answer_while_waiting(
    request: ClientRequest,
    mut prepared: ProviderRequest,
    fallbacks: Fallbacks,
    wait: SummaryWait,
    hold: Hold,
) -> Response<Body> {
    let head = build_early_headers(&request, &prepared);
    let accepts_trailers = answer::accepts_trailers(&request.parts.headers);
    let waits = async move {
        wait_for_summary(&request, &mut prepared, wait).await;
        (request, prepared, fallbacks)
    };
    let answers = async |(request, prepared, fallbacks): (ClientRequest, _, _)| {
        let (format, model) = (request.parsed.format, request.parsed.model.clone());
        match send_with_fallbacks(&request, prepared, fallbacks).await {
            Ok(answered) => write_answer(request, answered, hold).await,
            Err(failure) => failed_body(answer::failure_event(format, &model, &failure)),
        }
    };
    let mut answer = stream_while_waiting(head, waits, answers);
    for name in TRAILERS.iter().filter(|_| accepts_trailers) {
        let name = HeaderValue::from_static(name);
        answer.headers_mut().append(TRAILER, name);
    }
    answer
}

/// Makes a stream that begins at once, with comments while `waits` runs, and then what `answers` makes of its result.
pub(super) fn stream_while_waiting<T: Send + 'static, F>(
    head: HeaderMap,
    waits: impl Future<Output = T> + Send + 'static,
    answers: impl FnOnce(T) -> F + Send + 'static,
) -> Response<Body>
where
    F: Future<Output = Body> + Send,
{
    let (done, waited) = oneshot::channel();
    let waits = async move {
        // The body that receives the result also drives this future, so the receiver exists.
        let _ = done.send(waits.await);
    };
    let comment = || Ok(data_frame(COMMENT));
    let comments = stream::repeat_with(|| tokio::time::sleep(COMMENT_EVERY))
        .then(move |pause| pause.map(move |()| comment()));
    let answers = async move {
        match waited.await {
            Ok(result) => answers(result).await,
            Err(_) => Body::default(),
        }
    };
    let answers = stream::once(answers).flat_map(BodyStream::new);
    let frames = stream::iter([comment()])
        .chain(comments.take_until(waits.boxed()))
        .chain(answers);
    let mut answer = answer::event_stream_response(StreamBody::new(frames).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.extend(head);
    answer
}

/// The provider's stream; any other answer as an error event.
async fn write_answer(request: ClientRequest, answered: AnsweredRequest, hold: Hold) -> Body {
    let coding = answered.reply.answer.headers().get(CONTENT_ENCODING);
    let plain = coding.is_none_or(|coding| coding == "identity");
    if plain && is_stream(&answered.reply.answer, true) {
        return relay_stream(request, answered, hold).into_body();
    }
    let (format, model) = (request.parsed.format, &*request.parsed.model);
    let provider = &answered.prepared.target.provider.name;
    let refusal =
        proxy_answers::refusal_event(format, model, answered.reply.answer, provider).await;
    failed_body(refusal.unwrap_or_else(|| {
        let failure = Failure::ProviderBadAnswer {
            provider: provider.to_string(),
            what: "it is not a stream",
        };
        answer::failure_event(format, model, &failure)
    }))
}

/// An error event, followed by a broken stream.
fn failed_body(event: Bytes) -> Body {
    let breaks = async {
        tokio::time::sleep(FLUSH_WAIT).await;
        Err(io::Error::other("there was no answer"))
    };
    let event = stream::once(async { Ok(data_frame(event)) });
    StreamBody::new(event.chain(stream::once(breaks))).boxed_unsync()
}

fn data_frame(bytes: impl Into<Bytes>) -> Frame<Bytes> {
    Frame::data(bytes.into())
}
