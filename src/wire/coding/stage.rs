//! One coding, undone step by step. What the libraries know of their formats stays here.

use brotli::{BrotliDecompressStream, BrotliResult, BrotliState, enc::StandardAlloc};
use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::gzip::Gzip;

/// As the content coding `zstd` allows (RFC 9659): 8 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;

pub(super) enum Stage {
    Gzip(Box<Gzip>),
    Deflate(Deflate),
    Brotli(Box<Brotli>),
    Zstd(Zstd),
}

/// What one step came to.
pub(super) enum Step {
    /// So many bytes came out; 0 at the end of a member or frame.
    Made(usize),
    /// The input is used up.
    Wants,
}

/// This is not what the coding says, or it is cut off.
#[derive(Debug)]
pub(super) struct Damaged;

impl Stage {
    /// `None` for a coding that is not read.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Self::Gzip(Box::new(Gzip::new())),
            "deflate" => Self::Deflate(Deflate::Unknown(None)),
            "br" => Self::Brotli(Box::new(Brotli::new())),
            "zstd" => Self::Zstd(Zstd::new()?),
            _ => return None,
        })
    }

    /// Takes some of the input, and gives something, or all of the input.
    pub(super) fn step(&mut self, input: &mut Bytes, out: &mut [u8]) -> Result<Step, Damaged> {
        match self {
            Self::Gzip(gzip) => gzip.step(input, out),
            Self::Deflate(deflate) => deflate.step(input, out),
            Self::Brotli(brotli) => brotli.step(input, out),
            Self::Zstd(zstd) => zstd.step(input, out),
        }
    }

    /// Whether what came up to now is whole.
    pub(super) const fn may_end(&self) -> bool {
        match self {
            Self::Gzip(gzip) => gzip.between_members(),
            Self::Deflate(deflate) => matches!(deflate, Deflate::Over),
            Self::Brotli(brotli) => brotli.over,
            Self::Zstd(zstd) => !zstd.within,
        }
    }

    /// Bytes that are kept of what came out, to be referred to.
    pub(super) const fn window(&self) -> usize {
        match self {
            Self::Gzip(_) | Self::Deflate(_) => 32 << 10,
            Self::Brotli(_) => 16 << 20,
            Self::Zstd(_) => 1 << ZSTD_WINDOW_LOG,
        }
    }
}

/// Gives the bytes made, and whether the data ended.
pub(super) fn inflate(
    inflate: &mut Decompress,
    input: &mut Bytes,
    out: &mut [u8],
) -> Result<(usize, bool), Damaged> {
    let (taken, made) = (inflate.total_in(), inflate.total_out());
    let status = inflate
        .decompress(input, out, FlushDecompress::None)
        .map_err(|_| Damaged)?;
    input.advance((inflate.total_in() - taken) as usize);
    let made = (inflate.total_out() - made) as usize;
    Ok((made, status == Status::StreamEnd))
}

/// What follows the end of data that can end only once.
fn nothing(input: &Bytes) -> Result<Step, Damaged> {
    if input.is_empty() {
        Ok(Step::Wants)
    } else {
        Err(Damaged)
    }
}

pub(super) enum Deflate {
    /// The first byte, which with the second tells whether there is a zlib head.
    Unknown(Option<u8>),
    Known(Box<Decompress>),
    Over,
}

impl Deflate {
    fn step(&mut self, input: &mut Bytes, out: &mut [u8]) -> Result<Step, Damaged> {
        if let Self::Unknown(first) = self {
            if input.is_empty() {
                return Ok(Step::Wants);
            }
            let byte = input[0];
            let Some(first) = *first else {
                // Deflated data of one byte is none.
                input.advance(1);
                *first = Some(byte);
                return Ok(Step::Made(0));
            };
            let zlib = first & 0x0f == 8
                && first >> 4 <= 7
                && u16::from_be_bytes([first, byte]).is_multiple_of(31);
            let mut inflater = Decompress::new(zlib);
            let (_, ended) = inflate(&mut inflater, &mut Bytes::from(vec![first]), out)?;
            *self = if ended {
                Self::Over
            } else {
                Self::Known(Box::new(inflater))
            };
        }
        let Self::Known(inflater) = self else {
            return nothing(input);
        };
        let (made, ended) = inflate(inflater, input, out)?;
        if ended {
            *self = Self::Over;
        }
        match (made, &self) {
            (0, Self::Over) => nothing(input),
            (0, _) => Ok(Step::Wants),
            _ => Ok(Step::Made(made)),
        }
    }
}

pub(super) struct Brotli {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    over: bool,
}

impl Brotli {
    fn new() -> Self {
        let alloc = StandardAlloc::default;
        // SECURITY: not `new`, which allows windows of 1 GiB.
        let state = BrotliState::new_strict(alloc(), alloc(), alloc());
        Self { state, over: false }
    }

    fn step(&mut self, input: &mut Bytes, out: &mut [u8]) -> Result<Step, Damaged> {
        if self.over {
            return nothing(input);
        }
        let (mut left, mut taken) = (input.len(), 0);
        let (mut room, mut made, mut total) = (out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut taken,
            input,
            &mut room,
            &mut made,
            out,
            &mut total,
            &mut self.state,
        );
        input.advance(taken);
        match result {
            BrotliResult::ResultFailure => return Err(Damaged),
            BrotliResult::ResultSuccess => self.over = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        match made {
            0 if self.over => nothing(input),
            0 => Ok(Step::Wants),
            _ => Ok(Step::Made(made)),
        }
    }
}

pub(super) struct Zstd {
    decoder: Decoder<'static>,
    /// A frame was begun and is not over.
    within: bool,
    /// The last step filled its room: there may be more.
    full: bool,
}

impl Zstd {
    fn new() -> Option<Self> {
        let mut decoder = Decoder::new().ok()?;
        let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG);
        decoder.set_parameter(window).ok()?;
        Some(Self {
            decoder,
            within: false,
            full: false,
        })
    }

    fn step(&mut self, input: &mut Bytes, out: &mut [u8]) -> Result<Step, Damaged> {
        if input.is_empty() && !(self.within && self.full) {
            return Ok(Step::Wants);
        }
        let mut from = InBuffer::around(input);
        let mut into = OutBuffer::around(out);
        let left = self.decoder.run(&mut from, &mut into);
        let (taken, made) = (from.pos(), into.pos());
        let room = into.capacity() - made;
        input.advance(taken);
        self.within = left.map_err(|_| Damaged)? > 0;
        self.full = room == 0;
        if made == 0 && self.within && input.is_empty() {
            return Ok(Step::Wants);
        }
        Ok(Step::Made(made))
    }
}
