//! The model of a form in parts (RFC 7578), as uploads of audio and images name it.
//!
//! Only spans are found, and no byte is written anew: what is around the model's value goes on as it
//! came. Never panics, whatever the bytes.

use memchr::memmem;

use super::{Found, Named, Spelling, media::parameters};
use crate::json::scan::Span;

/// A model's name is shorter than this.
const MAX_NAME: usize = 1 << 10;

/// Looks for the part `model` in the beginning of a body, or in all of one. The part has to end in
/// what is looked at; of several the first counts.
///
/// It is [`Found::surely`] the only one where `body` is a whole form of the plainest kind.
pub fn in_multipart(body: &[u8], boundary: &[u8]) -> Found {
    let dash = [b"--", boundary].concat();
    let mut parts = Parts {
        body,
        delimiter: [b"\r\n", &dash[..]].concat(),
        at: None,
        seen: 0,
    };
    let mut model = None;
    let mut candidates = 0;
    let mut clean = body.starts_with(&dash);
    let closed = loop {
        match parts.next() {
            Next::Part { head, value } => {
                let name = part_name(&body[head.range()]);
                clean &= name != Name::Odd;
                candidates += usize::from(name != Name::Other);
                if name == Name::Model && model.is_none() {
                    model = named(body, value);
                }
            }
            Next::Closed => break true,
            Next::Broken => break false,
        }
    };
    // A boundary that stands anywhere else is one to some reader.
    let all = memmem::find_iter(body, &dash).count() == parts.seen;
    let one = candidates == usize::from(model.is_some());
    Found {
        surely: clean && closed && all && one,
        model,
    }
}

fn named(body: &[u8], value: Span) -> Option<Named> {
    let model = std::str::from_utf8(&body[value.range()]).ok()?;
    (!model.is_empty() && model.len() <= MAX_NAME).then(|| Named {
        model: model.to_owned(),
        span: value,
        spelling: Spelling::Plain,
    })
}

/// Walks the parts of a body.
struct Parts<'b> {
    body: &'b [u8],
    /// Line break, dashes, boundary.
    delimiter: Vec<u8>,
    /// The end of the delimiter that was found last.
    at: Option<usize>,
    /// Delimiters up to now.
    seen: usize,
}

enum Next {
    Part {
        head: Span,
        value: Span,
    },
    Closed,
    /// Not a form, or cut short.
    Broken,
}

impl Parts<'_> {
    fn next(&mut self) -> Next {
        let at = match self.at {
            Some(at) => Some(at),
            None if self.body.starts_with(&self.delimiter[2..]) => {
                self.seen = 1;
                Some(self.delimiter.len() - 2)
            }
            None => self.find(0).map(|(_, end)| end),
        };
        let Some(at) = at else {
            return Next::Broken;
        };
        if self.body[at..].starts_with(b"--") {
            return Next::Closed;
        }
        // The line break of the delimiter's own line may be the first half of an empty head's end.
        let Some(line) = line_end(self.body, at) else {
            return Next::Broken;
        };
        let Some(end) = memmem::find(&self.body[line..], b"\r\n\r\n") else {
            return Next::Broken;
        };
        let (head, start) = (Span::new(line, line + end), line + end + 4);
        let Some((end, next)) = self.find(start) else {
            return Next::Broken;
        };
        self.at = Some(next);
        Next::Part {
            head,
            value: Span::new(start, end),
        }
    }

    /// Where the next delimiter begins, and where its boundary ends.
    fn find(&mut self, mut from: usize) -> Option<(usize, usize)> {
        loop {
            let begin = from + memmem::find(self.body.get(from..)?, &self.delimiter)?;
            let end = begin + self.delimiter.len();
            // A longer word that begins with the boundary is text.
            if self.body[end..].starts_with(b"--") || line_end(self.body, end).is_some() {
                self.seen += 1;
                return Some((begin, end));
            }
            from = begin + 1;
        }
    }
}

/// Where the line break stands that ends a delimiter's line.
fn line_end(body: &[u8], at: usize) -> Option<usize> {
    let padding = body.get(at..)?.iter();
    let padding = padding.take_while(|byte| matches!(byte, b' ' | b'\t'));
    let end = at + padding.count();
    body[end..].starts_with(b"\r\n").then_some(end)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Model,
    /// It is another's.
    Other,
    /// It may be read as the model's.
    Odd,
}

/// What a part's head says that it is.
fn part_name(head: &[u8]) -> Name {
    let Ok(head) = std::str::from_utf8(head) else {
        return Name::Odd;
    };
    let mut name = None;
    for line in head.split("\r\n").filter(|line| !line.is_empty()) {
        let Some((field, value)) = line.split_once(':') else {
            return Name::Odd;
        };
        let field_is_plain = field
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let plain = field_is_plain && !value.contains(['\r', '\n']);
        if !plain || field.eq_ignore_ascii_case("content-transfer-encoding") {
            return Name::Odd;
        }
        if field.eq_ignore_ascii_case("content-disposition") {
            let (kind, rest) = value.split_once(';').unwrap_or((value, ""));
            if name.is_some() || !kind.trim().eq_ignore_ascii_case("form-data") {
                return Name::Odd;
            }
            name = Some(disposition(rest));
        }
    }
    name.unwrap_or(Name::Odd)
}

fn disposition(text: &str) -> Name {
    let mut found = None;
    for parameter in parameters(text) {
        // `name*` is the name, too, to who reads RFC 5987.
        if parameter
            .name
            .get(..4)
            .is_some_and(|name| name.eq_ignore_ascii_case("name"))
        {
            if found.is_some() || !parameter.plain || parameter.name != "name" {
                return Name::Odd;
            }
            let value = parameter.value.trim().trim_end_matches("[]");
            found = Some(if parameter.value == "model" {
                Name::Model
            } else if value.eq_ignore_ascii_case("model") {
                Name::Odd
            } else {
                Name::Other
            });
        }
    }
    found.unwrap_or(Name::Odd)
}

#[cfg(test)]
mod tests;
