//! The model of a multipart form (RFC 7578), as in uploads of audio and images.
//!
//! It finds spans only, so the bytes around the model's value stay unchanged. It never panics, whatever the bytes.

use memchr::memmem;

use super::{ModelLookup, ModelSpelling, NamedModel, content_type::parse_parameters};
use crate::json::scan::Span;

const MAX_NAME_BYTES: usize = 1 << 10;

/// Looks for the part `model` in a body or the beginning of one. The part must end within `body`; the first of
/// several counts. The lookup is certain only if `body` is a whole form without oddities.
pub fn find_model_in_multipart(body: &[u8], boundary: &[u8]) -> ModelLookup {
    let dash = [b"--", boundary].concat();
    let mut model = None;
    let mut candidates = 0;
    let mut clean = body.starts_with(&dash);
    let mut closed = false;
    // The end of the last delimiter's line, where the head of a part begins.
    let mut part = None;
    for begin in memmem::find_iter(body, &dash) {
        let end = begin + dash.len();
        let begins_line = begin == 0 || body[..begin].ends_with(b"\r\n");
        let closes = body[end..].starts_with(b"--");
        let line = find_line_end(body, end);
        // Some readers take a boundary at any other position, and a longer word that begins with it, for a delimiter.
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
    ModelLookup {
        is_certain: clean && closed && candidates == usize::from(model.is_some()),
        model,
    }
}

/// Head and value of the part between the end of a delimiter's line and the line break before the next delimiter;
/// `None` if the head has no end.
fn split_part(body: &[u8], start: usize, end: usize) -> Option<(Span, Span)> {
    // The line break of the delimiter may be the first half of an empty head's end.
    let head_end = start + memmem::find(body.get(start..end)?, b"\r\n\r\n")?;
    Some((Span::new(start, head_end), Span::new(head_end + 4, end)))
}

fn read_model(body: &[u8], value: Span) -> Option<NamedModel> {
    let model = std::str::from_utf8(&body[value.range()]).ok()?;
    (1..=MAX_NAME_BYTES)
        .contains(&model.len())
        .then(|| NamedModel {
            model: model.to_owned(),
            span: value,
            spelling: ModelSpelling::Plain,
        })
}

/// The position of the line break that ends a delimiter's line.
fn find_line_end(body: &[u8], at: usize) -> Option<usize> {
    let padding = body.get(at..)?.iter();
    let padding = padding.take_while(|byte| matches!(byte, b' ' | b'\t'));
    let end = at + padding.count();
    body[end..].starts_with(b"\r\n").then_some(end)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartName {
    Model,
    Other,
    /// Some readers may take the part for the model.
    Odd,
}

fn parse_part_name(head: &[u8]) -> PartName {
    let Ok(head) = std::str::from_utf8(head) else {
        return PartName::Odd;
    };
    let mut name = None;
    for line in head.split("\r\n").filter(|line| !line.is_empty()) {
        let Some((field, value)) = line.split_once(':') else {
            return PartName::Odd;
        };
        let odd_byte = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'-';
        if field.bytes().any(odd_byte)
            || value.contains(['\r', '\n'])
            || field.eq_ignore_ascii_case("content-transfer-encoding")
        {
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
    let mut names = parse_parameters(text);
    // A reader of RFC 5987 takes `name*` for the name too.
    names.retain(|parameter| parameter.begins_with("name"));
    let [only] = &names[..] else {
        return PartName::Odd;
    };
    let value = only.value.trim().trim_end_matches("[]");
    match &*only.value {
        _ if !only.plain || only.name != "name" => PartName::Odd,
        "model" => PartName::Model,
        _ if value.eq_ignore_ascii_case("model") => PartName::Odd,
        _ => PartName::Other,
    }
}

#[cfg(test)]
mod tests;
