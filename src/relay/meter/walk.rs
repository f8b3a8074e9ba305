//! Finds the numbers of a `usage` in JSON that comes byte by byte.
//!
//! Follows objects and lists only as far as usage can stand in them (at the top, in `x_groq`, in a
//! choice) and passes over all else. What is no JSON makes it lose its way until the next event.

/// Digits of the largest count of tokens.
const MAX_DIGITS: usize = 10;

/// Bytes of the longest key that matters.
const MAX_KEY: usize = 13;

/// What becomes of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Passes,
    /// It is a digit of a number that may have to change.
    Holds,
    /// It passes, behind the number that was held.
    Ends,
    /// It passes, behind what was held, which stays as it is.
    Releases,
}

#[derive(Default)]
pub(super) struct Walk {
    /// What is open, the outermost first; never more than four.
    open: Vec<Place>,
    at: At,
    key: Key,
    /// Bytes of a key.
    name: Vec<u8>,
    pub(super) digits: Vec<u8>,
    /// The prompt of this usage is 0: the provider has nothing to say yet.
    silent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Choices,
    Choice,
    Groq,
    Usage,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Key {
    Usage,
    Choices,
    Groq,
    Prompt,
    Total,
    #[default]
    Other,
}

#[derive(Clone, Copy, Default)]
enum At {
    #[default]
    Value,
    Key,
    Name {
        escaped: bool,
    },
    Colon,
    /// A string, or within so many brackets that do not matter.
    Over {
        depth: u32,
        text: bool,
        escaped: bool,
    },
    /// `null`, or a number that does not matter.
    Bare,
    Number,
    After,
    Lost,
}

impl Walk {
    /// Another event begins.
    pub(super) fn begin(&mut self) -> Does {
        let held = !self.digits.is_empty();
        self.open.clear();
        self.at = At::Value;
        if held { Does::Releases } else { Does::Passes }
    }

    /// The number that was held, grown by so many tokens.
    pub(super) fn number(&mut self, tokens: u32) -> Vec<u8> {
        let digits = self.release();
        let text = std::str::from_utf8(&digits).ok();
        let count = text.and_then(|text| text.parse::<u32>().ok());
        self.silent |= self.key == Key::Prompt && count == Some(0);
        match count {
            // What begins with a zero is no number of tokens, or none at all.
            Some(count) if digits[0] != b'0' && !self.silent => (u64::from(count)
                + u64::from(tokens))
            .to_string()
            .into_bytes(),
            _ => digits,
        }
    }

    /// The number that was held, as it came.
    pub(super) fn release(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.digits)
    }

    pub(super) fn take(&mut self, byte: u8) -> Does {
        let space = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        match &mut self.at {
            At::Lost => {}
            At::Over {
                depth,
                text,
                escaped,
            } => {
                if *text {
                    let was = std::mem::replace(escaped, !*escaped && byte == b'\\');
                    *text = was || byte != b'"';
                } else {
                    match byte {
                        b'"' => *text = true,
                        b'{' | b'[' => *depth = depth.saturating_add(1),
                        b'}' | b']' => *depth = depth.saturating_sub(1),
                        _ => {}
                    }
                }
                if *depth == 0 && !*text {
                    self.at = At::After;
                }
            }
            At::Name { escaped } => {
                let was = std::mem::replace(escaped, !*escaped && byte == b'\\');
                if !was && byte == b'"' {
                    self.key = named(&self.name);
                    self.at = At::Colon;
                } else if self.name.len() <= MAX_KEY {
                    self.name.push(byte);
                }
            }
            At::Number => return self.digit(byte),
            At::Bare => {
                if space || matches!(byte, b',' | b'}' | b']') {
                    self.after(byte);
                }
            }
            _ if space => {}
            At::Value => return self.value(byte),
            At::Key => match byte {
                b'"' => {
                    self.name.clear();
                    self.at = At::Name { escaped: false };
                }
                b'}' => self.after(byte),
                _ => self.at = At::Lost,
            },
            At::Colon => self.at = if byte == b':' { At::Value } else { At::Lost },
            At::After => self.after(byte),
        }
        Does::Passes
    }

    fn value(&mut self, byte: u8) -> Does {
        use Place::{Choice, Choices, Groq, Root, Usage};
        let within = self.open.last().copied();
        let over = |text: bool| At::Over {
            depth: u32::from(!text),
            text,
            escaped: false,
        };
        let opens = match (byte, within, self.key) {
            (b'{', None, _) => Some(Root),
            (b'{', Some(Choices), _) => Some(Choice),
            (b'{', Some(Root | Groq | Choice), Key::Usage) => Some(Usage),
            (b'{', Some(Root), Key::Groq) => Some(Groq),
            (b'[', Some(Root), Key::Choices) => Some(Choices),
            _ => None,
        };
        if let Some(place) = opens {
            self.open.push(place);
            self.silent = false;
            self.at = if place == Choices { At::Value } else { At::Key };
            return Does::Passes;
        }
        let counts = within == Some(Usage) && matches!(self.key, Key::Prompt | Key::Total);
        self.at = match byte {
            _ if within.is_none() => At::Lost,
            b'{' | b'[' => over(false),
            b'"' => over(true),
            b']' => {
                self.after(byte);
                return Does::Passes;
            }
            b'0'..=b'9' if counts => {
                self.at = At::Number;
                return self.digit(byte);
            }
            _ => At::Bare,
        };
        Does::Passes
    }

    fn digit(&mut self, byte: u8) -> Does {
        if byte.is_ascii_digit() && self.digits.len() < MAX_DIGITS {
            self.digits.push(byte);
            return Does::Holds;
        }
        self.at = At::Bare;
        if !matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n') {
            return Does::Releases;
        }
        self.after(byte);
        Does::Ends
    }

    /// What stands behind a value.
    fn after(&mut self, byte: u8) {
        self.at = match (byte, self.open.last()) {
            (b',', Some(Place::Choices)) => At::Value,
            (b',', Some(_)) => At::Key,
            (b'}' | b']', Some(_)) => {
                self.open.pop();
                At::After
            }
            (b' ' | b'\t' | b'\r' | b'\n', _) => At::After,
            _ => At::Lost,
        };
    }
}

fn named(name: &[u8]) -> Key {
    match name {
        b"usage" => Key::Usage,
        b"choices" => Key::Choices,
        b"x_groq" => Key::Groq,
        b"prompt_tokens" | b"input_tokens" => Key::Prompt,
        b"total_tokens" => Key::Total,
        _ => Key::Other,
    }
}
