//! Messages about values of the wrong type and unknown keys, in the terms of TOML.

use figment::error::Kind;

use crate::config::loading::problem::find_nearest;

/// The message for a value in the place of a section.
pub(crate) const WRITE_SECTION: &str = "has the wrong type; write a section of keys";

/// What is wrong with a value, and what to write. The value is shown only where the name of its key shows that
/// it is not a secret.
pub(crate) fn explain_type_error(kind: &Kind, key: &str) -> String {
    let secret = ["key", "url", "token", "auth"]
        .iter()
        .any(|part| key.contains(part) && !key.ends_with("_tokens"));
    match kind {
        Kind::UnknownField(name, known) => explain_unknown(name, known),
        // SECURITY: text in the place of a section may be the key that the section should hold.
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
            let known: Vec<_> = known.iter().map(|choice| format!("{choice:?}")).collect();
            format!("not one of the choices; write one of {}", known.join(", "))
        }
        _ if secret => "cannot be read".to_owned(),
        other => other.to_string(),
    }
}

/// The message for an unknown key: the known key with the most similar name, or all known keys.
pub(crate) fn explain_unknown(name: &str, known: &[&str]) -> String {
    match find_nearest(name, known) {
        Some(near) => format!("unknown key; did you mean {near}?"),
        None => format!("unknown key; known here are {}", known.join(", ")),
    }
}

fn is_section(expected: &str) -> bool {
    expected.starts_with("struct ") || expected == "a map"
}

/// The type that serde expected, in the terms of TOML.
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
