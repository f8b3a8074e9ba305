//! A streamed answer on its way to the client.
//!
//! Every chunk goes on as soon as it came. Before the end is released, [`Ending::on_end`] is
//! awaited, 50 ms at most, so that the client's next request finds what was stored. A
//! stream that breaks, or ends without having said so, ends abnormally here too, after an error
//! event: a client must never take half an answer for a whole one.
//! CANCEL: dropping the body drops the provider's answer, which closes or resets its stream.

use std::{collections::VecDeque, io, time::Duration};

use bytes::Bytes;
use futures_util::{future::BoxFuture, stream::unfold};
use http::{
    HeaderMap, HeaderValue, Response,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, TRAILER},
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::{
    decode::Decoder,
    passage::{Passage, Piece},
    tap::Heard,
};
use crate::wire::{Body, fault::Fault};

/// How long the end of a stream is held for the state to be stored.
const STORE_WAIT: Duration = Duration::from_millis(50);

/// What happens at the end of a stream.
pub struct Ending {
    /// Take out the chunk with usage that the client did not ask for.
    pub strip_usage: bool,
    /// The trailers that [`Closing`] may have; empty where the client accepts none. The head of the
    /// answer names them, since HTTP/1.1 sends no others.
    pub trailers: &'static [&'static str],
    /// Called once for every stream that the provider ended, broken ones included, before the
    /// last bytes go out. Dropped after 50 ms: what must outlive that is spawned inside.
    /// Not called when the client leaves.
    pub on_end: Box<dyn FnOnce(Heard) -> BoxFuture<'static, Closing> + Send>,
}

/// What is added to the end of a stream.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    pub trailers: HeaderMap,
    /// A whole SSE comment (`: …` and a blank line), sent before `[DONE]`.
    pub comment: Option<Bytes>,
}

struct Relay {
    source: Body,
    /// Unpacks the stream itself, where something must be taken out of it.
    unpack: Option<Decoder>,
    passage: Passage,
    out: VecDeque<Piece>,
    ending: Option<Ending>,
    trailers: Option<HeaderMap>,
    phase: Phase,
}

enum Phase {
    Flows,
    /// The source is done; what is left goes out.
    Drains,
    /// As above, and then the connection ends abnormally.
    Breaks,
    Over,
}

/// Passes a streamed answer on. The length is unknown from here on.
pub fn stream(answer: Response<Body>, ending: Ending) -> Response<Body> {
    let (mut head, source) = answer.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    for name in ending.trailers {
        head.headers.append(TRAILER, HeaderValue::from_static(name));
    }
    let mut decoder = Decoder::of(&head.headers);
    // What is compressed cannot be cut. A client that never asked for a chunk without choices may
    // fail on it, so such a stream, which nobody should have compressed, goes on unpacked.
    let unpack = decoder.take_if(|decoder| ending.strip_usage && decoder.reads());
    if unpack.is_some() {
        head.headers.remove(CONTENT_ENCODING);
    }
    let relay = Relay {
        source,
        unpack,
        passage: Passage::new(decoder, ending.strip_usage),
        out: VecDeque::new(),
        ending: Some(ending),
        trailers: None,
        phase: Phase::Flows,
    };
    let frames = unfold(relay, |mut relay| async move {
        let frame = relay.next().await?;
        Some((frame, relay))
    });
    Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}

