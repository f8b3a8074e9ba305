//! One content coding, undone step by step. What the libraries know of their formats stays here.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

/// As the content coding `zstd` allows (RFC 9659): 8 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Window of gzip, as a power of two: 32 KiB.
const GZIP_WINDOW_LOG: u8 = 15;

/// The data is not in its coding.
#[derive(Debug)]
pub(super) struct Damaged;

pub(super) struct Decoder {
    codec: Codec,
    state: State,
    /// The last step filled its output: more may come out without more input.
    output_was_full: bool,
}

enum Codec {
    Gzip(Decompress),
    /// `None` until the first byte tells whether a zlib header comes before the data.
    Deflate(Option<Decompress>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(zstd::stream::raw::Decoder<'static>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing came. An empty body is one in every coding.
    Empty,
    Within,
    /// The data is complete. In gzip and zstd another member or frame may follow.
    Ended,
}

impl Decoder {
    /// `None` for a coding that is not read.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let codec = match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Codec::Gzip(Decompress::new_gzip(GZIP_WINDOW_LOG)),
            "deflate" => Codec::Deflate(None),
            "br" => {
                let alloc = StandardAlloc::default;
                // SECURITY: not `new`, which allows windows of 1 GiB.
                let state = BrotliState::new_strict(alloc(), alloc(), alloc());
                Codec::Brotli(Box::new(state))
            }
            "zstd" => {
                let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
                let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG);
                decoder.set_parameter(window).ok()?;
                Codec::Zstd(decoder)
            }
            _ => return None,
        };
        Some(Self {
            codec,
            state: State::Empty,
            output_was_full: false,
        })
    }

    /// Takes some of the input and gives the number of bytes written to `output`, 0 included.
    /// `None`: the input is used up.
    ///
    /// # Errors
    /// The input is not in this coding, or follows data that is complete.
    pub(super) fn decode(
        &mut self,
        input: &mut Bytes,
        output: &mut [u8],
    ) -> Result<Option<usize>, Damaged> {
        if input.is_empty() && !self.output_was_full {
            return Ok(None);
        }
        if self.state == State::Ended {
            self.codec.restart()?;
        }
        let step = self.codec.run(input, output)?;
        input.advance(step.read);
        self.state = if step.ended {
            State::Ended
        } else {
            State::Within
        };
        self.output_was_full = step.written == output.len() && !step.ended;
        Ok((step.read > 0 || step.written > 0).then_some(step.written))
    }

    /// Whether the body may end here.
    pub(super) fn may_end(&self) -> bool {
        self.state != State::Within
    }

    /// The most bytes of past output that the coding keeps to refer to.
    pub(super) const fn window(&self) -> usize {
        match self.codec {
            Codec::Gzip(_) | Codec::Deflate(_) => 1 << GZIP_WINDOW_LOG,
            Codec::Brotli(_) => 16 << 20,
            Codec::Zstd(_) => 1 << ZSTD_WINDOW_LOG,
        }
    }
}

struct Step {
    read: usize,
    written: usize,
    /// The data is complete.
    ended: bool,
}

impl Codec {
    /// Prepares for what follows complete data.
    fn restart(&mut self) -> Result<(), Damaged> {
        match self {
            Self::Gzip(inflater) => *inflater = Decompress::new_gzip(GZIP_WINDOW_LOG),
            // Its decoder starts over by itself.
            Self::Zstd(_) => {}
            Self::Deflate(_) | Self::Brotli(_) => return Err(Damaged),
        }
        Ok(())
    }

    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Damaged> {
        match self {
            Self::Gzip(inflater) => inflate(inflater, input, output),
            Self::Deflate(inflater) => {
                // A zlib header begins with the number of its method, 8. Data without a header
                // would have a set bit there that every encoder leaves clear.
                let has_header = input.first().is_some_and(|byte| byte & 0x0f == 8);
                let inflater = inflater.get_or_insert_with(|| Decompress::new(has_header));
                inflate(inflater, input, output)
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
                    BrotliResult::ResultFailure => Err(Damaged),
                    result => Ok(Step {
                        read,
                        written,
                        ended: matches!(result, BrotliResult::ResultSuccess),
                    }),
                }
            }
            Self::Zstd(decoder) => {
                let mut from = InBuffer::around(input);
                let mut into = OutBuffer::around(output);
                let more_wanted = decoder.run(&mut from, &mut into).map_err(|_| Damaged)?;
                Ok(Step {
                    read: from.pos(),
                    written: into.pos(),
                    ended: more_wanted == 0,
                })
            }
        }
    }
}

fn inflate(inflater: &mut Decompress, input: &[u8], output: &mut [u8]) -> Result<Step, Damaged> {
    let (read, written) = (inflater.total_in(), inflater.total_out());
    let status = inflater
        .decompress(input, output, FlushDecompress::None)
        .map_err(|_| Damaged)?;
    Ok(Step {
        read: (inflater.total_in() - read) as usize,
        written: (inflater.total_out() - written) as usize,
        ended: status == Status::StreamEnd,
    })
}
