//! Relays a streamed answer to the client.
//!
//! Every chunk goes on as soon as it comes. The end waits for [`AnswerDriver::end_answer`], up to a fifth of
//! `store.timeout_ms` (50 ms by default), so that the client's next request finds the stored state.
//! A stream that breaks, or ends without finish reason and end marker, ends abnormally for the client
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
    AnswerDriver, FooterOptions, Format, StreamOptions,
    decode::Decoder,
    pipeline::{Pipeline, PipelineOutput},
};
use crate::{
    error::format_error_chain,
    format::{SentEvents, error_body::ErrorBody},
    wire::Body,
};

/// How long the rest of an answer for the proxy only may take after its finish reason.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of that rest that are read; a usage chunk is far smaller.
const MAX_DRAINED_BYTES: usize = 256 << 10;

/// How long the server has to write out relayed bytes before a stream breaks.
const FLUSH_WAIT: Duration = Duration::from_millis(50);

/// The provider's stream broke, or could not be decompressed.
struct SourceBroken;

struct StreamRelay {
    format: Format,
    source: Body,
    /// Decompresses the stream itself, if something in it may change.
    stream_decoder: Option<Decoder>,
    pipeline: Pipeline,
    /// `None` after the end, and where nothing is done there.
    driver: Option<Box<dyn AnswerDriver>>,
    out: VecDeque<PipelineOutput>,
    footer: FooterOptions,
    trailers: HeaderMap,
    phase: Phase,
}

enum Phase {
    Streaming,
    /// The answer was for the proxy only, and another one follows.
    NextAnswer,
    /// The source is done; remaining output and trailers follow.
    Finishing,
    /// Remaining output follows, then the connection ends abnormally.
    Breaking,
    Done,
}