impl Relay {
    async fn next(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        loop {
            match self.out.pop_front() {
                Some(Piece::Bytes(bytes)) => return Some(Ok(Frame::data(bytes))),
                Some(Piece::End) => {
                    self.close().await;
                    continue;
                }
                None => {}
            }
            match self.phase {
                Phase::Flows => self.read().await,
                Phase::Drains => {
                    self.phase = Phase::Over;
                    let trailers = self.trailers.take().filter(|t| !t.is_empty());
                    return trailers.map(|trailers| Ok(Frame::trailers(trailers)));
                }
                Phase::Breaks => {
                    self.phase = Phase::Over;
                    // One round of pending, so that the server writes out what it has: an error
                    // drops what was not flushed.
                    tokio::task::yield_now().await;
                    return Some(Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the provider's answer broke off",
                    )));
                }
                Phase::Over => return None,
            }
        }
    }

    async fn read(&mut self) {
        match self.source.frame().await {
            Some(Ok(frame)) => {
                // Trailers of the provider belong to its connection.
                let Ok(chunk) = frame.into_data() else {
                    return;
                };
                match self.unpack.as_mut().map(|decoder| decoder.push(&chunk)) {
                    None => self.passage.push(chunk, &mut self.out),
                    Some(Some(text)) => self.passage.push(text.into(), &mut self.out),
                    Some(None) => {
                        tracing::warn!("a compressed answer could not be unpacked");
                        self.over(true);
                    }
                }
            }
            Some(Err(error)) => {
                tracing::warn!(error = %crate::error::chain(&error), "an answer broke off");
                self.over(true);
            }
            None => self.over(false),
        }
    }

    fn over(&mut self, broken: bool) {
        self.passage.finish(&mut self.out);
        let heard = self.passage.heard();
        let ended = heard.finished || heard.error || heard.blind;
        // What breaks after `[DONE]` has nothing left to lose.
        if heard.done || (ended && !broken) {
            self.phase = Phase::Drains;
            return;
        }
        if !broken {
            tracing::warn!("an answer ended without a finish reason");
        }
        if self.passage.legible() {
            self.out.push_back(Piece::Bytes(broken_event()));
        }
        self.phase = Phase::Breaks;
    }

    /// Lets the state be stored, and puts what is to be said at the end into the stream.
    async fn close(&mut self) {
        let Some(ending) = self.ending.take() else {
            return;
        };
        let stored = (ending.on_end)(self.passage.heard());
        let Ok(closing) = tokio::time::timeout(STORE_WAIT, stored).await else {
            tracing::warn!("storing the state took too long; the answer goes on without it");
            return;
        };
        if let Some(comment) = closing.comment.filter(|_| self.passage.legible()) {
            self.out.push_front(Piece::Bytes(comment));
        }
        if !ending.trailers.is_empty() {
            self.trailers = Some(closing.trailers);
        }
    }
}

/// Begins with a blank line: the stream may have broken in the middle of an event.
fn broken_event() -> Bytes {
    let fault = Fault {
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
mod tests {
    use futures_util::{FutureExt, future::pending};
    use http::{HeaderMap, Response};
    use http_body_util::BodyExt;

    use super::{Closing, Ending, stream};
    use crate::{relay::Heard, wire::whole};

    const STREAM: &str = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

    async fn end(trailers: &'static [&'static str]) -> (String, Option<HeaderMap>) {
        let on_end = |heard: Heard| {
            assert!(heard.complete());
            let mut closing = Closing {
                comment: Some(": end\n\n".into()),
                ..Closing::default()
            };
            closing.trailers.insert("x-end", "1".parse().unwrap());
            async { closing }.boxed()
        };
        let ending = Ending {
            strip_usage: false,
            trailers,
            on_end: Box::new(on_end),
        };
        let answer = stream(Response::new(whole(STREAM)), ending);
        assert_eq!(
            answer.headers().contains_key("trailer"),
            !trailers.is_empty()
        );
        let body = answer.into_body().collect().await.unwrap();
        let trailers = body.trailers().cloned();
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        (text, trailers)
    }

    #[tokio::test]
    async fn the_end_speaks_before_done_and_in_trailers() {
        let (text, trailers) = end(&["x-end"]).await;
        assert_eq!(
            text,
            STREAM.replace("data: [DONE]", ": end\n\ndata: [DONE]")
        );
        assert_eq!(trailers.unwrap()["x-end"], "1");
        let (_, trailers) = end(&[]).await;
        assert_eq!(trailers, None);
    }

    #[tokio::test]
    async fn storing_that_hangs_holds_nobody_up() {
        let ending = Ending {
            strip_usage: false,
            trailers: &[],
            on_end: Box::new(|_| pending().boxed()),
        };
        let answer = stream(Response::new(whole(STREAM)), ending);
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), STREAM);
    }
}
