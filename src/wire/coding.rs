//! The content coding of a body, undone piece by piece.
//!
//! gzip, deflate (with a zlib header, and without, as some send it), br and zstd; one of them, since nobody
//! compresses what is compressed. A body is pushed as it comes and pulled out in pieces, each of which costs
//! little, so that the caller can let others run between them. SECURITY: a few kilobytes can stand for
//! gigabytes. So the output is bounded, in bytes and as a multiple of what came. No I/O here.

mod codec;

use bytes::{Buf, Bytes};
use http::{HeaderMap, header::CONTENT_ENCODING};

use self::codec::Codec;

/// What we read, as `Accept-Encoding` says it.
pub const READ: &str = "gzip, deflate, br, zstd";

/// Bytes pulled at a time.
pub const PIECE: usize = 32 << 10;

/// A body that comes to less may have been as small as it likes.
const SMALL: usize = 4 << 20;

/// How many times larger than what came a body may come out. Text and JSON come to 3 to 20 times,
/// one line over and over to a few hundred.
pub const MAX_RATIO: usize = 500;

/// A coding that is not read, or several of them: the list as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

/// Why a body cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Damaged, cut off, followed by something else, or in need of a dictionary or of a window
    /// beyond 8 MiB (zstd) or 16 MiB (br).
    #[error("the body is not what its content encoding says")]
    Damaged,
    #[error("the body comes to more than is taken")]
    TooMuch,
    /// More than [`MAX_RATIO`] times what came.
    #[error("the body comes to a suspicious multiple of its size")]
    Bomb,
}

/// Undoes the coding of one body.
pub struct Unpacker {
    codec: Codec,
    state: State,
    /// What came and is not used up.
    input: Bytes,
    /// The last step filled its output: more may come out without more input.
    output_was_full: bool,
    /// Bytes that came.
    came: usize,
    /// Bytes that came out.
    made: usize,
    /// Bytes that may come out.
    bound: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing came. An empty body is one in every coding.
    Empty,
    Within,
    /// The data is complete. In gzip and zstd another member or frame may follow.
    Ended,
}

impl Unpacker {
    /// For a body with these headers, of which at most `bound` bytes are taken; `None` where
    /// nothing is to be undone.
    ///
    /// # Errors
    /// A coding is unknown, or there are several.
    pub fn of(headers: &HeaderMap, bound: usize) -> Result<Option<Self>, Unknown> {
        let listed: Vec<_> = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        let listed = listed.join(", ");
        let names = listed.split(',').map(str::trim);
        let mut names =
            names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
        let Some(name) = names.next() else {
            return Ok(None);
        };
        let codec = Codec::from_name(name).filter(|_| names.next().is_none());
        let codec = codec.ok_or(Unknown(listed))?;
        Ok(Some(Self {
            codec,
            state: State::Empty,
            input: Bytes::new(),
            output_was_full: false,
            came: 0,
            made: 0,
            bound,
        }))
    }

    /// The next bytes of the body; all of those before must have been pulled out.
    pub fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.input.is_empty(), "what was pushed before is used up");
        self.came += bytes.len();
        self.input = bytes;
    }

    /// What comes out counts anew against the bound from here on.
    pub const fn renew(&mut self) {
        self.made = 0;
    }

    /// Bytes that the coding keeps to itself, at most.
    pub fn kept(&self) -> usize {
        self.made.min(self.codec.window()) + PIECE
    }

    /// Writes the next piece of what comes out to `out`, which must not be empty. Gives the number of bytes,
    /// 0 included; `None`: there is nothing more without more input.
    ///
    /// # Errors
    /// It cannot be unpacked, or only to more than is taken. Nothing more may be pulled then.
    pub fn pull(&mut self, out: &mut [u8]) -> Result<Option<usize>, Unreadable> {
        if self.input.is_empty() && !self.output_was_full {
            return Ok(None);
        }
        if self.state == State::Ended {
            self.codec.restart()?;
        }
        let step = self.codec.run(&self.input, out)?;
        self.input.advance(step.read);
        self.state = match step.ended {
            true => State::Ended,
            false => State::Within,
        };
        self.output_was_full = step.written == out.len() && !step.ended;
        self.made += step.written;
        if self.made > self.bound {
            return Err(Unreadable::TooMuch);
        }
        if self.made > SMALL && self.made > self.came.saturating_mul(MAX_RATIO) {
            return Err(Unreadable::Bomb);
        }
        Ok((step.read > 0 || step.written > 0).then_some(step.written))
    }

    /// Looks whether the body may end here.
    ///
    /// # Errors
    /// It is cut off.
    pub fn end(&self) -> Result<(), Unreadable> {
        match self.state {
            State::Within => Err(Unreadable::Damaged),
            State::Empty | State::Ended => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
