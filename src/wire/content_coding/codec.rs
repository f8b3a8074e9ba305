//! One content coding, undone step by step. What the libraries know of their formats stays here.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::UnpackError;

/// As the content coding `zstd` allows (RFC 9659): 8 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Window of gzip, as a power of two: 32 KiB.
const GZIP_WINDOW_LOG: u8 = 15;

/// A coding at work.
pub(super) enum Codec {
    Gzip(Decompress),
    /// `None` until the first byte tells whether a zlib header comes before the data.
    Deflate(Option<Decompress>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(zstd::stream::raw::Decoder<'static>),
}

impl Codec {
    /// `None` for a coding that is not read.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Self::Gzip(Decompress::new_gzip(GZIP_WINDOW_LOG)),
            "deflate" => Self::Deflate(None),
            "br" => {
                let alloc = StandardAlloc::default;
                // SECURITY: not `new`, which allows windows of 1 GiB.
                let state = BrotliState::new_strict(alloc(), alloc(), alloc());
                Self::Brotli(Box::new(state))
            }
            "zstd" => {
                let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
                let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG);
                decoder.set_parameter(window).ok()?;
                Self::Zstd(decoder)
            }
            _ => return None,
        })
    }

    /// The most bytes of past output that the coding keeps to refer to.
    pub(super) const fn window_bytes(&self) -> usize {
        match self {
            Self::Gzip(_) | Self::Deflate(_) => 1 << GZIP_WINDOW_LOG,
            Self::Brotli(_) => 16 << 20,
            Self::Zstd(_) => 1 << ZSTD_WINDOW_LOG,
        }
    }

    /// Prepares for what follows complete data.
    ///
    /// # Errors
    /// Nothing may follow.
    pub(super) fn restart_member(&mut self) -> Result<(), UnpackError> {
        match self {
            Self::Gzip(inflater) => *inflater = Decompress::new_gzip(GZIP_WINDOW_LOG),
            // Its decoder starts over by itself.
            Self::Zstd(_) => {}
            Self::Deflate(_) | Self::Brotli(_) => return Err(UnpackError::Damaged),
        }
        Ok(())
    }

    /// Takes some of the input, and writes what it stands for.
    ///
    /// # Errors
    /// The input is not in this coding.
    pub(super) fn decode_step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<DecodeStep, UnpackError> {
        match self {
            Self::Gzip(inflater) => inflate_step(inflater, input, output),
            Self::Deflate(inflater) => {
                // A zlib header begins with the number of its method, 8. Data without a header
                // would have a set bit there that every encoder leaves clear.
                let has_header = input.first().is_some_and(|byte| byte & 0x0f == 8);
                let inflater = inflater.get_or_insert_with(|| Decompress::new(has_header));
                inflate_step(inflater, input, output)
            }
            Self::Brotli(state) => {
                let (mut input_left, mut read) = (input.len(), 0);
                let (mut output_left, mut written, mut total) = (output.len(), 0, 0);
                let result = BrotliDecompressStream(
                    &mut input_left,
                    &mut read,
                    input,
                    &mut output_left,
                    &mut written,
                    output,
                    &mut total,
                    state,
                );
                match result {
                    BrotliResult::ResultFailure => Err(UnpackError::Damaged),
                    result => Ok(DecodeStep {
                        read,
                        written,
                        ended: matches!(result, BrotliResult::ResultSuccess),
                    }),
                }
            }
            Self::Zstd(decoder) => {
                let mut from = InBuffer::around(input);
                let mut into = OutBuffer::around(output);
                let more_wanted = decoder
                    .run(&mut from, &mut into)
                    .map_err(|_| UnpackError::Damaged)?;
                Ok(DecodeStep {
                    read: from.pos(),
                    written: into.pos(),
                    ended: more_wanted == 0,
                })
            }
        }
    }
}

/// What one step took of its input and gave.
pub(super) struct DecodeStep {
    pub(super) read: usize,
    pub(super) written: usize,
    /// The data is complete.
    pub(super) ended: bool,
}

fn inflate_step(
    inflater: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<DecodeStep, UnpackError> {
    let (read, written) = (inflater.total_in(), inflater.total_out());
    let status = inflater
        .decompress(input, output, FlushDecompress::None)
        .map_err(|_| UnpackError::Damaged)?;
    Ok(DecodeStep {
        read: (inflater.total_in() - read) as usize,
        written: (inflater.total_out() - written) as usize,
        ended: status == Status::StreamEnd,
    })
}
