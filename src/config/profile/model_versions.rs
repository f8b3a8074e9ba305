//! What an API does by the model's family and version, whatever its vendor or region before the name and its date
//! behind it.

use super::PastReasoning;

/// A family of models, and its first version that does something. Later versions do it too.
struct FirstVersion {
    family: &'static str,
    major: u32,
    minor: u32,
}

const fn first_version(family: &'static str, major: u32, minor: u32) -> FirstVersion {
    FirstVersion {
        family,
        major,
        minor,
    }
}

/// Models that take a `system` message in the midst of a conversation in Anthropic's Messages, and tools in it. Claude
/// Sonnet 5 does not.
const TAKE_SYSTEM_PROMPTS: &[FirstVersion] = &[
    first_version("claude-opus-", 4, 8),
    first_version("claude-sonnet-", 5, 5),
    first_version("claude-haiku-", 5, 5),
    first_version("claude-fable-", 5, 0),
    first_version("claude-mythos-", 5, 0),
];

/// Models whose thinking is bound to what stood before it (Anthropic's "Preserved thinking", since 31 August 2026).
/// Opus 5, Sonnet 5, Fable 5 and all of version 4 are not.
const BIND_THINKING: &[FirstVersion] = &[
    first_version("claude-opus-", 5, 5),
    first_version("claude-sonnet-", 5, 5),
    first_version("claude-haiku-", 5, 5),
    first_version("claude-fable-", 5, 1),
    first_version("claude-mythos-", 5, 1),
];

/// Models for which the API leaves out reasoning behind a changed place (OpenAI's "Preserved reasoning", since
/// 17 November 2026).
const DROP_REASONING: &[FirstVersion] = &[first_version("gpt-", 6, 2)];

pub(super) fn takes_system_prompts(model: &str) -> bool {
    is_any_of(TAKE_SYSTEM_PROMPTS, model)
}

pub(super) fn find_past_reasoning(model: &str) -> PastReasoning {
    if is_any_of(BIND_THINKING, model) {
        PastReasoning::Refused
    } else if is_any_of(DROP_REASONING, model) {
        PastReasoning::Dropped
    } else {
        PastReasoning::Read
    }
}

/// Whether a model is of one of these families, and not older than its first version.
fn is_any_of(rows: &[FirstVersion], model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    rows.iter().any(|first| {
        let version = model.find(first.family).map(|at| at + first.family.len());
        version.is_some_and(|at| {
            let mut numbers = model[at..].split(['-', '.']).map(read_version);
            let major = numbers.next().flatten();
            let minor = numbers.next().flatten().unwrap_or(0);
            major.is_some_and(|major| (major, minor) >= (first.major, first.minor))
        })
    })
}

/// The number at the beginning of a part of a name; `None` for a date, and for a size such as `32k`.
fn read_version(part: &str) -> Option<u32> {
    let end = part.find(|it: char| !it.is_ascii_digit());
    let (digits, rest) = part.split_at(end.unwrap_or(part.len()));
    let is_size = rest.starts_with(|it: char| it.is_ascii_alphabetic());
    digits
        .parse()
        .ok()
        .filter(|_| digits.len() <= 2 && !is_size)
}

#[cfg(test)]
mod tests {
    use super::{super::PastReasoning, find_past_reasoning, takes_system_prompts};

    #[test]
    fn the_version_decides() {
        for model in [
            "claude-opus-4-8",
            "claude-opus-4-8-20260514",
            "claude-opus-5",
            "claude-opus-5-20260901",
            "anthropic/claude-opus-4.8",
            "us.anthropic.claude-opus-4-10-v1:0",
            "claude-opus-5@20260901",
            "claude-sonnet-5-5",
            "claude-haiku-5-5@20260921",
            "Claude-Fable-5",
            "claude-mythos-5-1",
        ] {
            assert!(takes_system_prompts(model), "{model}");
        }
        for model in [
            "claude-opus-4-7",
            "claude-opus-4-20250514",
            "claude-opus-4-1-20250805",
            "claude-sonnet-5",
            "claude-haiku-4-5",
            "claude-opus-latest",
            "claude-opus-",
            "claude-3-opus-20240229",
            "gpt-5",
            "",
        ] {
            assert!(!takes_system_prompts(model), "{model}");
        }
    }

    #[test]
    fn bound_reasoning_begins_with_a_version() {
        for (model, past) in [
            ("claude-opus-5-5", PastReasoning::Refused),
            ("anthropic.claude-opus-5-5", PastReasoning::Refused),
            (
                "us.anthropic.claude-sonnet-5-5-v1:0",
                PastReasoning::Refused,
            ),
            ("claude-haiku-5-5@20260921", PastReasoning::Refused),
            ("anthropic/claude-opus-5.5", PastReasoning::Refused),
            ("claude-sonnet-5-5[1m]", PastReasoning::Refused),
            ("claude-opus-6", PastReasoning::Refused),
            ("claude-fable-5-1", PastReasoning::Refused),
            ("claude-sonnet-5-32k", PastReasoning::Read),
            ("claude-opus-5", PastReasoning::Read),
            ("claude-opus-5-20260901", PastReasoning::Read),
            ("claude-sonnet-5@20260901", PastReasoning::Read),
            ("claude-haiku-4-5", PastReasoning::Read),
            ("claude-fable-5", PastReasoning::Read),
            ("gpt-6.2-sol", PastReasoning::Dropped),
            ("openai/gpt-6.2-astra", PastReasoning::Dropped),
            ("gpt-7", PastReasoning::Dropped),
            ("gpt-6.1-sol", PastReasoning::Read),
            ("gpt-6-astra", PastReasoning::Read),
            ("gpt-5.6-sol", PastReasoning::Read),
            ("gpt-4o", PastReasoning::Read),
            ("", PastReasoning::Read),
        ] {
            assert_eq!(find_past_reasoning(model), past, "{model}");
        }
    }
}
