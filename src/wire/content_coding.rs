//! Decompresses a body piece by piece. No I/O here.
//!
//! It reads gzip, deflate (with and without a zlib header, since some clients leave it out), br and zstd, one coding
//! per body. The caller pushes input as it comes and pulls output in small pieces, so that other tasks can run
//! between them. SECURITY: a few kilobytes can decompress to gigabytes, so the output is bounded, in bytes and as a
//! multiple of the input.

mod codec;

use bytes::{Buf, Bytes};
use http::{HeaderMap, header::CONTENT_ENCODING};

use self::codec::Codec;

/// The codings that can be read, as a value of `Accept-Encoding`.
pub const READABLE_CODINGS: &str = if cfg!(feature = "zstd") {
    "gzip, deflate, br, zstd"
} else {
    "gzip, deflate, br"
};

/// Output bytes pulled at a time.
pub const PIECE_BYTES: usize = 32 << 10;

/// Up to this output [`MAX_RATIO`] does not apply.
const SMALL_BYTES: usize = 4 << 20;

/// How many times larger than its input a body's output may be. Text and JSON reach 3 to 20, a repeated line a few
/// hundred.
pub const MAX_RATIO: usize = 500;

/// An unknown coding, or several codings: the list as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCoding(pub String);

/// Why a body cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// Damaged, cut off, followed by other bytes, or in need of a dictionary or of a window over 8 MiB (zstd) or
    /// 16 MiB (br).
    #[error("the body is not what its content encoding says")]
    Damaged,
    #[error("the body is over the size limit once decompressed")]
    TooMuch,
    /// More than [`MAX_RATIO`] times the input.
    #[error("the body decompresses to a suspicious multiple of its size")]
    Bomb,
}

/// Decompresses one body.
pub struct Unpacker {
    codec: Codec,
    state: UnpackState,
    /// Input that is not consumed yet.
    input: Bytes,
    /// The last step filled its output, so there may be more output without more input.
    output_was_full: bool,
    bytes_in: usize,
    bytes_out: usize,
    max_bytes_out: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnpackState {
    /// No input so far. An empty body is valid in every coding.
    Empty,
    Within,
    /// The data is complete. In gzip and zstd another member or frame may follow.
    Ended,
}

impl Unpacker {
    /// For a body with these headers; `None` if it is not compressed.
    ///
    /// # Errors
    /// A coding is unknown, or there are several.
    pub fn from_headers(
        headers: &HeaderMap,
        max_bytes_out: usize,
    ) -> Result<Option<Self>, UnknownCoding> {
        let values = headers.get_all(CONTENT_ENCODING).iter();
        let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let listed = values.collect::<Vec<_>>().join(", ");
        let names = listed.split(',').map(str::trim);
        let mut names =
            names.filter(|name| !matches!(&*name.to_ascii_lowercase(), "" | "identity"));
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
            max_bytes_out,
        }))
    }

    /// Adds the next bytes of the body. All output of the earlier ones must have been pulled.
    pub fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.input.is_empty(), "earlier input is consumed");
        self.bytes_in += bytes.len();
        self.input = bytes;
    }

    /// Counts the output from 0 against the bounds again.
    pub const fn restart_bound(&mut self) {
        self.bytes_out = 0;
    }

    /// Most bytes that the decoder buffers.
    pub fn max_buffered_bytes(&self) -> usize {
        self.bytes_out.min(self.codec.window_bytes()) + PIECE_BYTES
    }

    /// Writes the next output to `out`, which must not be empty. The result is the number of bytes, which may be 0,
    /// or `None` if more input is needed.
    ///
    /// # Errors
    /// The body is damaged or over a bound. Nothing more may be pulled then.
    pub fn pull_output(&mut self, out: &mut [u8]) -> Result<Option<usize>, UnpackError> {
        if self.input.is_empty() && !self.output_was_full {
            return Ok(None);
        }
        if self.state == UnpackState::Ended {
            self.codec.restart_member()?;
        }
        let step = self.codec.decode_step(&self.input, out)?;
        self.input.advance(step.read);
        self.state = if step.ended {
            UnpackState::Ended
        } else {
            UnpackState::Within
        };
        self.output_was_full = step.written == out.len() && !step.ended;
        self.bytes_out += step.written;
        if self.bytes_out > self.max_bytes_out {
            return Err(UnpackError::TooMuch);
        }
        if self.bytes_out > SMALL_BYTES.max(self.bytes_in.saturating_mul(MAX_RATIO)) {
            return Err(UnpackError::Bomb);
        }
        Ok((step.read > 0 || step.written > 0).then_some(step.written))
    }

    /// Checks that the body may end here.
    ///
    /// # Errors
    /// The body is cut off.
    pub fn check_end(&self) -> Result<(), UnpackError> {
        match self.state {
            UnpackState::Within => Err(UnpackError::Damaged),
            UnpackState::Empty | UnpackState::Ended => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
