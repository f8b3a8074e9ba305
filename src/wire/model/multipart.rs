//! The model of a form in parts (RFC 7578), as uploads of audio and images name it.
//!
//! Only spans are found, and no byte is written anew: what is around the model's value goes on as it
//! came. Never panics, whatever the bytes.

use memchr::memmem;

use super::{ModelLookup, ModelSpelling, NamedModel, content_type::parse_parameters};
use crate::json::scan::Span;

/// A model's name is shorter than this.
const MAX_NAME: usize = 1 << 10;

/// Looks for the part `model` in the beginning of a body, or in all of one. The part has to end in
/// what is looked at; of several the first counts.
///
/// It is [`Found::surely`] the only one where `body` is a whole form of the plainest kind.
pub fn find_model_in_multipart(body: &[u8], boundary: &[u8]) -> ModelLookup {
    let dash = [b"--", boundary].concat();
    let mut model = None;
    let mut candidates = 0;
    let mut clean = body.starts_with(&dash);
    let mut closed = false;
    // Where the line of the delimiter before ends, and the head of a part begins.
    let mut part = None;
    for begin in memmem::find_iter(body, &dash) {
        let end = begin + dash.len();
        let begins_line = begin == 0 || body[..begin].ends_with(b"\r\n");
        let closes = body[end..].starts_with(b"--");
        let line = find_line_end(body, end);
        // A boundary that stands anywhere else is one to some reader, and so is a longer word that begins with it.
        if closed || !begins_line || !(closes || line.is_some()) {
            clean = false;
            continue;
        }
        if let Some(start) = part {
            let Some((head, value)) = split_part(body, start, begin - 2) else {
                clean = false;
                break;
            };
            let name = parse_part_name(&body[head.range()]);
            clean &= name != PartName::Odd;
            candidates += usize::from(name != PartName::Other);
            if name == PartName::Model && model.is_none() {
                model = read_model(body, value);
            }
        }
        (closed, part) = (closes, line);
    }
    let one = candidates == usize::from(model.is_some());
    ModelLookup {
        is_certain: clean && closed && one,
        model,
    }
}

/// Head and value of the part between the end of a delimiter's line and the line break before the next one.
/// `None`: its head has no end.
fn split_part(body: &[u8], start: usize, end: usize) -> Option<(Span, Span)> {
    // The line break of the delimiter's own line may be the first half of an empty head's end.
    let head_end = start + memmem::find(body.get(start..end)?, b"\r\n\r\n")?;
    Some((Span::new(start, head_end), Span::new(head_end + 4, end)))
}

fn read_model(body: &[u8], value: Span) -> Option<NamedModel> {
    let model = std::str::from_utf8(&body[value.range()]).ok()?;
    (!model.is_empty() && model.len() <= MAX_NAME).then(|| NamedModel {
        model: model.to_owned(),
        span: value,
        spelling: ModelSpelling::Plain,
    })
}

/// Where the line break stands that ends a delimiter's line.
fn find_line_end(body: &[u8], at: usize) -> Option<usize> {
    let padding = body.get(at..)?.iter();
    let padding = padding.take_while(|byte| matches!(byte, b' ' | b'\t'));
    let end = at + padding.count();
    body[end..].starts_with(b"\r\n").then_some(end)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartName {
    Model,
    /// It is another's.
    Other,
    /// It may be read as the model's.
    Odd,
}

/// What a part's head says that it is.
fn parse_part_name(head: &[u8]) -> PartName {
    let Ok(head) = std::str::from_utf8(head) else {
        return PartName::Odd;
    };
    let mut name = None;
    for line in head.split("\r\n").filter(|line| !line.is_empty()) {
        let Some((field, value)) = line.split_once(':') else {
            return PartName::Odd;
        };
        let field_is_plain = field
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let plain = field_is_plain && !value.contains(['\r', '\n']);
        if !plain || field.eq_ignore_ascii_case("content-transfer-encoding") {
            return PartName::Odd;
        }
        if field.eq_ignore_ascii_case("content-disposition") {
            let (kind, rest) = value.split_once(';').unwrap_or((value, ""));
            if name.is_some() || !kind.trim().eq_ignore_ascii_case("form-data") {
                return PartName::Odd;
            }
            name = Some(parse_disposition(rest));
        }
    }
    name.unwrap_or(PartName::Odd)
}

fn parse_disposition(text: &str) -> PartName {
    let mut found = None;
    for parameter in parse_parameters(text) {
        // `name*` is the name, too, to who reads RFC 5987.
        if parameter
            .name
            .get(..4)
            .is_some_and(|name| name.eq_ignore_ascii_case("name"))
        {
            if found.is_some() || !parameter.plain || parameter.name != "name" {
                return PartName::Odd;
            }
            let value = parameter.value.trim().trim_end_matches("[]");
            found = Some(if parameter.value == "model" {
                PartName::Model
            } else if value.eq_ignore_ascii_case("model") {
                PartName::Odd
            } else {
                PartName::Other
            });
        }
    }
    found.unwrap_or(PartName::Odd)
}

#[cfg(test)]
mod tests;
