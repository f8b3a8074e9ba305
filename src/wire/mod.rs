//! What is on the wire, whatever it says: event streams, content encodings, bodies in pieces, and where a
//! forwarded body names its model.

pub mod content_coding;
pub mod gather;
pub mod model;
pub mod shallow_parse;
pub mod sse;

use std::{convert::Infallible, io};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

/// The body of an answer on its way to the client, ours or a provider's.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is complete already.
pub fn whole_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}
