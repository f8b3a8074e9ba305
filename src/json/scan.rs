//! Spans of the values of a JSON text.
//!
//! [`JsonScanner`] walks a text once. It checks what spans depend on, strings and the nesting of brackets, and not
//! the whole grammar: full validation is the provider's task. `block` reads strings 64 bytes at a time.
//!
//! The scanner never recurses, allocates per value or panics, whatever the input.

pub(super) mod block;

use std::ops::Range;

use thiserror::Error;

/// A half-open range of bytes of a body. 32 bits suffice, since the server refuses bodies of 4 GiB.
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

    /// The span of these of its bytes.
    pub const fn part(self, bytes: Range<usize>) -> Self {
        let start = self.start as usize;
        Self::new(start + bytes.start, start + bytes.end)
    }
}

/// A string of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonString {
    /// Between the quotes.
    pub span: Span,
    pub has_escapes: bool,
    /// There are `\u` or `\/` escapes, which leave a choice of spelling.
    pub respelled: bool,
}

impl JsonString {
    /// Its content as spelled in `json`, the text that was scanned.
    pub fn raw_bytes(self, json: &[u8]) -> &[u8] {
        &json[self.span.range()]
    }

    /// The span with the quotes.
    pub const fn quoted_span(self) -> Span {
        Span::new(self.span.start as usize - 1, self.span.end as usize + 1)
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

/// Why the scanner stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MalformedJson {
    #[error("expected {expected} at byte {at}")]
    Expected { expected: &'static str, at: usize },
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// The deepest nesting that the scanner follows. Real requests stay under 40 levels.
pub const MAX_DEPTH: usize = 1024;

/// A position in a JSON text that moves forward one value at a time.
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

    /// Goes on at a later byte, which must be the end of a value.
    pub const fn skip_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Skips white space; the result is the next byte, which is not taken.
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
        self.walk_items(b'}', "a comma or the end of the object", |scan| {
            let key = scan.take_string()?;
            scan.expect_byte(b':', "a colon")?;
            member(scan, key)
        })?;
        Ok(Span::new(start, self.at))
    }

    /// Walks an array: `element` must take the value.
    pub fn walk_array<E: From<MalformedJson>>(
        &mut self,
        element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Span, E> {
        let start = self.expect_byte(b'[', "an array")?;
        self.walk_items(b']', "a comma or the end of the array", element)?;
        Ok(Span::new(start, self.at))
    }

    /// Walks the items behind an opening bracket, and takes the closing one.
    #[inline]
    fn walk_items<E: From<MalformedJson>>(
        &mut self,
        close: u8,
        expected: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(());
        }
        // One call of `item`, so that it is inlined: a second one costs a tenth of the index.
        loop {
            item(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == close => break,
                _ => return Err(self.expected_error(expected).into()),
            }
        }
        self.at += 1;
        Ok(())
    }

    pub fn take_string(&mut self) -> Result<JsonString, MalformedJson> {
        let start = self.expect_byte(b'"', "a string")? + 1;
        let string = self.read_string(start)?;
        self.at = string.span.end as usize + 1;
        Ok(string)
    }

    pub fn take_value(&mut self) -> Result<(Span, JsonKind), MalformedJson> {
        let first = self.peek().ok_or_else(|| self.expected_error("a value"))?;
        let start = self.at;
        let kind = match first {
            b'"' => return Ok((self.take_string()?.quoted_span(), JsonKind::String)),
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

    /// Fails unless only white space follows.
    pub fn expect_end(&mut self) -> Result<(), MalformedJson> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected_error("the end of the text")),
        }
    }

    /// Takes one byte after white space; the result is its position.
    fn expect_byte(&mut self, byte: u8, expected: &'static str) -> Result<usize, MalformedJson> {
        if self.peek() != Some(byte) {
            return Err(self.expected_error(expected));
        }
        self.at += 1;
        Ok(self.at - 1)
    }

    fn expected_error(&self, expected: &'static str) -> MalformedJson {
        let at = self.at;
        MalformedJson::Expected { expected, at }
    }

    fn take_literal(
        &mut self,
        word: &'static [u8],
        kind: JsonKind,
    ) -> Result<JsonKind, MalformedJson> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.expected_error("a value"));
        }
        self.at += word.len();
        Ok(kind)
    }

    fn take_number(&mut self) {
        while let Some(b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    /// Reads from `from`, which follows an opening quote, to the closing one.
    fn read_string(&self, from: usize) -> Result<JsonString, MalformedJson> {
        block::read_string(self.text, from).ok_or(MalformedJson::Expected {
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
                b'"' => self.at = self.read_string(self.at + 1)?.span.end as usize,
                b'{' | b'[' => nesting.open_bracket(byte == b'{')?,
                b'}' | b']' => {
                    if !nesting.close_bracket(byte == b'}') {
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

/// The kinds of the open brackets, one bit each.
#[derive(Default)]
struct Nesting {
    objects: [u64; MAX_DEPTH / 64],
    depth: usize,
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
    fn brackets_and_quotes_inside_strings_end_no_value() {
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
    fn truncated_text_is_an_error_at_every_length() {
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
    fn nesting_is_accepted_up_to_its_limit() {
        let deep = |levels: usize| format!("[{}{}]", "[".repeat(levels), "]".repeat(levels));
        assert!(spans(&deep(MAX_DEPTH)).is_ok());
        assert_eq!(spans(&deep(MAX_DEPTH + 1)), Err(MalformedJson::TooDeep));
    }
}
