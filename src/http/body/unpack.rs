//! A body in a content coding, unpacked as it comes.
//!
//! What comes out is bounded like a body that came as it is, and holds its room as it grows; so do
//! the windows of the codings while they are at work. Between pieces others may run.

use bytes::{Bytes, BytesMut};
use hyper::body::Incoming;

use super::next;
use crate::{
    config::ServerConfig,
    error::Failure,
    http::limit::{Flight, Hold},
    wire::coding::{PIECE, Pulled, Unpacker, Unreadable},
};

/// Pieces that are unpacked before others may run: well under a millisecond.
const PIECES_AT_A_TIME: u32 = 8;

pub(super) struct Unpacking<'a> {
    unpacker: Unpacker,
    limits: &'a ServerConfig,
    text: BytesMut,
    hold: Hold,
    /// Room for what the codings keep to themselves.
    kept: Hold,
    kept_bytes: usize,
    pieces: u32,
}

impl<'a> Unpacking<'a> {
    pub(super) fn new(unpacker: Unpacker, limits: &'a ServerConfig, flight: &Flight) -> Self {
        Self {
            unpacker,
            limits,
            text: BytesMut::new(),
            hold: flight.hold(),
            kept: flight.hold(),
            kept_bytes: 0,
            pieces: 0,
        }
    }

    /// Reads and unpacks all of a body.
    ///
    /// # Errors
    /// A limit was passed, the body broke off, or it is not what its encoding says.
    pub(super) async fn read(mut self, body: &mut Incoming) -> Result<(Bytes, Hold), Failure> {
        let limit = self.limits.max_body_bytes;
        let mut came = 0;
        let mut piece = vec![0; PIECE];
        while let Some(chunk) = next(body, self.limits.body_timeout).await? {
            came += chunk.len();
            if came > limit {
                return Err(Failure::BodyTooLarge { limit });
            }
            self.unpacker.push(chunk);
            self.pull(&mut piece).await?;
        }
        self.unpacker.end();
        self.pull(&mut piece).await?;
        Ok((self.text.freeze(), self.hold))
    }

    /// Unpacks a body that is all there.
    ///
    /// # Errors
    /// A limit was passed, or it is not what its encoding says.
    pub(super) async fn all(mut self, body: Bytes) -> Result<(Bytes, Hold), Failure> {
        let mut piece = vec![0; PIECE];
        self.unpacker.push(body);
        self.pull(&mut piece).await?;
        self.unpacker.end();
        self.pull(&mut piece).await?;
        Ok((self.text.freeze(), self.hold))
    }

    /// Takes out all that can be had of what came.
    async fn pull(&mut self, piece: &mut [u8]) -> Result<(), Failure> {
        loop {
            let pulled = self.unpacker.pull(piece).map_err(|why| self.refusal(why))?;
            let Pulled::Bytes(made) = pulled else {
                return Ok(());
            };
            let kept = self.unpacker.kept();
            let more = kept.saturating_sub(self.kept_bytes);
            if !self.hold.grow(made) || !self.kept.grow(more) {
                return Err(Failure::Busy);
            }
            self.kept_bytes += more;
            self.text.extend_from_slice(&piece[..made]);
            self.pieces += 1;
            if self.pieces.is_multiple_of(PIECES_AT_A_TIME) {
                tokio::task::yield_now().await;
            }
        }
    }

    const fn refusal(&self, why: Unreadable) -> Failure {
        match why {
            Unreadable::Damaged => Failure::BodyDamaged,
            Unreadable::TooMuch => Failure::BodyTooLarge {
                limit: self.limits.max_body_bytes,
            },
            Unreadable::Bomb => Failure::BodyBomb,
        }
    }
}
