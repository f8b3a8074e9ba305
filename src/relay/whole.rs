//! An answer that is not streamed: taken into memory within a bound, judged, then sent.

use std::{collections::VecDeque, io};

use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use http::{Response, response::Parts};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::de::IgnoredAny;

use super::{
    BadAnswer,
    decode::Decoder,
    tap::{Heard, Tap},
};
use crate::wire::Body;

/// An answer of known or unknown size.
pub enum Whole {
    /// All of it.
    Complete {
        head: Parts,
        body: Bytes,
        heard: Heard,
    },
    /// It passed the bound: it goes on as it comes, and nothing is known of it.
    Overlong(Response<Body>),
}

/// Reads an answer as long as `room` grants the bytes (asked with the length of each new chunk).
///
/// # Errors
/// The answer broke off, or a successful one is not JSON.
pub async fn whole(
    answer: Response<Body>,
    provider: &str,
    mut room: impl FnMut(usize) -> bool,
) -> Result<Whole, BadAnswer> {
    let (head, mut source) = answer.into_parts();
    let mut chunks = VecDeque::new();
    while let Some(frame) = source.frame().await {
        let frame = frame.map_err(|error| {
            tracing::warn!(provider, error = %crate::error::chain(&error), "an answer broke off");
            BadAnswer::Broken {
                provider: provider.to_owned(),
            }
        })?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        let fits = room(chunk.len());
        chunks.push_back(chunk);
        if !fits {
            return Ok(Whole::Overlong(Response::from_parts(
                head,
                resume(chunks, source),
            )));
        }
    }
    let body = join(chunks);
    let heard = judge(&head, &body).ok_or_else(|| BadAnswer::NotJson {
        provider: provider.to_owned(),
    })?;
    Ok(Whole::Complete { head, body, heard })
}

/// What the answer says; `None` for a success that says nothing.
fn judge(head: &Parts, body: &Bytes) -> Option<Heard> {
    let mut tap = Tap::new();
    let text = match Decoder::of(&head.headers) {
        None => body.clone(),
        Some(mut decoder) => match decoder.push(body) {
            Some(text) => text.into(),
            None => {
                tap.blind();
                return Some(tap.heard());
            }
        },
    };
    let json = serde_json::from_slice::<IgnoredAny>(&text).is_ok();
    if head.status.is_success() && !json {
        return None;
    }
    tap.answer(&text);
    Some(tap.heard())
}

fn join(mut chunks: VecDeque<Bytes>) -> Bytes {
    if chunks.len() < 2 {
        return chunks.pop_front().unwrap_or_default();
    }
    let mut body = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    for chunk in chunks {
        body.extend_from_slice(&chunk);
    }
    body.freeze()
}

fn resume(chunks: VecDeque<Bytes>, source: Body) -> Body {
    let frames = unfold((chunks, source), |(mut chunks, mut source)| async move {
        let frame: io::Result<Frame<Bytes>> = match chunks.pop_front() {
            Some(chunk) => Ok(Frame::data(chunk)),
            None => source.frame().await?,
        };
        Some((frame, (chunks, source)))
    });
    StreamBody::new(frames).boxed_unsync()
}
