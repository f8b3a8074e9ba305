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
        gather::BytesGatherer,
        model::{
            ContentType, ModelLookup, find_model_in_json, find_model_in_multipart,
            parse_content_type,
        },
    },
};

/// Bytes at the beginning of a form in which its model is looked for.
const LOOK_BYTES: usize = 64 << 10;

/// A body of which the beginning, or all, was read.
#[derive(Default)]
pub(super) struct InspectedBody {
    pub(super) has_body: bool,
    pub(super) found: ModelLookup,
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
pub(super) async fn inspect_body(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    unlimited: bool,
) -> Result<InspectedBody, Failure> {
    let untouched = InspectedBody {
        has_body: !body.is_over(),
        ..InspectedBody::default()
    };
    if body.is_over() {
        return Ok(untouched);
    }
    let media = match parse_content_type(&parts.headers) {
        ContentType::Absent if parts.method == Method::POST => ContentType::Json,
        media => media,
    };
    match media {
        ContentType::Json => read_whole(app, parts, body, unlimited, find_model_in_json).await,
        // It goes on as it came, unless it has to be looked into.
        _ if unlimited && is_encoded(&parts.headers) => Ok(untouched),
        ContentType::Form { boundary } if unlimited => inspect_form(app, body, &boundary).await,
        ContentType::Form { boundary } => {
            read_whole(app, parts, body, unlimited, |bytes| {
                find_model_in_multipart(bytes, &boundary)
            })
            .await
        }
        ContentType::Absent | ContentType::Other => Ok(untouched),
    }
}

impl InspectedBody {
    /// The body as it goes on, edited in what was read of it; `rest` follows as it comes. `headers` are those that
    /// go with it.
    pub(super) fn into_payload(
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
                    body::strip_encoding(headers);
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
    find: impl FnOnce(&[u8]) -> ModelLookup,
) -> Result<InspectedBody, Failure> {
    let (limits, flight) = (&app.config.server, &app.inflight_bytes);
    // As it came: that is how it goes on, unless it has to be edited.
    let came = body.read_packed(limits, flight).await?;
    let came = came.hold.attach_to_bytes(came.bytes);
    let unpacked = match body::unpack_body(&parts.headers, came.clone(), limits, flight).await {
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
    Ok(InspectedBody {
        has_body: true,
        found: find(&read),
        read,
        packed,
        unpacked: was_packed,
    })
}

/// Looks at the beginning of a form. Its parts are not held back for long: a provider cannot
/// answer a form before its end.
async fn inspect_form(
    app: &App,
    body: &mut RequestBody,
    boundary: &[u8],
) -> Result<InspectedBody, Failure> {
    let mut hold = app.inflight_bytes.begin_hold();
    let mut gather = BytesGatherer::new(0);
    while gather.len() < LOOK_BYTES {
        let limit = app.config.server.body_timeout;
        let Some(chunk) = body.next_chunk(limit).await? else {
            break;
        };
        if !hold.grow(chunk.len()) {
            return Err(Failure::Busy);
        }
        gather.push(chunk);
    }
    let read = hold.attach_to_bytes(gather.finish());
    let found = find_model_in_multipart(&read[..read.len().min(LOOK_BYTES)], boundary);
    Ok(InspectedBody {
        has_body: true,
        found,
        read,
        ..InspectedBody::default()
    })
}

fn is_encoded(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}
