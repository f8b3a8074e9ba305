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
pub const READABLE_CODINGS: &str = "gzip, deflate, br, zstd";

/// Bytes pulled at a time.
pub const PIECE_BYTES: usize = 32 << 10;

/// A body that comes to less may have been as small as it likes.
const SMALL_BYTES: usize = 4 << 20;

/// How many times larger than what came a body may come out. Text and JSON come to 3 to 20 times,
/// one line over and over to a few hundred.
pub const MAX_RATIO: usize = 500;

/// A coding that is not read, or several of them: the list as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCoding(pub String);

/// Why a body cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
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
    state: UnpackState,
    /// What came and is not used up.
    input: Bytes,
    /// The last step filled its output: more may come out without more input.
    output_was_full: bool,
    /// Bytes that came.
    bytes_in: usize,
    /// Bytes that came out.
    bytes_out: usize,
    /// Bytes that may come out.
    bound: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnpackState {
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
    pub fn from_headers(headers: &HeaderMap, bound: usize) -> Result<Option<Self>, UnknownCoding> {
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
        let codec = codec.ok_or(UnknownCoding(listed))?;
        Ok(Some(Self {
            codec,
            state: UnpackState::Empty,
            input: Bytes::new(),
            output_was_full: false,
            bytes_in: 0,
            bytes_out: 0,
            bound,
        }))
    }

    /// The next bytes of the body; all of those before must have been pulled out.
    pub fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.input.is_empty(), "what was pushed before is used up");
        self.bytes_in += bytes.len();
        self.input = bytes;
    }

    /// What comes out counts anew against the bound from here on.
    pub const fn restart_bound(&mut self) {
        self.bytes_out = 0;
    }

    /// Bytes that the coding keeps to itself, at most.
    pub fn max_buffered_bytes(&self) -> usize {
        self.bytes_out.min(self.codec.window_bytes()) + PIECE_BYTES
    }

    /// Writes the next piece of what comes out to `out`, which must not be empty. Gives the number of bytes,
    /// 0 included; `None`: there is nothing more without more input.
    ///
    /// # Errors
    /// It cannot be unpacked, or only to more than is taken. Nothing more may be pulled then.
    pub fn pull_output(&mut self, out: &mut [u8]) -> Result<Option<usize>, UnpackError> {
        if self.input.is_empty() && !self.output_was_full {
            return Ok(None);
        }
        if self.state == UnpackState::Ended {
            self.codec.restart_member()?;
        }
        let step = self.codec.decode_step(&self.input, out)?;
        self.input.advance(step.read);
        self.state = match step.ended {
            true => UnpackState::Ended,
            false => UnpackState::Within,
        };
        self.output_was_full = step.written == out.len() && !step.ended;
        self.bytes_out += step.written;
        if self.bytes_out > self.bound {
            return Err(UnpackError::TooMuch);
        }
        if self.bytes_out > SMALL_BYTES && self.bytes_out > self.bytes_in.saturating_mul(MAX_RATIO)
        {
            return Err(UnpackError::Bomb);
        }
        Ok((step.read > 0 || step.written > 0).then_some(step.written))
    }

    /// Looks whether the body may end here.
    ///
    /// # Errors
    /// It is cut off.
    pub fn check_end(&self) -> Result<(), UnpackError> {
        match self.state {
            UnpackState::Within => Err(UnpackError::Damaged),
            UnpackState::Empty | UnpackState::Ended => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
