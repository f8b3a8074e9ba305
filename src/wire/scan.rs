//! Spans of a JSON text: fast, borrowed, never re-encoded.

use std::ops::Range;

/// A half-open range of bytes of a body.
///
/// 32 bits: the server refuses bodies of 4 GiB and more long before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub const fn new(start: usize, end: usize) -> Self {
        Self {
            start: start as u32,
            end: end as u32,
        }
    }

    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}
