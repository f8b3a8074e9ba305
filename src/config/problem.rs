//! What is wrong with the settings: where, which value, and what to write instead.
//!
//! Values that may be a secret in the wrong place (a key pasted where its digest or its variable's
//! name belongs) are left out by whoever makes the [`Problem`].

use std::fmt;

/// Longer names of keys, providers and texts are not compared.
const MAX_KEY_BYTES: usize = 256;

/// One wrong or doubtful setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, variable or flag it was written in; `None` for a default or a missing key.
    pub origin: Option<String>,
    /// Dotted, as in TOML: `models."gpt-4.1".context_length`. Empty for a whole file.
    pub key: String,
    /// As TOML would spell it; `None` where there is none or it must not be shown.
    pub value: Option<String>,
    /// What is wrong, then what to do.
    pub message: String,
}

impl Problem {
    /// Of a setting whose value is not shown.
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
    /// Of a whole file.
    pub(super) fn for_file(file: impl fmt::Display, message: impl Into<String>) -> Self {
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

/// Everything that was found wrong at once, one per line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// The dotted spelling of a path; parts that TOML would not take bare are quoted.
pub(super) fn format_key_path<S: AsRef<str>>(path: &[S]) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    path.iter()
        .map(|part| match part.as_ref() {
            part if !part.is_empty() && part.chars().all(bare) => part.to_owned(),
            part => format!("{part:?}"),
        })
        .collect::<Vec<_>>()
        .join(".")
}

/// The known key that `unknown` was most likely meant to be. A name longer than any key is far from all, so
/// that a hostile file costs nothing.
pub(super) fn find_nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    if unknown.len() > MAX_KEY_BYTES {
        return None;
    }
    let reach = (unknown.chars().count() / 3).max(2);
    known
        .iter()
        .map(|known| (strsim::levenshtein(unknown, known), *known))
        .filter(|(distance, known)| {
            // `api_key` for `api_key_env`: far in letters, plainly the same thing.
            *distance <= reach || (unknown.len() > 3 && known.starts_with(unknown))
        })
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::{find_nearest, format_key_path};

    #[test]
    fn a_misspelt_key_finds_its_neighbour() {
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
    fn only_parts_that_need_it_are_quoted() {
        assert_eq!(format_key_path(&["server", "listen"]), "server.listen");
        assert_eq!(
            format_key_path(&["models", "openai/gpt-4.1", "provider"]),
            "models.\"openai/gpt-4.1\".provider"
        );
    }
}
