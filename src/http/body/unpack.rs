//! Decompresses a body in a content coding. Yields to other tasks between pieces.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header::CONTENT_ENCODING};

use super::ReceivedBody;
use crate::{
    config::ServerConfig,
    error::Failure,
    http::limit::{Hold, InflightBytes},
    wire::content_coding::{PIECE_BYTES, UnknownCoding, UnpackError, Unpacker},
};

/// Pieces that are decompressed before other tasks may run: well under a millisecond.
const PIECES_AT_A_TIME: u32 = 8;

/// The body without its content encoding; `None` where it has none.
///
/// # Errors
/// A limit was passed, the body is not in its encoding, or the encoding is unknown.
pub async fn unpack_body(
    headers: &HeaderMap,
    body: Bytes,
    limits: &ServerConfig,
    flight: &InflightBytes,
) -> Result<Option<Bytes>, Failure> {
    let Some(unpacker) = choose_unpacker(headers, limits.max_body_bytes)? else {
        return Ok(None);
    };
    let mut unpacker = BodyUnpacker::new(unpacker, limits, flight);
    unpacker.push(body).await?;
    let unpacked = unpacker.finish_body()?;
    Ok(Some(unpacked.hold.attach_to_bytes(unpacked.bytes)))
}

/// # Errors
/// The encoding is unknown, or there are several.
pub(super) fn choose_unpacker(
    headers: &HeaderMap,
    limit: usize,
) -> Result<Option<Unpacker>, Failure> {
    Unpacker::from_headers(headers, limit).map_err(|UnknownCoding(name)| {
        Failure::UnsupportedEncoding(name.chars().take(50).collect())
    })
}

/// Decompresses a body as it arrives. Its output and the coding's window count as bytes in flight.
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

    /// Decompresses the next bytes.
    ///
    /// # Errors
    /// A limit was passed, or the bytes are not in the body's encoding.
    pub(super) async fn push(&mut self, packed: Bytes) -> Result<(), Failure> {
        self.unpacker.push(packed);
        loop {
            let length = self.unpacker.pull_output(&mut self.piece);
            let Some(length) = length.map_err(|error| self.to_failure(error))? else {
                return Ok(());
            };
            if !self.hold.grow(length) || !self.window.grow_to(self.unpacker.max_buffered_bytes()) {
                return Err(Failure::Busy);
            }
            self.text.extend_from_slice(&self.piece[..length]);
            self.pieces = self.pieces.wrapping_add(1);
            if self.pieces.is_multiple_of(PIECES_AT_A_TIME) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// Its end is missing.
    pub(super) fn finish_body(self) -> Result<ReceivedBody, Failure> {
        let end = self.unpacker.check_end();
        end.map_err(|error| self.to_failure(error))?;
        Ok(ReceivedBody {
            bytes: self.text.freeze(),
            hold: self.hold,
        })
    }

    const fn to_failure(&self, error: UnpackError) -> Failure {
        match error {
            UnpackError::Damaged => Failure::BodyDamaged,
            UnpackError::TooMuch => Failure::BodyTooLarge {
                limit: self.limits.max_body_bytes,
            },
            UnpackError::Bomb => Failure::BodyBomb,
        }
    }
}

/// Removes the content encoding from the headers of a decompressed body; `identity` may stay.
pub fn strip_encoding(headers: &mut HeaderMap) {
    // The bound does not matter: nothing is decompressed.
    if !matches!(Unpacker::from_headers(headers, 0), Ok(None)) {
        headers.remove(CONTENT_ENCODING);
    }
}
