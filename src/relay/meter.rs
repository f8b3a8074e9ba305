//! The prompt tokens that a client reads, where its own meter is to see the conversation it sent.
//!
//! Bytes on their way to the client go in, the same bytes come out, but for two numbers of each
//! `usage`: `prompt_tokens` and `total_tokens` grow by what was left out of the request. Works byte
//! by byte, so that nothing waits for the end of its event: held is only a number of which the last
//! digit is not known. Stands behind the tap: health sees what the provider said.

mod walk;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};

use self::walk::{Does, Walk};
use super::whole::unpacked;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Edits a stream of events.
pub(super) struct Meter {
    lines: Lines,
    pen: Pen,
}

impl Meter {
    /// `None` where nothing was left out.
    pub(super) fn new(left_out: Option<u32>) -> Option<Self> {
        left_out.filter(|tokens| *tokens > 0).map(|tokens| Self {
            lines: Lines::default(),
            pen: Pen::new(tokens),
        })
    }

    /// The answer that goes on with this one was given to a request of which so much was left out.
    pub(super) fn turn(&mut self, left_out: Option<u32>) {
        self.pen.tokens = left_out.unwrap_or(0);
    }

    /// Gives the bytes that can go on.
    pub(super) fn push(&mut self, bytes: Bytes) -> Bytes {
        let lines = &mut self.lines;
        self.pen.edit(bytes, |byte, walk| lines.take(byte, walk))
    }

    /// What is still held: the stream is over.
    pub(super) fn finish(mut self) -> Bytes {
        self.pen.walk.release().into()
    }
}

/// A whole answer with the prompt tokens of what the client sent; its headers no longer speak of
/// what it was packed in where it is edited. With nothing left out, or where it cannot be read, it
/// stays as it is.
pub fn received(headers: &mut HeaderMap, body: Bytes, left_out: Option<u32>) -> Bytes {
    let Some(tokens) = left_out.filter(|tokens| *tokens > 0) else {
        return body;
    };
    let Some(text) = unpacked(headers, &body) else {
        return body;
    };
    let mut bom = if text.starts_with(BOM) { BOM.len() } else { 0 };
    let mut pen = Pen::new(tokens);
    let edited = pen.edit(text.clone(), |byte, walk| match bom {
        0 => walk.take(byte),
        _ => {
            bom -= 1;
            Does::Passes
        }
    });
    // A number at the very end is no answer.
    if edited == text || !pen.walk.release().is_empty() {
        return body;
    }
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    edited
}

/// Writes the bytes anew where a number changes.
struct Pen {
    tokens: u32,
    walk: Walk,
}

impl Pen {
    fn new(tokens: u32) -> Self {
        Self {
            tokens,
            walk: Walk::default(),
        }
    }

    /// `take` gives each byte to the walk, or passes it by.
    fn edit(&mut self, bytes: Bytes, mut take: impl FnMut(u8, &mut Walk) -> Does) -> Bytes {
        let mut anew: Option<BytesMut> = None;
        // Bytes before this one are written, or held.
        let mut from = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let does = take(*byte, &mut self.walk);
            let number = match does {
                Does::Passes => continue,
                Does::Holds => None,
                Does::Ends => Some(self.walk.number(self.tokens)),
                Does::Releases => Some(self.walk.release()),
            };
            let anew = anew.get_or_insert_with(|| BytesMut::with_capacity(bytes.len() + 16));
            anew.extend_from_slice(&bytes[from..at]);
            from = at;
            match number {
                Some(number) => anew.extend_from_slice(&number),
                None => from += 1,
            }
        }
        match anew {
            None => bytes,
            Some(mut anew) => {
                anew.extend_from_slice(&bytes[from..]);
                anew.freeze()
            }
        }
    }
}

/// Which bytes of a stream are data.
#[derive(Default)]
struct Lines {
    line: Line,
    after_cr: bool,
}

#[derive(Default)]
enum Line {
    /// Bytes of a byte order mark that came.
    #[default]
    First,
    Mark(usize),
    /// Bytes of [`Lines::FIELD`] that came.
    Begins(usize),
    Data,
    Other,
}

impl Lines {
    const FIELD: &[u8] = b"data:";

    fn take(&mut self, byte: u8, walk: &mut Walk) -> Does {
        let late_lf = std::mem::replace(&mut self.after_cr, byte == b'\r') && byte == b'\n';
        if late_lf {
            return Does::Passes;
        }
        if let Line::First = self.line {
            self.line = if byte == BOM[0] {
                Line::Mark(0)
            } else {
                Line::Begins(0)
            };
        }
        if matches!(byte, b'\n' | b'\r') {
            let line = std::mem::replace(&mut self.line, Line::Begins(0));
            return match line {
                Line::Data => walk.take(b'\n'),
                Line::Begins(0) => walk.begin(),
                _ => Does::Passes,
            };
        }
        self.line = match self.line {
            Line::Data => return walk.take(byte),
            Line::Mark(came) if BOM[came] == byte && came + 1 == BOM.len() => Line::Begins(0),
            Line::Mark(came) if BOM[came] == byte => Line::Mark(came + 1),
            Line::Begins(came) if Self::FIELD[came] == byte => match came + 1 {
                came if came == Self::FIELD.len() => Line::Data,
                came => Line::Begins(came),
            },
            _ => Line::Other,
        };
        Does::Passes
    }
}

#[cfg(test)]
mod tests;
