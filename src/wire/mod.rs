//! What is on the wire: a body's bytes, and where the conversation lies in them.
//!
//! Nothing here copies or re-serialises a body: an index holds spans of it, an edit replaces
//! spans of it. What is particular to one wire format stays in its own file ([`chat`] for chat
//! completions); the guard knows conversations only.

pub mod coding;
pub mod event;
pub mod fault;
pub mod gather;
pub mod model;
pub mod shallow_parse;
pub mod usage;

use std::{convert::Infallible, io};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

/// The body of an answer on its way to the client, ours or a provider's.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is complete already.
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}
