//! A streamed answer on its way to the client.
//!
//! Every chunk goes on as soon as it came. Before the end is released, [`Ending::on_end`] is
//! awaited, for which the store has a fifth of `store.timeout_ms` (50 ms by default), so that the client's next
//! request finds what was stored. A stream that breaks, or ends without having said so, ends abnormally here
//! too, after an error event: a client must never take half an answer for a whole one.
//! CANCEL: dropping the body drops the provider's answer, which closes or resets its stream.

use std::{collections::VecDeque, io, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, stream::unfold};
use http::{
    HeaderMap, HeaderValue, Response,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, TRAILER},
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::{
    AnswerFilter, Ending, FooterOptions, TurnDriver,
    decode::Decoder,
    pipeline::{Pipeline, PipelineOutput, StreamEdits},
};
use crate::{format::error_body::ErrorBody, wire::Body};

/// How long the rest of an answer for the proxy alone is waited for, behind its finish reason.
const HEAR_OUT_WAIT: Duration = Duration::from_secs(1);

/// How long what was relayed has to be written out before a stream breaks.
const FLUSH_WAIT: Duration = Duration::from_millis(50);

/// Bytes of that rest that are read; a usage chunk is far smaller.
const MAX_HEARD_OUT: usize = 256 << 10;

/// The source gave out before its end.
struct SourceBroken;

struct StreamRelay {
    source: Body,
    /// Unpacks the stream itself, where something must be taken out of it.
    unpack: Option<Decoder>,
    pipeline: Pipeline,
    /// `None` once the end has come.
    turns: Option<Box<dyn TurnDriver>>,
    out: VecDeque<PipelineOutput>,
    /// The client accepts trailers.
    takes_trailers: bool,
    trailers: Option<HeaderMap>,
    /// How long the end is held.
    within: Duration,
    phase: Phase,
}

enum Phase {
    Flows,
    /// The answer was for the proxy alone: the next one is to come.
    Turns,
    /// The source is done; what is left goes out.
    Drains,
    /// As above, and then the connection ends abnormally.
    Breaks,
    Over,
}

/// Passes a streamed answer on. The length is unknown from here on.
pub fn stream_answer(answer: Response<Body>, ending: Ending) -> Response<Body> {
    let (strip_usage, foot) = (ending.strip_usage, ending.foot);
    let sifting = AnswerFilter::default();
    stream_sifted_answer(answer, sifting, Box::new(ending), strip_usage, foot)
}

/// Passes a streamed answer on without what the sifting names, and the answers that follow where it
/// was for the proxy alone, as one. The other arguments are those of [`Ending`]; what was left out of the
/// request, which is another with each round, [`Rounds::left_out`] tells. A compressed stream in which
/// something may change goes on unpacked, since a client that never asked for a chunk without choices
/// may fail on it; one that cannot be unpacked passes as it is.
pub fn stream_sifted_answer(
    answer: Response<Body>,
    sifting: AnswerFilter,
    rounds: Box<dyn TurnDriver>,
    strip_usage: bool,
    foot: FooterOptions,
) -> Response<Body> {
    let (mut head, source) = answer.into_parts();
    let changes = StreamEdits {
        sifting,
        strip_usage,
        left_out: rounds.left_out_tokens(),
    };
    let mut decoder = Decoder::from_headers(&head.headers);
    let unpack = decoder.take_if(|decoder| changes.has_any() && decoder.can_read());
    head.headers.remove(CONTENT_LENGTH);
    for name in foot.trailers {
        head.headers.append(TRAILER, HeaderValue::from_static(name));
    }
    if unpack.is_some() {
        head.headers.remove(CONTENT_ENCODING);
    }
    let relay = StreamRelay {
        source,
        unpack,
        pipeline: Pipeline::new(changes, decoder),
        turns: Some(rounds),
        out: VecDeque::new(),
        takes_trailers: !foot.trailers.is_empty(),
        trailers: None,
        within: foot.within,
        phase: Phase::Flows,
    };
    let frames = unfold(relay, |mut relay| async move {
        let frame = relay.next_frame().await?;
        Some((frame, relay))
    });
    Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}

