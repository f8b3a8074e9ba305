//! Spans of a JSON text: fast, borrowed, never re-encoded.
//!
//! [`Scan`] walks a text once and says where its values lie. It checks strings and the nesting of
//! brackets, which is what spans depend on, and not the whole grammar: finding the right spans is
//! our task, full validation is the provider's. Strings are read in blocks of 64 bytes (see
//! `block`); whatever reads them faster takes its place and that of nothing else.
//!
//! Nothing here recurses, allocates per value or panics, whatever the input.

pub(super) mod block;

use std::ops::Range;

use thiserror::Error;

use self::block::StringContent;

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

/// A string of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonString {
    /// Between the quotes.
    pub span: Span,
    /// Escapes in it.
    pub escapes: u32,
    /// Whether it is ASCII without `\u` escapes: every byte is a character, but for the escapes,
    /// which are two.
    pub plain: bool,
    /// Whether it may be spelled in more than one way: it has `\u` or `\/` escapes.
    pub respelled: bool,
}

impl JsonString {
    /// Whether a backslash stands in it.
    pub const fn has_escapes(self) -> bool {
        self.escapes > 0
    }

    /// The string with its quotes.
    pub const fn quoted_span(self) -> Span {
        Span {
            start: self.span.start - 1,
            end: self.span.end + 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

/// Why a text could not be walked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MalformedJson {
    #[error("expected {expected} at byte {at}")]
    Expected { expected: &'static str, at: usize },
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Levels of nesting that are followed. Real requests stay under 40.
pub const MAX_DEPTH: usize = 1024;

/// A position in a JSON text that moves forward a value at a time.
#[derive(Clone, Debug)]
pub struct JsonScanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> JsonScanner<'a> {
    pub const fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at }
    }

    pub const fn position(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space, left in place.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Walks an object: `member` is given each key and must take the value.
    pub fn walk_object<E: From<MalformedJson>>(
        &mut self,
        mut member: impl FnMut(&mut Self, JsonString) -> Result<(), E>,
    ) -> Result<Span, E> {
        let start = self.expect_byte(b'{', "an object")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Span::new(start, self.at));
        }
        loop {
            let key = self.take_string()?;
            self.expect_byte(b':', "a colon")?;
            member(self, key)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Span::new(start, self.at));
                }
                _ => {
                    return Err(self
                        .expected_error("a comma or the end of the object")
                        .into());
                }
            }
        }
    }

    /// Walks an array: `element` must take the value.
    pub fn walk_array<E: From<MalformedJson>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Span, E> {
        let start = self.expect_byte(b'[', "an array")?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Span::new(start, self.at));
        }
        loop {
            element(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Span::new(start, self.at));
                }
                _ => {
                    return Err(self
                        .expected_error("a comma or the end of the array")
                        .into());
                }
            }
        }
    }

    /// Takes a string.
    pub fn take_string(&mut self) -> Result<JsonString, MalformedJson> {
        let start = self.expect_byte(b'"', "a string")? + 1;
        let inside = self.read_string_content(start)?;
        let end = start + inside.len;
        self.at = end + 1;
        Ok(JsonString {
            span: Span::new(start, end),
            escapes: inside.escapes,
            plain: inside.ascii && !inside.unicode,
            respelled: inside.unicode || inside.slashes,
        })
    }

    /// Takes any value and says what it is.
    pub fn take_value(&mut self) -> Result<(Span, JsonKind), MalformedJson> {
        let first = self.peek().ok_or_else(|| self.expected_error("a value"))?;
        let start = self.at;
        let kind = match first {
            b'"' => {
                let text = self.take_string()?;
                return Ok((text.quoted_span(), JsonKind::String));
            }
            b'{' => {
                self.skip_container()?;
                JsonKind::Object
            }
            b'[' => {
                self.skip_container()?;
                JsonKind::Array
            }
            b't' => self.take_literal(b"true", JsonKind::True)?,
            b'f' => self.take_literal(b"false", JsonKind::False)?,
            b'n' => self.take_literal(b"null", JsonKind::Null)?,
            b'-' | b'0'..=b'9' => {
                self.take_number();
                JsonKind::Number
            }
            _ => return Err(self.expected_error("a value")),
        };
        Ok((Span::new(start, self.at), kind))
    }

    /// Nothing but white space may follow.
    pub fn expect_end(&mut self) -> Result<(), MalformedJson> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected_error("the end of the text")),
        }
    }

    /// Takes one byte after white space; gives its position.
    fn expect_byte(&mut self, byte: u8, expected: &'static str) -> Result<usize, MalformedJson> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(self.at - 1)
        } else {
            Err(self.expected_error(expected))
        }
    }

    fn expected_error(&self, expected: &'static str) -> MalformedJson {
        MalformedJson::Expected {
            expected,
            at: self.at,
        }
    }

    fn take_literal(
        &mut self,
        word: &'static [u8],
        kind: JsonKind,
    ) -> Result<JsonKind, MalformedJson> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(kind)
        } else {
            Err(self.expected_error("a value"))
        }
    }

    fn take_number(&mut self) {
        while let Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    /// What stands between an opening quote, which `from` follows, and the closing one.
    fn read_string_content(&self, from: usize) -> Result<StringContent, MalformedJson> {
        let text = self.text.get(from..).unwrap_or_default();
        block::read_string_content(text).ok_or(MalformedJson::Expected {
            expected: "the end of a string",
            at: self.text.len(),
        })
    }

    /// Skips an object or array, checking that brackets match in kind.
    fn skip_container(&mut self) -> Result<(), MalformedJson> {
        let mut nesting = Nesting::default();
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return Err(self.expected_error("the end of an object or array"));
            };
            match byte {
                b'"' => {
                    self.at += 1 + self.read_string_content(self.at + 1)?.len;
                }
                b'{' | b'[' => nesting.open_bracket(byte == b'{')?,
                b'}' | b']' => {
                    let matched = nesting.close_bracket(byte == b'}');
                    if !matched {
                        return Err(self.expected_error("the bracket that closes what was opened"));
                    }
                    if nesting.depth == 0 {
                        self.at += 1;
                        return Ok(());
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

/// The kinds of the open brackets, a bit each.
struct Nesting {
    objects: [u64; MAX_DEPTH / 64],
    depth: usize,
}

impl Default for Nesting {
    fn default() -> Self {
        Self {
            objects: [0; MAX_DEPTH / 64],
            depth: 0,
        }
    }
}

impl Nesting {
    fn open_bracket(&mut self, object: bool) -> Result<(), MalformedJson> {
        if self.depth == MAX_DEPTH {
            return Err(MalformedJson::TooDeep);
        }
        let bit = 1u64 << (self.depth % 64);
        let word = &mut self.objects[self.depth / 64];
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Ok(())
    }

    fn close_bracket(&mut self, object: bool) -> bool {
        let Some(depth) = self.depth.checked_sub(1) else {
            return false;
        };
        self.depth = depth;
        (self.objects[depth / 64] >> (depth % 64)) & 1 == u64::from(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(text: &str) -> Result<Vec<&str>, MalformedJson> {
        let mut found = Vec::new();
        let mut scan = JsonScanner::new(text.as_bytes(), 0);
        scan.walk_array(|scan| {
            let (span, _) = scan.take_value()?;
            found.push(&text[span.range()]);
            Ok::<_, MalformedJson>(())
        })?;
        scan.expect_end()?;
        Ok(found)
    }

    #[test]
    fn values_are_found_whatever_stands_in_their_strings() {
        let text = r#" [ "a\"]", {"k":"}\\"} ,[1,[2]], -1.5e9 ,true,null , "\\" ] "#;
        assert_eq!(
            spans(text).unwrap(),
            [
                r#""a\"]""#,
                r#"{"k":"}\\"}"#,
                "[1,[2]]",
                "-1.5e9",
                "true",
                "null",
                r#""\\""#
            ]
        );
    }

    #[test]
    fn broken_text_is_an_error_at_every_length() {
        let text = r#"[{"a":[1,"x\"",{"b":null}]},"y"]"#;
        assert!(spans(text).is_ok());
        for end in 0..text.len() {
            assert!(spans(&text[..end]).is_err(), "{}", &text[..end]);
        }
        for text in ["[1 2]", "[}", "[{]}", "[[}]", "[tru]", "[1],", "[,]"] {
            assert!(spans(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_is_followed_to_its_bound() {
        let deep = |levels: usize| format!("[{}{}]", "[".repeat(levels), "]".repeat(levels));
        assert!(spans(&deep(MAX_DEPTH)).is_ok());
        assert_eq!(spans(&deep(MAX_DEPTH + 1)), Err(MalformedJson::TooDeep));
    }
}
