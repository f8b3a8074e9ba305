//! Problems of the settings: where, which value, and what to write instead.
//!
//! SECURITY: the code that makes a [`Problem`] leaves out a value that may be a misplaced secret, such as a key
//! in the place of its digest or of its variable's name.

use std::fmt;

use serde::Serialize;

/// Longer names are not compared with known names, so that a hostile file costs no time.
const MAX_KEY_BYTES: usize = 256;

/// An error in a setting, or a warning about one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, variable or flag that sets it; `None` for a default or a missing key.
    pub origin: Option<String>,
    /// Dotted, as in TOML: `models."gpt-4.1".context_length`. Empty for a whole file.
    pub key: String,
    /// In the spelling of TOML; `None` where there is no value or it must not be shown.
    pub value: Option<String>,
    /// What is wrong, then what to do.
    pub message: String,
}

impl Problem {
    /// A problem without an origin and a value.
    pub(crate) fn for_key<S: AsRef<str>>(path: &[S], message: impl Into<String>) -> Self {
        Self {
            origin: None,
            key: format_key_path(path),
            value: None,
            message: message.into(),
        }
    }
}

impl Problems {
    /// The only problem of a file that cannot be read or parsed.
    pub(crate) fn for_file(file: impl fmt::Display, message: impl Into<String>) -> Self {
        Self(vec![Problem {
            origin: Some(file.to_string()),
            ..Problem::for_key::<&str>(&[], message)
        }])
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        match (self.key.as_str(), &self.value) {
            ("", _) => {}
            (key, Some(value)) => write!(f, "{key} = {value}: ")?,
            (key, None) => write!(f, "{key}: ")?,
        }
        f.write_str(&self.message)
    }
}

/// All problems of the settings; printed one per line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// The dotted spelling of a path. Parts that are not bare keys in TOML are quoted.
pub(crate) fn format_key_path<S: AsRef<str>>(path: &[S]) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    path.iter()
        .map(|part| match part.as_ref() {
            part if !part.is_empty() && part.chars().all(bare) => part.to_owned(),
            part => format!("{part:?}"),
        })
        .collect::<Vec<_>>()
        .join(".")
}

/// The known name that is most similar to `unknown`, if any is similar enough to suggest it.
pub(crate) fn find_nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    if unknown.len() > MAX_KEY_BYTES {
        return None;
    }
    let max_distance = (unknown.chars().count() / 3).max(2);
    let distances = known
        .iter()
        .map(|known| (strsim::levenshtein(unknown, known), *known));
    let similar = distances.filter(|(distance, known)| {
        // The beginning of a name is similar too: `api_key` for `api_key_env`.
        *distance <= max_distance || (unknown.len() > 3 && known.starts_with(unknown))
    });
    similar.min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use crate::config::loading::problem::{find_nearest, format_key_path};

    #[test]
    fn a_misspelt_key_suggests_the_most_similar_one() {
        let known = ["listen", "max_body_bytes", "api_key_env", "auth"];
        assert_eq!(find_nearest("lisen", &known), Some("listen"));
        assert_eq!(
            find_nearest("max_body_byte", &known),
            Some("max_body_bytes")
        );
        assert_eq!(find_nearest("api_key", &known), Some("api_key_env"));
        assert_eq!(find_nearest("colour", &known), None);
        assert_eq!(find_nearest(&"x".repeat(1_000_000), &known), None);
    }

    #[test]
    fn parts_that_are_no_bare_keys_are_quoted() {
        assert_eq!(format_key_path(&["server", "listen"]), "server.listen");
        assert_eq!(
            format_key_path(&["models", "openai/gpt-4.1", "provider"]),
            "models.\"openai/gpt-4.1\".provider"
        );
    }
}
