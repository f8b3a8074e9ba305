//! Reads the first event of a stream before its head goes to the client.
//!
//! Some providers begin a stream as a success and report an error in its first event, or after the events that only begin
//! an answer. Nothing is removed: the bytes go on as they came. It is done where the profile says that errors come so, and
//! where another candidate may answer, within limits of time and bytes, since the client waits meanwhile.

use std::{collections::VecDeque, io, time::Duration};

use bytes::Bytes;
use futures_util::stream::unfold;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::decode::Decoder;
use crate::{
    conversation::Format,
    wire::{
        Body,
        sse::{SseMessage, SseSplitter},
    },
};

/// Bytes that are searched for a first event; errors are short.
const MAX_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstEvent {
    /// The data of the first event that says anything, see [`peek_first_event`].
    Event(Bytes),
    /// The stream ended without an event.
    Nothing,
    /// The stream broke before the event.
    Broken,
    /// No such event came in time or within the limit of bytes, or the stream is compressed.
    Unknown,
}

/// Waits for the first event of a stream that says anything, `limit` at most; with `for_content` for the first one that has
/// content, or is an error. The returned answer has all of its bytes.
pub async fn peek_first_event(
    format: Format,
    answer: Response<Body>,
    limit: Duration,
    for_content: bool,
) -> (Response<Body>, FirstEvent) {
    let says_nothing = |message: &SseMessage| {
        if for_content {
            format.is_beginning(message)
        } else {
            format.is_keepalive(message)
        }
    };
    if Decoder::from_headers(answer.headers()).is_some() {
        return (answer, FirstEvent::Unknown);
    }
    let (head, mut source) = answer.into_parts();
    let mut read = VecDeque::new();
    let mut splitter = SseSplitter::new(MAX_BYTES);
    let search = async {
        let mut bytes = 0;
        while let Some(frame) = source.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    read.push_back(Err(error));
                    return FirstEvent::Broken;
                }
            };
            let chunk = frame.data_ref().cloned().unwrap_or_default();
            read.push_back(Ok(frame));
            bytes += chunk.len();
            splitter.push(chunk);
            while let Some(event) = splitter.next_event() {
                if let Some(message) = event.message
                    && !says_nothing(&message)
                {
                    return FirstEvent::Event(message.data);
                }
            }
            if bytes > MAX_BYTES {
                return FirstEvent::Unknown;
            }
        }
        let last = splitter.finish().and_then(|event| event.message);
        match last.filter(|message| !says_nothing(message)) {
            Some(message) => FirstEvent::Event(message.data),
            None => FirstEvent::Nothing,
        }
    };
    let first = tokio::time::timeout(limit, search).await;
    let first = first.unwrap_or(FirstEvent::Unknown);
    let body = resume_body(read, source);
    (Response::from_parts(head, body), first)
}

/// A body of the frames that were read and the rest of the source.
pub(super) fn resume_body(read: VecDeque<io::Result<Frame<Bytes>>>, source: Body) -> Body {
    let frames = unfold((read, source), |(mut read, mut source)| async move {
        let frame = match read.pop_front() {
            Some(frame) => frame,
            None => source.frame().await?,
        };
        Some((frame, (read, source)))
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use bytes::Bytes;
    use futures_util::stream::{self, StreamExt};
    use http::Response;
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};

    use super::{FirstEvent, peek_first_event};
    use crate::{conversation::Format, wire::Body};

    const FORMAT: Format = Format::Chat;

    /// A stream of these chunks that then ends, or stays open.
    fn stream_of(chunks: &[&'static str], open: bool) -> Response<Body> {
        let chunks: Vec<io::Result<Frame<Bytes>>> = chunks
            .iter()
            .map(|chunk| Ok(Frame::data(Bytes::from_static(chunk.as_bytes()))))
            .collect();
        let chunks = stream::iter(chunks);
        let body = if open {
            StreamBody::new(chunks.chain(stream::pending())).boxed_unsync()
        } else {
            StreamBody::new(chunks).boxed_unsync()
        };
        Response::new(body)
    }

    async fn check(chunks: &[&'static str], first: FirstEvent) {
        let (answer, found) = peek_first_event(
            FORMAT,
            stream_of(chunks, false),
            Duration::from_secs(5),
            false,
        )
        .await;
        assert_eq!(found, first, "{chunks:?}");
        let all = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(all, chunks.concat());
    }

    #[tokio::test]
    async fn the_first_event_is_found_and_nothing_is_lost() {
        let event = |text: &'static str| FirstEvent::Event(Bytes::from_static(text.as_bytes()));
        check(&["data: {\"a\":1}\n\ndata: 2\n\n"], event("{\"a\":1}")).await;
        check(&[": wait\n\n", "da", "ta: x\r", "\n\r\n"], event("x")).await;
        check(&["event: error\ndata: no"], event("no")).await;
        check(&[": only\n\n"], FirstEvent::Nothing).await;
        check(&[], FirstEvent::Nothing).await;
    }

    #[tokio::test]
    async fn a_ping_before_the_first_event_is_passed_over() {
        for ping in [
            "event: ping\ndata: {\"type\": \"ping\"}\n\n",
            "data: {\"type\":\"ping\"}\n\n",
        ] {
            let answer = stream_of(&[ping, "data: {}\n\n"], false);
            let found = |format| peek_first_event(format, answer, Duration::from_secs(5), false);
            let (_, found) = found(Format::Messages).await;
            assert_eq!(found, FirstEvent::Event("{}".into()));
        }
    }

    #[tokio::test]
    async fn a_silent_stream_is_not_held_for_long() {
        let silent = stream_of(&[": wait\n\n"], true);
        let (answer, found) =
            peek_first_event(FORMAT, silent, Duration::from_millis(20), false).await;
        assert_eq!(found, FirstEvent::Unknown);
        let mut body = answer.into_body();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), ": wait\n\n");
    }

    #[tokio::test]
    async fn many_bytes_without_an_event_end_the_search() {
        let flood: &'static str = Box::leak(format!(": {}", "x".repeat(100_000)).into());
        check(&[flood], FirstEvent::Unknown).await;
    }
}
