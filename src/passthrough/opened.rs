//! A request's body, read as far as its model has to be found in it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, header::CONTENT_ENCODING, request::Parts};

use crate::{
    conversation::edit::Edits,
    error::Failure,
    http::body::{self, RequestBody},
    provider::Payload,
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
    body: &mut RequestBody,
    unlimited: bool,
) -> Result<Opened, Failure> {
    let untouched = Opened {
        has_body: !body.is_over(),
        ..Opened::default()
    };
    if body.is_over() {
        return Ok(untouched);
    }
    let media = match media(&parts.headers) {
        Media::Unsaid if parts.method == Method::POST => Media::Json,
        media => media,
    };
    match media {
        Media::Json => read_whole(app, parts, body, unlimited, in_json).await,
        // It goes on as it came, unless it has to be looked into.
        _ if unlimited && is_encoded(&parts.headers) => Ok(untouched),
        Media::Form { boundary } if unlimited => look(app, body, &boundary).await,
        Media::Form { boundary } => {
            read_whole(app, parts, body, unlimited, |bytes| {
                in_multipart(bytes, &boundary)
            })
            .await
        }
        Media::Unsaid | Media::Other => Ok(untouched),
    }
}

impl Opened {
    /// The body as it goes on, edited in what was read of it; `rest` follows as it comes. `headers` are those that
    /// go with it.
    pub(super) fn payload(
        self,
        edits: &Edits,
        headers: &mut HeaderMap,
        rest: &mut RequestBody,
        limit: Duration,
    ) -> Payload {
        if !self.has_body {
            return Payload::Empty;
        }
        let read = match self.packed {
            Some(packed) if edits.is_empty() => Edits::default().apply(&packed),
            _ => {
                if self.unpacked {
                    body::without_encoding(headers);
                }
                edits.apply(&self.read)
            }
        };
        rest.pass_on(read, limit)
    }
}

/// Reads a whole body and finds its model, also where it came compressed.
async fn read_whole(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    unlimited: bool,
    find: impl FnOnce(&[u8]) -> Found,
) -> Result<Opened, Failure> {
    let (limits, flight) = (&app.config.server, &app.flight);
    // As it came: that is how it goes on, unless it has to be edited.
    let came = body.gather(limits, flight).await?;
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
    })
}

/// Looks at the beginning of a form. Its parts are not held back for long: a provider cannot
/// answer a form before its end.
async fn look(app: &App, body: &mut RequestBody, boundary: &[u8]) -> Result<Opened, Failure> {
    let mut hold = app.flight.hold();
    let mut gather = Gather::new(0);
    while gather.len() < LOOK_BYTES {
        let limit = app.config.server.body_timeout;
        let Some(chunk) = body.next(limit).await? else {
            break;
        };
        if !hold.grow(chunk.len()) {
            return Err(Failure::Busy);
        }
        gather.push(chunk);
    }
    let read = hold.keep(gather.finish());
    let found = in_multipart(&read[..read.len().min(LOOK_BYTES)], boundary);
    Ok(Opened {
        has_body: true,
        found,
        read,
        ..Opened::default()
    })
}

fn is_encoded(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}
