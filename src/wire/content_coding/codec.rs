//! The decoders of the content codings, behind one interface.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};
#[cfg(feature = "zstd")]
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::UnpackError;

/// 8 MiB as a power of two, which the content coding `zstd` allows (RFC 9659).
#[cfg(feature = "zstd")]
const ZSTD_WINDOW_LOG: u32 = 23;
/// 32 KiB as a power of two.
const GZIP_WINDOW_LOG: u8 = 15;

pub(super) enum Codec {
    Gzip(Decompress),
    /// `None` until the first byte shows whether there is a zlib header.
    Deflate(Option<Decompress>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    #[cfg(feature = "zstd")]
    Zstd(zstd::stream::raw::Decoder<'static>),
}

impl Codec {
    /// `None` for an unknown coding.
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
            #[cfg(feature = "zstd")]
            "zstd" => {
                let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
                let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG);
                decoder.set_parameter(window).ok()?;
                Self::Zstd(decoder)
            }
            _ => return None,
        })
    }

    /// Most bytes of past output that the decoder keeps.
    pub(super) const fn window_bytes(&self) -> usize {
        match self {
            Self::Gzip(_) | Self::Deflate(_) => 1 << GZIP_WINDOW_LOG,
            Self::Brotli(_) => 16 << 20,
            #[cfg(feature = "zstd")]
            Self::Zstd(_) => 1 << ZSTD_WINDOW_LOG,
        }
    }

    /// Prepares for another member or frame behind complete data.
    ///
    /// # Errors
    /// The coding allows only one.
    pub(super) fn restart_member(&mut self) -> Result<(), UnpackError> {
        match self {
            Self::Gzip(inflater) => *inflater = Decompress::new_gzip(GZIP_WINDOW_LOG),
            // This decoder starts over by itself.
            #[cfg(feature = "zstd")]
            Self::Zstd(_) => {}
            Self::Deflate(_) | Self::Brotli(_) => return Err(UnpackError::Damaged),
        }
        Ok(())
    }

    /// Consumes some input and writes its output.
    ///
    /// # Errors
    /// The input is not valid in this coding.
    pub(super) fn decode_step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<DecodeStep, UnpackError> {
        match self {
            Self::Gzip(inflater) => inflate_step(inflater, input, output),
            Self::Deflate(inflater) => {
                // A zlib header begins with the number of its method, 8. In data without a header this would set a bit
                // that every encoder leaves clear.
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
                if matches!(result, BrotliResult::ResultFailure) {
                    return Err(UnpackError::Damaged);
                }
                Ok(DecodeStep {
                    read,
                    written,
                    ended: matches!(result, BrotliResult::ResultSuccess),
                })
            }
            #[cfg(feature = "zstd")]
            Self::Zstd(decoder) => {
                let mut from = InBuffer::around(input);
                let mut into = OutBuffer::around(output);
                let missing = decoder.run(&mut from, &mut into);
                Ok(DecodeStep {
                    ended: missing.map_err(|_| UnpackError::Damaged)? == 0,
                    read: from.pos(),
                    written: into.pos(),
                })
            }
        }
    }
}

/// The result of one step, in bytes of input and output.
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
    let status = inflater.decompress(input, output, FlushDecompress::None);
    Ok(DecodeStep {
        ended: status.map_err(|_| UnpackError::Damaged)? == Status::StreamEnd,
        read: (inflater.total_in() - read) as usize,
        written: (inflater.total_out() - written) as usize,
    })
}
