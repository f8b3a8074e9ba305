//! A body in a content coding, unpacked. Between pieces others may run.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header::CONTENT_ENCODING};

use super::Received;
use crate::{
    config::ServerConfig,
    error::Failure,
    http::limit::Flight,
    wire::coding::{PIECE, Unknown, Unpacker, Unreadable},
};

/// Pieces that are unpacked before others may run: well under a millisecond.
const PIECES_AT_A_TIME: u32 = 8;

/// What a body is without its encoding; `None` where it has none.
///
/// # Errors
/// A limit was passed, it is not what its encoding says, or the encoding is not one we read.
pub async fn unpacked(
    headers: &HeaderMap,
    body: Bytes,
    limits: &ServerConfig,
    flight: &Flight,
) -> Result<Option<Bytes>, Failure> {
    let Some(unpacker) = unpacker(headers, limits.max_body_bytes)? else {
        return Ok(None);
    };
    let unpacked = unpack(unpacker, body, limits, flight).await?;
    Ok(Some(unpacked.hold.keep(unpacked.bytes)))
}

/// # Errors
/// The encoding is not one we read, or there are several.
pub(super) fn unpacker(headers: &HeaderMap, limit: usize) -> Result<Option<Unpacker>, Failure> {
    Unpacker::of(headers, limit)
        .map_err(|Unknown(named)| Failure::Encoded(named.chars().take(50).collect()))
}

/// Unpacks a body that is all there. What comes out holds its room as it grows; so does the window of the
/// coding while that is at work.
///
/// # Errors
/// A limit was passed, or it is not what its encoding says.
pub(super) async fn unpack(
    mut unpacker: Unpacker,
    body: Bytes,
    limits: &ServerConfig,
    flight: &Flight,
) -> Result<Received, Failure> {
    let limit = limits.max_body_bytes;
    let refuse = |why| match why {
        Unreadable::Damaged => Failure::BodyDamaged,
        Unreadable::TooMuch => Failure::BodyTooLarge { limit },
        Unreadable::Bomb => Failure::BodyBomb,
    };
    let (mut hold, mut window) = (flight.hold(), flight.hold());
    let (mut text, mut piece) = (BytesMut::new(), vec![0; PIECE]);
    let mut pieces = 0_u32;
    unpacker.push(body);
    while let Some(made) = unpacker.pull(&mut piece).map_err(refuse)? {
        if !hold.grow(made) || !window.grow_to(unpacker.kept()) {
            return Err(Failure::Busy);
        }
        text.extend_from_slice(&piece[..made]);
        pieces = pieces.wrapping_add(1);
        if pieces.is_multiple_of(PIECES_AT_A_TIME) {
            tokio::task::yield_now().await;
        }
    }
    unpacker.end().map_err(refuse)?;
    let bytes = text.freeze();
    Ok(Received { bytes, hold })
}

/// Takes the encoding out of the headers of a body that has none any more; `identity`, which is
/// none, may stay.
pub fn without_encoding(headers: &mut HeaderMap) {
    // A bound of any size: nothing is unpacked.
    if !matches!(Unpacker::of(headers, 0), Ok(None)) {
        headers.remove(CONTENT_ENCODING);
    }
}
