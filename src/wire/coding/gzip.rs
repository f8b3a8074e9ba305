//! gzip: members one after another, each with a head, deflated data and a checksum.

use bytes::{Buf, Bytes};
use flate2::{Crc, Decompress};

use super::stage::{Damaged, Step, inflate};

const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const HEAD_CRC: u8 = 2;
const RESERVED: u8 = 0xe0;

pub(super) struct Gzip {
    at: At,
    /// The head's flags that are still to be looked at.
    flags: u8,
    inflate: Decompress,
    crc: Crc,
}

enum At {
    /// Bytes of the fixed head that came. Between two members: none.
    Head(usize, [u8; 10]),
    ExtraLength(usize, [u8; 2]),
    /// Bytes to pass over.
    Skip(usize),
    /// A text that ends with a zero.
    Text,
    Body,
    Tail(usize, [u8; 8]),
}

impl At {
    const NEXT: Self = Self::Head(0, [0; 10]);
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            at: At::NEXT,
            flags: 0,
            inflate: Decompress::new(false),
            crc: Crc::new(),
        }
    }

    pub(super) const fn between_members(&self) -> bool {
        matches!(self.at, At::Head(0, _))
    }

    /// Goes no further than to the end of a member.
    pub(super) fn step(&mut self, input: &mut Bytes, out: &mut [u8]) -> Result<Step, Damaged> {
        loop {
            if let At::Body = self.at {
                let (made, ended) = inflate(&mut self.inflate, input, out)?;
                self.crc.update(&out[..made]);
                if ended {
                    self.at = At::Tail(0, [0; 8]);
                }
                if made > 0 {
                    return Ok(Step::Made(made));
                }
                if !ended {
                    return Ok(Step::Wants);
                }
            }
            if !input.has_remaining() {
                return Ok(Step::Wants);
            }
            match &mut self.at {
                At::Head(came, head) => {
                    if fill(came, head, input) {
                        self.flags = head[3];
                        if head[..3] != [0x1f, 0x8b, 8] || self.flags & RESERVED != 0 {
                            return Err(Damaged);
                        }
                        self.next_of_head();
                    }
                }
                At::ExtraLength(came, length) => {
                    if fill(came, length, input) {
                        self.at = At::Skip(u16::from_le_bytes(*length).into());
                    }
                }
                At::Skip(left) => {
                    let passed = (*left).min(input.len());
                    input.advance(passed);
                    *left -= passed;
                    if *left == 0 {
                        self.next_of_head();
                    }
                }
                At::Text => match memchr::memchr(0, input) {
                    Some(end) => {
                        input.advance(end + 1);
                        self.next_of_head();
                    }
                    None => input.clear(),
                },
                At::Body => {}
                At::Tail(came, tail) => {
                    if fill(came, tail, input) {
                        let length = self.crc.amount().to_le_bytes();
                        let sums = [self.crc.sum().to_le_bytes(), length].concat();
                        if sums != *tail {
                            return Err(Damaged);
                        }
                        self.crc.reset();
                        self.inflate.reset(false);
                        self.at = At::NEXT;
                        return Ok(Step::Made(0));
                    }
                }
            }
        }
    }

    /// What the flags say follows.
    fn next_of_head(&mut self) {
        let mut has = |flag: u8| {
            let has = self.flags & flag != 0;
            self.flags &= !flag;
            has
        };
        self.at = if has(EXTRA) {
            At::ExtraLength(0, [0; 2])
        } else if has(NAME) || has(COMMENT) {
            At::Text
        } else if has(HEAD_CRC) {
            At::Skip(2)
        } else {
            At::Body
        };
    }
}

/// Takes what is missing of `whole`; whether it is complete.
fn fill(came: &mut usize, whole: &mut [u8], input: &mut Bytes) -> bool {
    let more = (whole.len() - *came).min(input.len());
    input.copy_to_slice(&mut whole[*came..*came + more]);
    *came += more;
    *came == whole.len()
}
