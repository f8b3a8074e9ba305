//! A request's body, read as far as its model has to be found in it.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, header::CONTENT_ENCODING, request::Parts};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;

use crate::{
    conversation::edit::{Edits, Rope},
    error::Failure,
    http::body,
    provider::{Payload, Unsent, Upload},
    proxy::App,
    wire::{
        gather::Gather,
        model::{Found, Media, in_json, in_multipart, media},
    },
};

/// Bytes at the beginning of a form in which its model is looked for.
const LOOK_BYTES: usize = 64 << 10;

/// A body of which the beginning, or all, was read.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) has_body: bool,
    pub(super) found: Found,
    /// What was read; the room that it takes is given back with it.
    read: Bytes,
    /// The same as it came, where it came compressed and may go on so.
    packed: Option<Bytes>,
    /// What was read came compressed.
    unpacked: bool,
    /// What follows; `None` where all was read.
    pub(super) rest: Option<Incoming>,
}

/// Reads what has to be read.
///
/// `unlimited`: the client may use every model, so that none need be found for certain. Otherwise
/// forms are read whole as well.
///
/// # Errors
/// What is read whole breaks off, passes a limit, or is not what its encoding says.
pub(super) async fn open(
    app: &App,
    parts: &Parts,
    body: Incoming,
    unlimited: bool,
) -> Result<Opened, Failure> {
    if body.is_end_stream() {
        return Ok(Opened::default());
    }
    let streamed = |body| Opened {
        has_body: true,
        rest: Some(body),
        ..Opened::default()
    };
    let media = match media(&parts.headers) {
        Media::Unsaid if parts.method == Method::POST => Media::Json,
        media => media,
    };
    match media {
        Media::Json => read_whole(app, parts, body, unlimited, in_json).await,
        // It goes on as it came, unless it has to be looked into.
        _ if unlimited && is_encoded(&parts.headers) => Ok(streamed(body)),
        Media::Form { boundary } if unlimited => look(app, parts, body, &boundary).await,
        Media::Form { boundary } => {
            read_whole(app, parts, body, unlimited, |bytes| {
                in_multipart(bytes, &boundary)
            })
            .await
        }
        Media::Unsaid | Media::Other => Ok(streamed(body)),
    }
}

impl Opened {
    /// The body as it goes on, edited in what was read of it. `headers` are those that go with it.
    pub(super) fn payload(
        self,
        edits: &Edits,
        headers: &mut HeaderMap,
        limit: Duration,
    ) -> Payload {
        let read = match self.packed {
            Some(packed) if edits.is_empty() => Edits::default().apply(&packed),
            _ => {
                if self.unpacked {
                    body::without_encoding(headers);
                }
                edits.apply(&self.read)
            }
        };
        let Some(rest) = self.rest else {
            return match self.has_body {
                true => Payload::Whole(read),
                false => Payload::Empty,
            };
        };
        let rest = match body::pass_on(rest, limit) {
            Payload::Stream(rest) => Some(rest),
            _ => None,
        };
        Payload::Stream(BoxBody::new(Resumed { read, rest }))
    }
}

/// Reads a whole body and finds its model, also where it came compressed.
async fn read_whole(
    app: &App,
    parts: &Parts,
    body: Incoming,
    unlimited: bool,
    find: impl FnOnce(&[u8]) -> Found,
) -> Result<Opened, Failure> {
    let (limits, flight) = (&app.config.server, &app.flight);
    // As it came: that is how it goes on, unless it has to be edited.
    let mut plain = parts.headers.clone();
    plain.remove(CONTENT_ENCODING);
    let came = body::read(&plain, body, limits, flight).await?;
    let came = came.hold.keep(came.bytes);
    let unpacked = match body::unpacked(&parts.headers, came.clone(), limits, flight).await {
        Ok(unpacked) => unpacked,
        // It may be read by the provider all the same.
        Err(_) if unlimited => None,
        Err(failure) => return Err(failure),
    };
    // SECURITY: what is plain text to who passes over the encoding may unpack to another text. A
    // client with a key for some models is not to have both read.
    let packed = (unlimited && unpacked.is_some()).then(|| came.clone());
    let was_packed = unpacked.is_some();
    let read = unpacked.unwrap_or(came);
    Ok(Opened {
        has_body: true,
        found: find(&read),
        read,
        packed,
        unpacked: was_packed,
        rest: None,
    })
}

/// Looks at the beginning of a form. Its parts are not held back for long: a provider cannot
/// answer a form before its end.
async fn look(
    app: &App,
    parts: &Parts,
    mut body: Incoming,
    boundary: &[u8],
) -> Result<Opened, Failure> {
    let mut hold = app.flight.hold();
    let mut gather = Gather::new(0);
    while gather.len() < LOOK_BYTES {
        let limit = app.config.server.body_timeout;
        let Some(chunk) = body::next(&mut body, limit).await? else {
            break;
        };
        if !hold.grow(chunk.len()) {
            drop((gather, hold));
            let limit = app.config.server.max_body_bytes;
            return Err(body::turn_away(&parts.headers, body, limit, Failure::Busy).await);
        }
        gather.push(chunk);
    }
    let read = hold.keep(gather.finish());
    let found = in_multipart(&read[..read.len().min(LOOK_BYTES)], boundary);
    Ok(Opened {
        has_body: true,
        found,
        read,
        rest: Some(body),
        ..Opened::default()
    })
}

fn is_encoded(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// A body that goes on where its beginning was read.
///
/// SECURITY: no trailers pass, since nobody looked whether a key stands in them.
struct Resumed {
    read: Rope,
    rest: Option<Upload>,
}

impl http_body::Body for Resumed {
    type Data = Bytes;
    type Error = Unsent;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unsent>>> {
        let this = &mut *self;
        if !this.read.is_empty() {
            let frame = Pin::new(&mut this.read).poll_frame(cx);
            return frame.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})));
        }
        let Some(rest) = &mut this.rest else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(rest).poll_frame(cx);
        match polled {
            Poll::Ready(Some(Ok(frame))) if !frame.is_data() => {
                this.rest = None;
                Poll::Ready(None)
            }
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.rest.as_ref();
        self.read.is_empty() && rest.is_none_or(http_body::Body::is_end_stream)
    }

    /// Exact where the client told the length, so that the provider is told it too.
    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref();
        let rest = rest.map_or(SizeHint::with_exact(0), http_body::Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(self.read.len().saturating_add(rest.lower()));
        if let Some(upper) = rest.upper() {
            hint.set_upper(self.read.len().saturating_add(upper));
        }
        hint
    }
}