/// Relays a streamed answer without what the filter names. Its length is unknown from here on. After an answer for the
/// proxy only, the answers of `driver` follow, joined into one; it also ends the last one. A compressed stream that may
/// change is decompressed; one that cannot be decompressed passes as it is.
pub fn stream_answer(
    answer: Response<Body>,
    driver: Option<Box<dyn AnswerDriver>>,
    options: StreamOptions,
) -> Response<Body> {
    let (mut head, source) = answer.into_parts();
    let mut copy_decoder = Decoder::from_headers(&head.headers);
    let stream_decoder = copy_decoder.take_if(|decoder| options.has_edits() && decoder.can_read());
    head.headers.remove(CONTENT_LENGTH);
    let footer = options.footer;
    for name in footer.trailers {
        head.headers.append(TRAILER, HeaderValue::from_static(name));
    }
    if stream_decoder.is_some() {
        head.headers.remove(CONTENT_ENCODING);
    }
    // Boxed: it is moved with every event.
    let relay = Box::new(StreamRelay {
        format: options.format,
        source,
        stream_decoder,
        pipeline: Pipeline::new(options, copy_decoder),
        driver,
        out: VecDeque::new(),
        footer,
        trailers: HeaderMap::new(),
        phase: Phase::Streaming,
    });
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
                Phase::Streaming => self.read_chunk().await,
                Phase::NextAnswer => self.take_next_answer().await,
                Phase::Finishing => {
                    self.phase = Phase::Done;
                    let trailers = std::mem::take(&mut self.trailers);
                    return (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)));
                }
                Phase::Breaking => {
                    self.phase = Phase::Done;
                    // An error drops what the server has not written yet, and HTTP/2 writes in a
                    // separate task.
                    tokio::time::sleep(FLUSH_WAIT).await;
                    let error = "the provider's answer broke off";
                    return Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, error)));
                }
                Phase::Done => return None,
            }
        }
    }

    async fn read_chunk(&mut self) {
        match self.next_chunk().await {
            Some(Ok(chunk)) => {
                self.pipeline.push(chunk, &mut self.out);
                if self.pipeline.is_for_proxy() {
                    self.phase = Phase::NextAnswer;
                }
            }
            Some(Err(SourceBroken)) => self.finish_source(true),
            None => self.finish_source(false),
        }
    }

    /// The next bytes of the source, decompressed if they may change.
    async fn next_chunk(&mut self) -> Option<Result<Bytes, SourceBroken>> {
        loop {
            let frame = match self.source.frame().await? {
                Ok(frame) => frame,
                Err(error) => {
                    let error = format_error_chain(&error);
                    tracing::warn!(%error, "the provider's stream broke off");
                    return Some(Err(SourceBroken));
                }
            };
            // The provider's trailers concern its connection only.
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            let Some(decoder) = &mut self.stream_decoder else {
                return Some(Ok(chunk));
            };
            let text = decoder.push(chunk).map(Bytes::from);
            if text.is_none() {
                tracing::warn!("cannot decompress the provider's stream");
            }
            return Some(text.ok_or(SourceBroken));
        }
    }

    /// Drains the answer, which was for the proxy only, and begins with the next one.
    async fn take_next_answer(&mut self) {
        let rest = self.drain_answer();
        if tokio::time::timeout(DRAIN_TIMEOUT, rest).await.is_err() {
            tracing::debug!("timeout: a stream did not end after its finish reason");
        }
        self.pipeline.finish_stream(false, &mut self.out);
        let said = self.pipeline.begin_answer();
        let Some(driver) = &mut self.driver else {
            return self.finish_source(true);
        };
        match driver.next_answer(said).await {
            Some(answer) if answer.status().is_success() => {
                self.pipeline.set_left_out(driver.left_out_tokens());
                let (head, source) = answer.into_parts();
                self.stream_decoder = Decoder::from_headers(&head.headers);
                self.source = source;
                self.phase = Phase::Streaming;
            }
            refused => {
                if let Some(answer) = refused {
                    let status = answer.status().as_u16();
                    tracing::warn!(
                        status,
                        "tool loop: the provider refused the request of a further round; the stream ends here"
                    );
                }
                self.finish_source(true);
            }
        }
    }

    /// Reads what follows the finish reason, such as usage.
    async fn drain_answer(&mut self) {
        let mut left = MAX_DRAINED_BYTES;
        while !self.pipeline.drained {
            let Some(Ok(chunk)) = self.next_chunk().await else {
                break;
            };
            left = left.saturating_sub(chunk.len());
            self.pipeline.push(chunk, &mut self.out);
            if left == 0 {
                return;
            }
        }
        // A connection can be reused once its answer is read to the end, which mostly is there by now.
        let _ = self.source.frame().now_or_never();
    }

    fn finish_source(&mut self, broken: bool) {
        self.pipeline.finish_stream(broken, &mut self.out);
        if self.pipeline.is_for_proxy() {
            self.phase = Phase::NextAnswer;
            return;
        }
        let summary = self.pipeline.response_summary();
        let ended = summary.finished || summary.error || summary.unreadable;
        // A break after the end marker loses nothing.
        if summary.done || (ended && !broken) {
            self.phase = Phase::Finishing;
            return;
        }
        if !broken {
            tracing::warn!("the provider's stream ended without a finish reason");
        }
        if self.pipeline.can_insert() {
            let event = broken_event(self.format, &self.pipeline.sent_events());
            self.out.push_back(PipelineOutput::Bytes(event));
        }
        self.phase = Phase::Breaking;
    }

    /// Waits until the state is stored, and adds the footer to the stream.
    async fn close_answer(&mut self) {
        let Some(driver) = self.driver.take() else {
            return;
        };
        let pipeline = &mut self.pipeline;
        let footer = driver.end_answer(
            pipeline.response_summary(),
            pipeline.model_answer(),
            pipeline.preceding_text(),
        );
        let Ok(footer) = tokio::time::timeout(self.footer.max_wait, footer).await else {
            tracing::warn!("store timeout: the answer ends before its state is stored");
            return;
        };
        if let Some(comment) = footer.comment.filter(|_| self.pipeline.can_insert()) {
            self.out.push_front(PipelineOutput::Bytes(comment));
        }
        if !self.footer.trailers.is_empty() {
            self.trailers = footer.trailers;
        }
    }
}

/// An error event after a blank line, since the stream may have broken in the middle of an event.
fn broken_event(format: Format, sent: &SentEvents) -> Bytes {
    let error = ErrorBody {
        message: "The provider's answer broke off before its end.".into(),
        kind: Some("provider_error".into()),
        param: None,
        code: Some("provider_bad_answer".into()),
    };
    [b"\n\n", &format.error_event(&error, sent)[..]]
        .concat()
        .into()
}

#[cfg(test)]
mod tests;
