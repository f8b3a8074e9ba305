//! A value of the wrong type, in the words of someone who writes a settings file.

use figment::error::Kind;

use super::problem::find_nearest;

/// What a section must be.
pub(super) const WRITE_SECTION: &str = "has the wrong type; write a section of keys";

/// Says what does not fit. The value is shown only where it can be no secret, by the name of its key.
pub(super) fn explain_misfit(kind: &Kind, key: &str) -> String {
    let secret = ["key", "url", "token", "auth"]
        .iter()
        .any(|part| key.contains(part) && !key.ends_with("_tokens"));
    match kind {
        Kind::UnknownField(name, known) => explain_unknown(name, known),
        // Text where a section belongs may be the key that the section was to hold.
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected)
            if secret || is_section(expected) =>
        {
            format!("has the wrong type; write {}", describe_expected(expected))
        }
        Kind::InvalidType(found, expected) => {
            format!("found {found}; write {}", describe_expected(expected))
        }
        Kind::InvalidValue(found, expected) => {
            let wanted = describe_expected(expected);
            format!("found {found}, which is out of range; write {wanted}")
        }
        Kind::UnknownVariant(_, known) => {
            let known = known.iter().map(|choice| format!("\"{choice}\""));
            let known = known.collect::<Vec<_>>().join(", ");
            format!("not one of the choices; write one of {known}")
        }
        _ if secret => "cannot be read".to_owned(),
        other => other.to_string(),
    }
}

/// Says which key may have been meant.
pub(super) fn explain_unknown(name: &str, known: &[&str]) -> String {
    match find_nearest(name, known) {
        Some(near) => format!("unknown key; did you mean {near}?"),
        None => format!("unknown key; known here are {}", known.join(", ")),
    }
}

fn is_section(expected: &str) -> bool {
    expected.starts_with("struct ") || expected == "a map"
}

/// What serde expected, in the words of a settings file.
fn describe_expected(expected: &str) -> &str {
    match expected {
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list in [ ]",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "f64" => "a number",
        other if is_section(other) => "a section of keys",
        other => other,
    }
}
