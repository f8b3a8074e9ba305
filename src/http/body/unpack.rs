//! A body in a content coding, unpacked. Between pieces others may run.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header::CONTENT_ENCODING};

use super::ReceivedBody;
use crate::{
    config::ServerConfig,
    error::Failure,
    http::limit::{Hold, InflightBytes},
    wire::content_coding::{PIECE_BYTES, UnknownCoding, UnpackError, Unpacker},
};

/// Pieces that are unpacked before others may run: well under a millisecond.
const PIECES_AT_A_TIME: u32 = 8;

/// What a body is without its encoding; `None` where it has none.
///
/// # Errors
/// A limit was passed, it is not what its encoding says, or the encoding is not one we read.
pub async fn unpack_body(
    headers: &HeaderMap,
    body: Bytes,
    limits: &ServerConfig,
    flight: &InflightBytes,
) -> Result<Option<Bytes>, Failure> {
    let Some(unpacker) = choose_unpacker(headers, limits.max_body_bytes)? else {
        return Ok(None);
    };
    let mut unpacking = BodyUnpacker::new(unpacker, limits, flight);
    unpacking.push(body).await?;
    let unpacked = unpacking.finish_body()?;
    Ok(Some(unpacked.hold.attach_to_bytes(unpacked.bytes)))
}

/// # Errors
/// The encoding is not one we read, or there are several.
pub(super) fn choose_unpacker(
    headers: &HeaderMap,
    limit: usize,
) -> Result<Option<Unpacker>, Failure> {
    Unpacker::from_headers(headers, limit).map_err(|UnknownCoding(named)| {
        Failure::UnsupportedEncoding(named.chars().take(50).collect())
    })
}

/// A body that is unpacked as it comes. What comes out holds its room as it grows; so does the window of the
/// coding while that is at work. What came is not kept.
pub(super) struct BodyUnpacker<'a> {
    unpacker: Unpacker,
    limits: &'a ServerConfig,
    hold: Hold,
    window: Hold,
    text: BytesMut,
    piece: Vec<u8>,
    pieces: u32,
}

impl<'a> BodyUnpacker<'a> {
    pub(super) fn new(
        unpacker: Unpacker,
        limits: &'a ServerConfig,
        flight: &InflightBytes,
    ) -> Self {
        Self {
            unpacker,
            limits,
            hold: flight.begin_hold(),
            window: flight.begin_hold(),
            text: BytesMut::new(),
            piece: vec![0; PIECE_BYTES],
            pieces: 0,
        }
    }

    /// Unpacks what comes next.
    ///
    /// # Errors
    /// A limit was passed, or it is not what its encoding says.
    pub(super) async fn push(&mut self, packed: Bytes) -> Result<(), Failure> {
        self.unpacker.push(packed);
        loop {
            let made = self.unpacker.pull_output(&mut self.piece);
            let Some(made) = made.map_err(|why| self.to_failure(why))? else {
                return Ok(());
            };
            if !self.hold.grow(made) || !self.window.grow_to(self.unpacker.max_buffered_bytes()) {
                return Err(Failure::Busy);
            }
            self.text.extend_from_slice(&self.piece[..made]);
            self.pieces = self.pieces.wrapping_add(1);
            if self.pieces.is_multiple_of(PIECES_AT_A_TIME) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// Its end is missing.
    pub(super) fn finish_body(self) -> Result<ReceivedBody, Failure> {
        self.unpacker
            .check_end()
            .map_err(|why| self.to_failure(why))?;
        Ok(ReceivedBody {
            bytes: self.text.freeze(),
            hold: self.hold,
        })
    }

    const fn to_failure(&self, why: UnpackError) -> Failure {
        match why {
            UnpackError::Damaged => Failure::BodyDamaged,
            UnpackError::TooMuch => Failure::BodyTooLarge {
                limit: self.limits.max_body_bytes,
            },
            UnpackError::Bomb => Failure::BodyBomb,
        }
    }
}

/// Takes the encoding out of the headers of a body that has none any more; `identity`, which is
/// none, may stay.
pub fn strip_encoding(headers: &mut HeaderMap) {
    // A bound of any size: nothing is unpacked.
    if !matches!(Unpacker::from_headers(headers, 0), Ok(None)) {
        headers.remove(CONTENT_ENCODING);
    }
}
