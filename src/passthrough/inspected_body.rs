//! A request's body: JSON is read, to find its model; any other is not.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, header::CONTENT_TYPE, request::Parts};
use serde_json::Value;

use crate::{
    conversation::{Format, edit::Edits},
    error::Failure,
    http::{
        body::{self, RequestBody},
        tasks::run_beside_tasks,
    },
    provider::Payload,
    proxy::App,
    wire::model::{NamedModel, shallow_parse},
};

/// A body that was read whole if it is JSON, and else not at all.
#[derive(Default)]
pub(super) struct InspectedBody {
    pub(super) has_body: bool,
    pub(super) named: NamedModel,
    /// The bytes read, decompressed. They hold their share of the bytes in flight.
    pub(super) read: Bytes,
    /// The same bytes as they came, if they came compressed and may be forwarded so. They may not if the body has a compaction
    /// entry of the proxy, which became a message in `read`.
    packed: Option<Bytes>,
    /// The bytes read came compressed.
    was_packed: bool,
}

/// Reads a JSON body, also where it came compressed, and finds its model.
///
/// `unlimited`: the client may use every model. `is_ours`: the proxy itself reads the body, whatever its type says.
///
/// # Errors
/// A body that is read breaks off, passes a limit, or is not in its encoding.
pub(super) async fn inspect_body(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    unlimited: bool,
    is_ours: bool,
) -> Result<InspectedBody, Failure> {
    let is_json = is_json(parts);
    if body.is_over() || !(is_json || is_ours) {
        return Ok(InspectedBody {
            has_body: !body.is_over(),
            ..InspectedBody::default()
        });
    }
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
    let is_read = is_json || unlimited;
    let (unfolded, named) = run_beside_tasks(read.len(), || {
        let unfolded = format.unfold_compactions(&read);
        // SECURITY: a body of another type may name another model to its reader.
        let named = is_read.then(|| shallow_parse(unfolded.as_ref().unwrap_or(&read)).named);
        (unfolded, named.unwrap_or_default())
    });
    let (read, packed) = match unfolded {
        Some(unfolded) => (unfolded, None),
        None => (read, packed),
    };
    Ok(InspectedBody {
        has_body: true,
        named,
        read,
        packed,
        was_packed,
    })
}

/// Whether the body counts as JSON: also that of a `POST` without a content type, and not one with two of them.
fn is_json(parts: &Parts) -> bool {
    let mut kinds = parts.headers.get_all(CONTENT_TYPE).iter();
    let Some(kind) = kinds.next() else {
        return parts.method == Method::POST;
    };
    let kind = kind.to_str().unwrap_or_default().to_ascii_lowercase();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json_kind = kind.starts_with("application/") && kind.ends_with("+json");
    kinds.next().is_none() && (kind == "application/json" || is_json_kind)
}

impl InspectedBody {
    /// The body to forward: the bytes read, with `model` as the provider's name for the model, or all as it comes. `headers`
    /// go with it. `limit` bounds the time between two reads.
    pub(super) fn into_payload(
        self,
        model: Option<&str>,
        headers: &mut HeaderMap,
        rest: &mut RequestBody,
        limit: Duration,
    ) -> Payload {
        if !self.has_body {
            return Payload::Empty;
        }
        let mut edits = Edits::default();
        if let Some(model) = model
            && let Some(span) = self.named.find_renamed(model)
        {
            edits.replace(span, Value::from(model).to_string());
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
