//! Joins the pieces of a body.

use bytes::{Bytes, BytesMut};

/// Joins pieces. A body in one piece is not copied. The caller bounds the length.
#[derive(Debug, Default)]
pub struct BytesGatherer {
    first: Bytes,
    all: BytesMut,
    expected: usize,
}

impl BytesGatherer {
    /// `expected`: the length of the body in bytes; 0 if unknown.
    pub fn new(expected: usize) -> Self {
        Self {
            expected,
            ..Self::default()
        }
    }

    pub fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes so far.
    pub fn as_bytes(&self) -> &[u8] {
        if self.all.is_empty() {
            &self.first
        } else {
            &self.all
        }
    }

    pub fn push(&mut self, piece: Bytes) {
        if self.is_empty() {
            self.first = piece;
            return;
        }
        if !self.first.is_empty() {
            let length = (self.first.len() + piece.len()).max(self.expected);
            self.all.reserve(length);
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.all.extend_from_slice(&piece);
    }

    pub fn finish(self) -> Bytes {
        if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::BytesGatherer;

    #[test]
    fn pieces_keep_their_order() {
        for pieces in [vec![], vec!["a"], vec!["", "a", "", "bc", "d"]] {
            let mut gather = BytesGatherer::new(2);
            for piece in &pieces {
                gather.push(Bytes::from_static(piece.as_bytes()));
            }
            assert_eq!(gather.finish(), pieces.concat());
        }
    }
}
