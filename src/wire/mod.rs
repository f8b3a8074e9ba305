//! Transport of bodies, whatever their format: event streams, content codings, bodies in pieces, lists and keys in headers,
//! and the model that a request names.

pub mod content_coding;
pub mod gather;
pub mod model;
pub mod sse;

use std::{convert::Infallible, io};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

/// The body of an answer on its way to the client, from the proxy or a provider.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

pub fn whole_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// The items of a header that holds a list, on one line or several. A value that is no text has none.
pub fn split_header_list<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// The key of a `Bearer` credential.
pub fn parse_bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer ");
    is_bearer.then(|| key.trim_ascii())
}
