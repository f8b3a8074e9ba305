//! What a body is, by its `Content-Type`.

use std::borrow::Cow;

use http::{HeaderMap, header::CONTENT_TYPE};

/// A kind of body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Media {
    /// It says nothing of itself.
    Unsaid,
    Json,
    /// `multipart/form-data`.
    Form {
        boundary: Vec<u8>,
    },
    /// Anything else, and whatever says two things at once.
    Other,
}

/// What the headers say of a body.
pub fn media(headers: &HeaderMap) -> Media {
    let mut said = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (said.next(), said.next()) else {
        return match headers.contains_key(CONTENT_TYPE) {
            true => Media::Other,
            false => Media::Unsaid,
        };
    };
    let Ok(value) = value.to_str() else {
        return Media::Other;
    };
    let (kind, rest) = value.split_once(';').unwrap_or((value, ""));
    let kind = kind.trim().to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Media::Json;
    }
    if kind != "multipart/form-data" {
        return Media::Other;
    }
    let boundaries: Vec<_> = parameters(rest)
        .into_iter()
        // `boundary*` is the boundary, too, to who reads RFC 2231.
        .filter(|parameter| {
            let start = parameter.name.get(..8);
            start.is_some_and(|name| name.eq_ignore_ascii_case("boundary"))
        })
        .collect();
    match &boundaries[..] {
        // RFC 2046 gives a boundary 70 characters at most.
        [one] if one.name.len() == 8 && (1..=70).contains(&one.value.len()) => Media::Form {
            boundary: one.value.as_bytes().to_vec(),
        },
        _ => Media::Other,
    }
}

/// One parameter of a header's value.
#[derive(Debug)]
pub(super) struct Parameter<'v> {
    pub(super) name: &'v str,
    pub(super) value: Cow<'v, str>,
    /// Whether every reader sees this value: it is a token, or quoted without escapes.
    pub(super) plain: bool,
}

/// The parameters of a header's value; `text` follows its first `;`.
pub(super) fn parameters(text: &str) -> Vec<Parameter<'_>> {
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
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(';').unwrap_or(after.len());
                let value = after[..end].trim();
                let token = |c: char| c.is_ascii_alphanumeric() || "!#$&'*+-.^_`|~".contains(c);
                let plain = !value.is_empty() && value.chars().all(token);
                (Cow::Borrowed(value), plain, &after[end..])
            }
        };
        found.push(Parameter { name, value, plain });
        rest = left;
    }
    found
}

/// A quoted value whose opening quote is taken; whether it is plain; and what follows it.
fn unquote(text: &str) -> (Cow<'_, str>, bool, &str) {
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

    use super::{Media, media};

    #[test]
    fn a_body_is_what_its_type_says() {
        let check = |lines: &[&str], expected: Media| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(CONTENT_TYPE, line.parse().unwrap());
            }
            assert_eq!(media(&headers), expected, "{lines:?}");
        };
        let form = |boundary: &str| Media::Form {
            boundary: boundary.into(),
        };
        check(&[], Media::Unsaid);
        check(&["Application/JSON; charset=utf-8"], Media::Json);
        check(&["application/vnd.x+json"], Media::Json);
        check(&["text/plain"], Media::Other);
        check(&["application/json", "text/plain"], Media::Other);
        check(&["multipart/form-data; boundary=a-b"], form("a-b"));
        check(
            &["multipart/form-data;x=y; Boundary=\"a b;c\" ;z"],
            form("a b;c"),
        );
        check(
            &["multipart/form-data; boundary=a; boundary=b"],
            Media::Other,
        );
        check(
            &["multipart/form-data; boundary=a; Boundary*=utf-8''b"],
            Media::Other,
        );
        check(&["multipart/form-data; boundary*0=a"], Media::Other);
        check(&["multipart/form-data; boundary=\"\""], Media::Other);
        check(&["multipart/form-data"], Media::Other);
        check(&["multipart/mixed; boundary=a"], Media::Other);
    }
}
