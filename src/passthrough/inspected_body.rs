//! A request's body, read as far as it takes to find its model.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, header::CONTENT_ENCODING, request::Parts};

use crate::{
    conversation::{Format, edit::Edits},
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

/// Bytes at the beginning of a form that are searched for its model.
const LOOK_BYTES: usize = 64 << 10;

/// A body whose beginning, or all, was read.
#[derive(Default)]
pub(super) struct InspectedBody {
    pub(super) has_body: bool,
    pub(super) found: ModelLookup,
    /// The bytes read, decompressed. They hold their share of the bytes in flight.
    pub(super) read: Bytes,
    /// The same bytes as they came, where they came compressed and may be forwarded so: not with a compaction entry of
    /// the proxy, which is a message in `read`.
    packed: Option<Bytes>,
    /// The bytes read came compressed.
    was_packed: bool,
}

/// Reads as much of a body as it takes to find its model.
///
/// `unlimited`: the client may use every model. Otherwise the model must be certain, so forms are read whole too.
///
/// # Errors
/// A body that is read whole breaks off, passes a limit, or is not in its encoding.
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
        // Forwarded as it came, since no model has to be found.
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
    /// The body to forward: the bytes read, edited, followed by `rest` as it comes. `headers` go with it. `limit`
    /// bounds the time between two reads.
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
                if self.was_packed {
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
    // Kept as it came, since it is forwarded so unless it has to be edited.
    let received = body.read_packed(limits, flight).await?;
    let received = received.hold.attach_to_bytes(received.bytes);
    let unpacked = match body::unpack_body(&parts.headers, received.clone(), limits, flight).await {
        Ok(unpacked) => unpacked,
        // The provider may be able to read it all the same.
        Err(_) if unlimited => None,
        Err(failure) => return Err(failure),
    };
    let was_packed = unpacked.is_some();
    // SECURITY: a reader that ignores the encoding may see another text than one that decompresses. With a key for
    // some models, only the decompressed text is forwarded.
    let packed = (unlimited && was_packed).then(|| received.clone());
    let read = unpacked.unwrap_or(received);
    let format = Format::of_request(parts.uri.path(), &parts.headers);
    let (read, packed) = match format.unfold_compactions(&read) {
        Some(unfolded) => (unfolded, None),
        None => (read, packed),
    };
    Ok(InspectedBody {
        has_body: true,
        found: find(&read),
        read,
        packed,
        was_packed,
    })
}

/// Looks for the model at the beginning of a form. Little time is lost: no provider answers before its end.
async fn inspect_form(
    app: &App,
    body: &mut RequestBody,
    boundary: &[u8],
) -> Result<InspectedBody, Failure> {
    let mut hold = app.inflight_bytes.begin_hold();
    let mut gather = BytesGatherer::new(0);
    while gather.len() < LOOK_BYTES
        && let Some(chunk) = body.next_chunk(app.config.server.body_timeout).await?
    {
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
