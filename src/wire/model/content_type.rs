//! The kind of a body, by its `Content-Type`.

use std::borrow::Cow;

use http::{HeaderMap, header::CONTENT_TYPE};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentType {
    Absent,
    Json,
    /// `multipart/form-data`.
    Form {
        boundary: Vec<u8>,
    },
    /// Any other type, and any value with two meanings.
    Other,
}

pub fn parse_content_type(headers: &HeaderMap) -> ContentType {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return ContentType::Absent,
        (Some(value), None) => value.to_str().unwrap_or_default(),
        _ => return ContentType::Other,
    };
    let (kind, rest) = value.split_once(';').unwrap_or((value, ""));
    let kind = kind.trim().to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return ContentType::Json;
    }
    if kind != "multipart/form-data" {
        return ContentType::Other;
    }
    let mut boundaries = parse_parameters(rest);
    // A reader of RFC 2231 takes `boundary*` for the boundary too.
    boundaries.retain(|parameter| parameter.begins_with("boundary"));
    match &boundaries[..] {
        // RFC 2046: a boundary has at most 70 characters.
        [only] if only.name.len() == 8 && (1..=70).contains(&only.value.len()) => {
            let boundary = only.value.as_bytes().to_vec();
            ContentType::Form { boundary }
        }
        _ => ContentType::Other,
    }
}

#[derive(Debug)]
pub(super) struct HeaderParameter<'v> {
    pub(super) name: &'v str,
    pub(super) value: Cow<'v, str>,
    /// Every reader sees the same value: it is a token, or quoted without escapes.
    pub(super) plain: bool,
}

impl HeaderParameter<'_> {
    /// Whether the name begins so, in any case.
    pub(super) fn begins_with(&self, start: &str) -> bool {
        let name = self.name.get(..start.len());
        name.is_some_and(|name| name.eq_ignore_ascii_case(start))
    }
}

/// The parameters of a header's value; `text` follows its first `;`.
pub(super) fn parse_parameters(text: &str) -> Vec<HeaderParameter<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        let Some(equals) = rest.find(['=', ';']) else {
            break;
        };
        let name = rest[..equals].trim();
        let Some(after) = rest[equals..].strip_prefix('=') else {
            rest = &rest[equals..];
            continue;
        };
        let after = after.trim_start_matches([' ', '\t']);
        let (value, plain, left) = match after.strip_prefix('"') {
            Some(quoted) => unquote_value(quoted),
            None => {
                let end = after.find(';').unwrap_or(after.len());
                let value = after[..end].trim();
                let token = |c: char| c.is_ascii_alphanumeric() || "!#$&'*+-.^_`|~".contains(c);
                let plain = !value.is_empty() && value.chars().all(token);
                (Cow::Borrowed(value), plain, &after[end..])
            }
        };
        found.push(HeaderParameter { name, value, plain });
        rest = left;
    }
    found
}

/// A quoted value behind its opening quote, whether it is plain, and the text behind it.
fn unquote_value(text: &str) -> (Cow<'_, str>, bool, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let left = &text[at + 1..];
                let ends = left.trim_start_matches([' ', '\t']);
                let clean = ends.is_empty() || ends.starts_with(';');
                let plain = clean && value.len() == at && !value.contains('%');
                return (value.into(), plain, left);
            }
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    (value.into(), false, "")
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, header::CONTENT_TYPE};

    use super::{ContentType, parse_content_type};

    #[test]
    fn the_kind_of_a_body_is_read_from_its_content_type() {
        let check = |lines: &[&str], expected: ContentType| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(CONTENT_TYPE, line.parse().unwrap());
            }
            assert_eq!(parse_content_type(&headers), expected, "{lines:?}");
        };
        let form = |boundary: &str| ContentType::Form {
            boundary: boundary.into(),
        };
        check(&[], ContentType::Absent);
        check(&["Application/JSON; charset=utf-8"], ContentType::Json);
        check(&["application/vnd.x+json"], ContentType::Json);
        check(&["text/plain"], ContentType::Other);
        check(&["application/json", "text/plain"], ContentType::Other);
        check(&["multipart/form-data; boundary=a-b"], form("a-b"));
        check(
            &["multipart/form-data;x=y; Boundary=\"a b;c\" ;z"],
            form("a b;c"),
        );
        check(
            &["multipart/form-data; boundary=a; boundary=b"],
            ContentType::Other,
        );
        check(
            &["multipart/form-data; boundary=a; Boundary*=utf-8''b"],
            ContentType::Other,
        );
        check(&["multipart/form-data; boundary*0=a"], ContentType::Other);
        check(&["multipart/form-data; boundary=\"\""], ContentType::Other);
        check(&["multipart/form-data"], ContentType::Other);
        check(&["multipart/mixed; boundary=a"], ContentType::Other);
    }
}
