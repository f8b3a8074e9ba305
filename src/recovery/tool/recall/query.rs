//! The arguments of a call of `recall`, with the mistakes that models make.

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::{
    guard::{
        line_range::parse_lines,
        recall_id::{EARLIER, RecallId},
    },
    recovery::tool::arguments,
};

/// Bounds on a pattern: characters, bytes of its compiled form and of its cache, and nesting. The time of a search
/// grows with the text and with the compiled form, never with more than their product.
const MAX_PATTERN_CHARS: usize = 300;
const MAX_COMPILED_BYTES: usize = 256 << 10;
const MAX_CACHE_BYTES: usize = 1 << 20;
const MAX_NESTING: u32 = 50;
/// Characters of the engine's message about a pattern.
const MAX_ERROR_CHARS: usize = 300;

pub(super) struct RecallQuery {
    /// The place of the message without system messages; `None` for all that was left out.
    pub(super) place: Option<usize>,
    /// The first and the last line, counted from 1.
    pub(super) lines: Option<(usize, usize)>,
    pub(super) pattern: Option<Regex>,
}

impl RecallQuery {
    /// # Errors
    /// If an argument cannot be used; the message is for the model.
    pub(super) fn from_json(json: &str) -> Result<Self, String> {
        let members = arguments::parse_members(json)?;
        let argument = |name| members.get(name).filter(|value| !value.is_null());
        let place = match argument("id") {
            Some(Value::String(id)) => parse_id(id),
            Some(Value::Number(number)) => parse_id(&number.to_string()),
            _ => None,
        };
        let place = place.ok_or_else(|| {
            format!(
                "id is missing. Give the id that a placeholder names, such as m17 or {EARLIER}."
            )
        })?;
        let lines = match argument("lines") {
            None => None,
            Some(Value::String(lines)) if lines.trim().is_empty() => None,
            Some(Value::String(lines)) => Some(read_lines(lines)?),
            Some(other) => Some(read_lines(&other.to_string())?),
        };
        let pattern = match argument("pattern") {
            None => None,
            Some(Value::String(pattern)) if pattern.is_empty() => None,
            Some(Value::String(pattern)) => Some(compile_pattern(pattern)?),
            Some(_) => return Err("pattern is no string.".to_owned()),
        };
        Ok(Self {
            place,
            lines,
            pattern,
        })
    }
}

/// The place that an id names, or `Some(None)` if it names everything that was left out.
fn parse_id(id: &str) -> Option<Option<usize>> {
    let id = id
        .trim()
        .trim_start_matches(['[', '#'])
        .trim_end_matches(']');
    if id.eq_ignore_ascii_case(EARLIER) {
        Some(None)
    } else {
        // An id that names no place is answered like the id of an absent message.
        Some(Some(RecallId::parse_place(id).unwrap_or(usize::MAX)))
    }
}

fn read_lines(lines: &str) -> Result<(usize, usize), String> {
    let why = "lines is no range. Write it such as \"120-180\".";
    parse_lines(lines).ok_or_else(|| why.to_owned())
}

fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    if pattern.chars().count() > MAX_PATTERN_CHARS {
        return Err(format!(
            "the pattern is too long; write one of at most {MAX_PATTERN_CHARS} characters."
        ));
    }
    RegexBuilder::new(pattern)
        .case_insensitive(!has_capital(pattern))
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_CACHE_BYTES)
        .nest_limit(MAX_NESTING)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                "the pattern is too large once compiled; write a simpler one.".to_owned()
            }
            error => {
                let why: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
                format!("the pattern is no regular expression: {why}")
            }
        })
}

/// Whether a pattern has a capital letter that is no escape such as `\S`.
fn has_capital(pattern: &str) -> bool {
    let mut escaped = false;
    pattern.chars().any(|c| {
        let plain = !std::mem::take(&mut escaped);
        escaped = plain && c == '\\';
        plain && c.is_uppercase()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_bounded_and_ignore_case_without_capitals() {
        assert!(compile_pattern("error").unwrap().is_match("An ERROR"));
        assert!(compile_pattern(r"\Serror").unwrap().is_match("xERROR"));
        assert!(!compile_pattern("Error").unwrap().is_match("an error"));
        for pattern in [
            "(",
            "[z-a]",
            "(?<=a)b",
            &"(".repeat(200),
            &"a".repeat(301),
            r"(\w{500}){100}",
        ] {
            assert!(compile_pattern(pattern).is_err(), "{pattern}");
        }
    }
}
