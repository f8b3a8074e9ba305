//! A JSON writer with many spellings. serde_json has one; clients have as many as there are
//! languages, and the proxy must keep all of them.

use super::random::Random;

/// Placeholders for lone surrogates, which no Rust string can contain.
pub(crate) const LONE: [char; 4] = ['\u{F0000}', '\u{F0001}', '\u{F0002}', '\u{F0003}'];
/// The JSON text for each of [`LONE`].
const SURROGATES: [u16; 4] = [0xD800, 0xDBFF, 0xDC00, 0xDFFF];

#[derive(Clone, Debug)]
pub(crate) enum Json {
    /// A number, `true`, `false` or `null`, written as given.
    Plain(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A word of the protocol (a role, a type), which no client escapes.
    pub(crate) fn word(word: &str) -> Self {
        Self::Plain(format!("\"{word}\""))
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::Plain(text.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Compact,
    /// A space after each comma and colon, as Python's `json.dumps` writes.
    Python,
    /// A line for each member, indented by this many spaces.
    Pretty(usize),
    /// Spaces, tabs and line ends wherever the grammar allows them.
    Odd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escapes {
    /// Only what must be escaped.
    Raw,
    /// Everything beyond ASCII as `\uXXXX`, as Python and PHP write.
    Ascii,
    /// `\/`, letters as `\uXXXX`, upper and lower case hexadecimal digits in turn. Keys are plain:
    /// a body with an escaped key is not guarded, and other tests cover that.
    Odd,
}

/// How a body is spelt; its meaning is the same in every spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonSpelling {
    pub(crate) space: Space,
    pub(crate) escapes: Escapes,
    /// Members of objects in any order (`content` before `role`).
    pub(crate) shuffled: bool,
}

impl JsonSpelling {
    pub(crate) const PLAIN: Self = Self {
        space: Space::Compact,
        escapes: Escapes::Raw,
        shuffled: false,
    };

    pub(crate) fn any(random: &mut Random) -> Self {
        Self {
            space: random.weighted(&[
                (4, Space::Compact),
                (3, Space::Python),
                (1, Space::Pretty(1)),
                (2, Space::Pretty(2)),
                (1, Space::Odd),
            ]),
            escapes: random.weighted(&[(5, Escapes::Raw), (4, Escapes::Ascii), (1, Escapes::Odd)]),
            shuffled: random.chance(15),
        }
    }
}

pub(crate) struct JsonWriter {
    pub(crate) out: Vec<u8>,
    spelling: JsonSpelling,
    random: Random,
}

impl JsonWriter {
    pub(crate) fn new(spelling: JsonSpelling, random: Random) -> Self {
        Self {
            out: Vec::new(),
            spelling,
            random,
        }
    }

    pub(crate) fn value(&mut self, value: &Json, depth: usize) {
        match value {
            Json::Plain(text) => self.out.extend_from_slice(text.as_bytes()),
            Json::Text(text) => self.string(text),
            Json::List(items) => {
                self.open(b'[', depth + 1, items.is_empty());
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.comma(depth + 1);
                    }
                    self.value(item, depth + 1);
                }
                self.close(b']', depth, items.is_empty());
            }
            Json::Object(members) => {
                self.open(b'{', depth + 1, members.is_empty());
                for (at, place) in self.order(members.len()).into_iter().enumerate() {
                    if at > 0 {
                        self.comma(depth + 1);
                    }
                    self.member(members[place].0, &members[place].1, depth + 1);
                }
                self.close(b'}', depth, members.is_empty());
            }
        }
    }

    pub(crate) fn member(&mut self, key: &str, value: &Json, depth: usize) {
        self.key(key);
        self.value(value, depth);
    }

    pub(crate) fn key(&mut self, key: &str) {
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.push(b'"');
        self.odd();
        self.out.push(b':');
        if !matches!(self.spelling.space, Space::Compact | Space::Odd) {
            self.out.push(b' ');
        }
        self.odd();
    }

    /// The order in which the members of an object are written.
    pub(crate) fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        if self.spelling.shuffled {
            self.random.shuffle(&mut order);
        }
        order
    }

    pub(crate) fn open(&mut self, bracket: u8, depth: usize, empty: bool) {
        self.out.push(bracket);
        if empty {
            self.odd();
        } else {
            self.line(depth);
        }
    }

    pub(crate) fn close(&mut self, bracket: u8, depth: usize, empty: bool) {
        if !empty {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    pub(crate) fn comma(&mut self, depth: usize) {
        self.odd();
        self.out.push(b',');
        if self.spelling.space == Space::Python {
            self.out.push(b' ');
        }
        self.line(depth);
    }

    fn line(&mut self, depth: usize) {
        if let Space::Pretty(width) = self.spelling.space {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + width * depth, b' ');
        }
        self.odd();
    }

    fn odd(&mut self) {
        if self.spelling.space == Space::Odd && self.random.chance(30) {
            let space = self
                .random
                .pick(&[" ", "  ", "\t", "\n", "\r\n", " \r\n\t "]);
            self.out.extend_from_slice(space.as_bytes());
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push(b'"');
        for letter in text.chars() {
            self.letter(letter);
        }
        self.out.push(b'"');
    }

    fn letter(&mut self, letter: char) {
        let odd = self.spelling.escapes == Escapes::Odd;
        let short = match letter {
            '"' => Some(b'"'),
            '\\' => Some(b'\\'),
            '\n' => Some(b'n'),
            '\r' => Some(b'r'),
            '\t' => Some(b't'),
            '\u{8}' => Some(b'b'),
            '\u{c}' => Some(b'f'),
            '/' if odd => Some(b'/'),
            _ => None,
        };
        if let Some(short) = short.filter(|_| !odd || self.random.chance(90)) {
            self.out.extend_from_slice(&[b'\\', short]);
        } else if let Some(lone) = LONE.iter().position(|&lone| lone == letter) {
            self.unit(SURROGATES[lone]);
        } else if short.is_some() || letter < ' ' || self.escaped(letter) {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                self.unit(*unit);
            }
        } else {
            let mut bytes = [0; 4];
            self.out
                .extend_from_slice(letter.encode_utf8(&mut bytes).as_bytes());
        }
    }

    fn escaped(&mut self, letter: char) -> bool {
        match self.spelling.escapes {
            Escapes::Raw => false,
            Escapes::Ascii => !letter.is_ascii(),
            Escapes::Odd => self.random.chance(if letter.is_ascii() { 2 } else { 40 }),
        }
    }

    fn unit(&mut self, unit: u16) {
        let capital = self.spelling.escapes == Escapes::Odd && self.random.chance(50);
        let spelt = if capital {
            format!("\\u{unit:04X}")
        } else {
            format!("\\u{unit:04x}")
        };
        self.out.extend_from_slice(spelt.as_bytes());
    }
}

/// JSON text in its plain spelling, as in `arguments` and tool results.
pub(crate) fn compact(value: &Json) -> String {
    let mut writer = JsonWriter::new(JsonSpelling::PLAIN, Random::new(0));
    writer.value(value, 0);
    String::from_utf8_lossy(&writer.out).into_owned()
}