impl StreamRelay {
    async fn next_frame(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        loop {
            match self.out.pop_front() {
                Some(PipelineOutput::Bytes(bytes)) => return Some(Ok(Frame::data(bytes))),
                Some(PipelineOutput::End) => {
                    self.close_answer().await;
                    continue;
                }
                None => {}
            }
            match self.phase {
                Phase::Flows => self.read_chunk().await,
                Phase::Turns => self.take_next_turn().await,
                Phase::Drains => {
                    self.phase = Phase::Over;
                    let trailers = self.trailers.take().filter(|t| !t.is_empty());
                    return trailers.map(|trailers| Ok(Frame::trailers(trailers)));
                }
                Phase::Breaks => {
                    self.phase = Phase::Over;
                    // So that the server writes out what it has: an error drops what was not
                    // flushed, and HTTP/2 writes in a task of its own.
                    tokio::time::sleep(FLUSH_WAIT).await;
                    return Some(Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the provider's answer broke off",
                    )));
                }
                Phase::Over => return None,
            }
        }
    }

    async fn read_chunk(&mut self) {
        match self.next_chunk().await {
            Some(Ok(chunk)) => {
                self.pipeline.push(chunk, &mut self.out);
                if self.pipeline.is_for_proxy() {
                    self.phase = Phase::Turns;
                }
            }
            Some(Err(SourceBroken)) => self.finish_source(true),
            None => self.finish_source(false),
        }
    }

    /// The next bytes of the source, unpacked where they must be.
    async fn next_chunk(&mut self) -> Option<Result<Bytes, SourceBroken>> {
        loop {
            let chunk = match self.source.frame().await? {
                // Trailers of the provider belong to its connection.
                Ok(frame) => match frame.into_data() {
                    Ok(chunk) => chunk,
                    Err(_) => continue,
                },
                Err(error) => {
                    tracing::warn!(error = %crate::error::format_error_chain(&error), "an answer broke off");
                    return Some(Err(SourceBroken));
                }
            };
            let Some(decoder) = &mut self.unpack else {
                return Some(Ok(chunk));
            };
            let text = decoder.push(chunk).map(Bytes::from);
            if text.is_none() {
                tracing::warn!("a compressed answer could not be unpacked");
            }
            return Some(text.ok_or(SourceBroken));
        }
    }

    /// Hears the answer out, which was for the proxy alone, and goes on with the next.
    async fn take_next_turn(&mut self) {
        let rest = self.hear_out();
        if tokio::time::timeout(HEAR_OUT_WAIT, rest).await.is_err() {
            tracing::debug!("an answer that was for the proxy did not end");
        }
        self.pipeline.finish_stream(false, &mut self.out);
        let spoken = self.pipeline.begin_answer();
        let answer = match &mut self.turns {
            Some(rounds) => rounds.next_turn(spoken).await,
            None => None,
        };
        match answer {
            Some(answer) if answer.status().is_success() => {
                let (head, source) = answer.into_parts();
                self.unpack = Decoder::from_headers(&head.headers);
                self.source = source;
                self.phase = Phase::Flows;
                let left_out = self
                    .turns
                    .as_ref()
                    .and_then(|rounds| rounds.left_out_tokens());
                self.pipeline.set_left_out(left_out);
            }
            refused => {
                if let Some(answer) = refused {
                    let status = answer.status().as_u16();
                    tracing::warn!(status, "a round of a stream was refused");
                }
                self.finish_source(true);
            }
        }
    }

    /// Reads what follows the finish reason: usage may be there.
    async fn hear_out(&mut self) {
        let mut left = MAX_HEARD_OUT;
        while !self.pipeline.is_drained() {
            let Some(Ok(chunk)) = self.next_chunk().await else {
                break;
            };
            left = left.saturating_sub(chunk.len());
            self.pipeline.push(chunk, &mut self.out);
            if left == 0 {
                return;
            }
        }
        // A connection can be used again once its answer was read to the end, which mostly is
        // there by now.
        let _ = self.source.frame().now_or_never();
    }

    fn finish_source(&mut self, broken: bool) {
        self.pipeline.finish_stream(broken, &mut self.out);
        if self.pipeline.is_for_proxy() {
            self.phase = Phase::Turns;
            return;
        }
        let heard = self.pipeline.response_summary();
        let ended = heard.finished || heard.error || heard.unreadable;
        // What breaks after `[DONE]` has nothing left to lose.
        if heard.done || (ended && !broken) {
            self.phase = Phase::Drains;
            return;
        }
        if !broken {
            tracing::warn!("an answer ended without a finish reason");
        }
        if self.pipeline.is_legible() {
            self.out.push_back(PipelineOutput::Bytes(broken_event()));
        }
        self.phase = Phase::Breaks;
    }

    /// Lets the state be stored, and puts what is to be said at the end into the stream.
    async fn close_answer(&mut self) {
        let Some(rounds) = self.turns.take() else {
            return;
        };
        let pipeline = &self.pipeline;
        let stored = rounds.end_answer(
            pipeline.response_summary(),
            pipeline.assistant_turn(),
            pipeline.preceding_text(),
        );
        let Ok(closing) = tokio::time::timeout(self.within, stored).await else {
            tracing::warn!("storing the state took too long; the answer goes on without it");
            return;
        };
        if let Some(comment) = closing.comment.filter(|_| self.pipeline.is_legible()) {
            self.out.push_front(PipelineOutput::Bytes(comment));
        }
        if self.takes_trailers {
            self.trailers = Some(closing.trailers);
        }
    }
}

/// Begins with a blank line: the stream may have broken in the middle of an event.
fn broken_event() -> Bytes {
    let fault = ErrorBody {
        message: "The provider's answer broke off before its end.".into(),
        kind: Some("provider_error".into()),
        param: None,
        code: Some("provider_bad_answer".into()),
    };
    [b"\n\ndata: ", &fault.to_json()[..], b"\n\n"]
        .concat()
        .into()
}

#[cfg(test)]
mod tests;
