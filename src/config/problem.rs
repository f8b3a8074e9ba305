//! What is wrong with the settings: where, which value, and what to write instead.
//!
//! Values that may be a secret in the wrong place (a key pasted where its digest or its variable's
//! name belongs) are left out by whoever makes the [`Problem`].

use std::fmt;

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
pub(super) fn dotted<S: AsRef<str>>(path: &[S]) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    path.iter()
        .map(|part| match part.as_ref() {
            part if !part.is_empty() && part.chars().all(bare) => part.to_owned(),
            part => format!("{part:?}"),
        })
        .collect::<Vec<_>>()
        .join(".")
}

/// The known key that `unknown` was most likely meant to be.
pub(super) fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let reach = (unknown.chars().count() / 3).max(2);
    known
        .iter()
        .map(|known| (distance(unknown, known), *known))
        .filter(|(distance, known)| {
            // `api_key` for `api_key_env`: far in letters, plainly the same thing.
            *distance <= reach || (unknown.len() > 3 && known.starts_with(unknown))
        })
        .min()
        .map(|(_, known)| known)
}

/// Insertions, deletions and replacements between two names (Levenshtein). A name longer than
/// any key of ours is taken as far from all, so that a hostile file costs nothing.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(65).collect(), b.chars().collect());
    if a.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = corner + usize::from(from != to);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, dotted, nearest};

    #[test]
    fn a_misspelt_key_finds_its_neighbour() {
        let known = ["listen", "max_body_bytes", "api_key_env", "auth"];
        assert_eq!(nearest("lisen", &known), Some("listen"));
        assert_eq!(nearest("max_body_byte", &known), Some("max_body_bytes"));
        assert_eq!(nearest("api_key", &known), Some("api_key_env"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), &known), None);
    }

    #[test]
    fn the_distance_is_symmetric_and_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("sitting", "kitten"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    #[test]
    fn only_parts_that_need_it_are_quoted() {
        assert_eq!(dotted(&["server", "listen"]), "server.listen");
        assert_eq!(
            dotted(&["models", "openai/gpt-4.1", "provider"]),
            "models.\"openai/gpt-4.1\".provider"
        );
    }
}
