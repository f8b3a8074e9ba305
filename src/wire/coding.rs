//! Content codings of a body, undone piece by piece.
//!
//! gzip, deflate (with a zlib head, and without, as some send it), br and zstd, one put on another
//! as `Content-Encoding` lists them. A body is pushed as it comes and pulled out in pieces, each of
//! which costs little, so that the caller can let others run between them. SECURITY: a few
//! kilobytes can stand for gigabytes, also in the middle of a chain. So every coding is bounded in
//! what it gives, in bytes and as a multiple of what came. No I/O here.

mod decoder;

use bytes::Bytes;
use http::{HeaderMap, header::CONTENT_ENCODING};

use self::decoder::{Damaged, Decoder};

/// What we read, as `Accept-Encoding` says it.
pub const READ: &str = "gzip, deflate, br, zstd";

/// Bytes pulled at a time; also what is held between two codings.
pub const PIECE: usize = 32 << 10;

/// Codings of one body; nobody has need of more than one.
const MAX_CODINGS: usize = 4;

/// A body that comes to less may have been as small as it likes.
const SMALL: usize = 4 << 20;

/// How many times larger than what came a body may come out. Text and JSON come to 3 to 20 times,
/// one line over and over to a few hundred.
pub const MAX_RATIO: usize = 500;

/// A coding that is not read, or too many of them: the list as it was sent.
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

/// What one pull gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// So many bytes; 0 where there was work to do all the same.
    Bytes(usize),
    /// Nothing more without more input.
    Wants,
    /// All of it is out.
    Over,
}

/// Undoes the codings of one body.
pub struct Unpacker {
    /// The first is the one that was put on last.
    links: Vec<Link>,
    /// Bytes that came.
    came: usize,
    /// Bytes that may come out.
    bound: usize,
    /// Nothing more comes.
    last: bool,
}

struct Link {
    decoder: Decoder,
    input: Bytes,
    /// Bytes that came out.
    made: usize,
}

impl Unpacker {
    /// For a body with these headers, of which at most `bound` bytes are taken; `None` where
    /// nothing is to be undone.
    ///
    /// # Errors
    /// A coding is unknown, or there are too many.
    pub fn of(headers: &HeaderMap, bound: usize) -> Result<Option<Self>, Unknown> {
        let listed: Vec<_> = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        let listed = listed.join(", ");
        let names = listed.split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
        let decoders = names.map(Decoder::from_name).take(MAX_CODINGS + 1);
        let decoders: Option<Vec<_>> = decoders.collect();
        let Some(decoders) = decoders.filter(|decoders| decoders.len() <= MAX_CODINGS) else {
            return Err(Unknown(listed));
        };
        let links = decoders.into_iter().rev().map(|decoder| Link {
            decoder,
            input: Bytes::new(),
            made: 0,
        });
        let unpacker = Self {
            links: links.collect(),
            came: 0,
            bound,
            last: false,
        };
        Ok((!unpacker.links.is_empty()).then_some(unpacker))
    }

    /// The next bytes of the body; all of those before must have been pulled out.
    pub fn push(&mut self, bytes: Bytes) {
        self.came += bytes.len();
        self.feed(0, bytes);
    }

    /// Nothing more comes.
    pub const fn end(&mut self) {
        self.last = true;
    }

    /// What comes out counts anew against the bound from here on.
    pub fn renew(&mut self) {
        self.links.iter_mut().for_each(|link| link.made = 0);
    }

    /// Bytes that the codings keep to themselves, at most.
    pub fn kept(&self) -> usize {
        let kept = self.links.iter().map(|link| {
            let window = link.made.min(link.decoder.window());
            window + PIECE
        });
        kept.sum()
    }

    /// The next piece of what comes out; `out` must not be empty.
    ///
    /// # Errors
    /// It cannot be unpacked, or only to more than is taken. Nothing more may be pulled then.
    pub fn pull(&mut self, out: &mut [u8]) -> Result<Pulled, Unreadable> {
        self.pull_at(self.links.len() - 1, out)
    }

    fn pull_at(&mut self, at: usize, out: &mut [u8]) -> Result<Pulled, Unreadable> {
        let link = &mut self.links[at];
        let decoded = link.decoder.decode(&mut link.input, out);
        if let Some(made) = decoded.map_err(|Damaged| Unreadable::Damaged)? {
            link.made += made;
            self.check(at)?;
            return Ok(Pulled::Bytes(made));
        }
        let before = match at.checked_sub(1) {
            None if self.last => Pulled::Over,
            None => Pulled::Wants,
            Some(before) => {
                let mut piece = vec![0; PIECE];
                let pulled = self.pull_at(before, &mut piece)?;
                if let Pulled::Bytes(made) = pulled {
                    piece.truncate(made);
                    self.feed(at, piece.into());
                    return Ok(Pulled::Bytes(0));
                }
                pulled
            }
        };
        if before == Pulled::Over && !self.links[at].decoder.may_end() {
            return Err(Unreadable::Damaged);
        }
        Ok(before)
    }

    fn feed(&mut self, at: usize, bytes: Bytes) {
        let input = &mut self.links[at].input;
        debug_assert!(input.is_empty(), "what was fed before is used up");
        *input = bytes;
    }

    fn check(&self, at: usize) -> Result<(), Unreadable> {
        let made = self.links[at].made;
        // What is packed once more may be a little larger than what it holds.
        let more = if at + 1 < self.links.len() {
            self.bound / 64 + PIECE
        } else {
            0
        };
        if made > self.bound.saturating_add(more) {
            return Err(Unreadable::TooMuch);
        }
        if made > SMALL && made > self.came.saturating_mul(MAX_RATIO) {
            return Err(Unreadable::Bomb);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
