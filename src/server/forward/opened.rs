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
    error::Failure,
    provider::{Payload, Upload, UploadBroken},
    server::{App, body},
    wire::{
        edit::{Edits, Rope},
        gather::Gather,
        model::{Found, Media, in_json, in_multipart, media},
    },
};

/// Bytes at the beginning of a form in which its model is looked for.
const LOOK_BYTES: usize = 64 << 10;

/// A body of which the beginning, or all, was read.
pub(super) struct Opened {
    pub(super) has_body: bool,
    pub(super) found: Found,
    /// What was read; the room that it takes is given back with it.
    read: Bytes,
    /// It came compressed, and goes on as it was read.
    pub(super) decoded: bool,
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
        return Ok(Opened {
            has_body: false,
            found: Found::default(),
            read: Bytes::new(),
            decoded: false,
            rest: None,
        });
    }
    let streamed = |body| Opened {
        has_body: true,
        found: Found::default(),
        read: Bytes::new(),
        decoded: false,
        rest: Some(body),
    };
    let media = match media(&parts.headers) {
        Media::Unsaid if parts.method == Method::POST => Media::Json,
        media => media,
    };
    match media {
        Media::Json => Ok(read_whole(app, parts, body).await?.of(in_json)),
        // It goes on as it came, unless it has to be looked into.
        _ if unlimited && is_encoded(&parts.headers) => Ok(streamed(body)),
        Media::Form { boundary } if unlimited => look(app, parts, body, &boundary).await,
        Media::Form { boundary } => {
            let read = read_whole(app, parts, body).await?;
            Ok(read.of(|bytes| in_multipart(bytes, &boundary)))
        }
        Media::Unsaid | Media::Other => Ok(streamed(body)),
    }
}

impl Opened {
    /// The body as it goes on, edited in what was read of it.
    pub(super) fn payload(self, edits: &Edits, limit: Duration) -> Payload {
        let read = edits.apply(&self.read);
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

/// A whole body.
struct All {
    bytes: Bytes,
    decoded: bool,
}

impl All {
    fn of(self, find: impl FnOnce(&[u8]) -> Found) -> Opened {
        Opened {
            has_body: true,
            found: find(&self.bytes),
            read: self.bytes,
            decoded: self.decoded,
            rest: None,
        }
    }
}

async fn read_whole(app: &App, parts: &Parts, body: Incoming) -> Result<All, Failure> {
    let read = body::read(&parts.headers, body, &app.config.server, &app.flight).await?;
    Ok(All {
        bytes: read.hold.keep(read.bytes),
        decoded: read.decoded,
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
        decoded: false,
        rest: Some(body),
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
    type Error = UploadBroken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadBroken>>> {
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
        self.read.is_empty()
            && self
                .rest
                .as_ref()
                .is_none_or(http_body::Body::is_end_stream)
    }

    /// Exact where the client told the length, so that the provider is told it too.
    fn size_hint(&self) -> SizeHint {
        let rest = self
            .rest
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(self.read.len().saturating_add(rest.lower()));
        if let Some(upper) = rest.upper() {
            hint.set_upper(self.read.len().saturating_add(upper));
        }
        hint
    }
}
