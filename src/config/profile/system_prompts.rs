//! Models that take a `system` message in the midst of a conversation in Anthropic's Messages.

/// A family of models, and its first version that takes them.
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

/// Claude Sonnet 5 does not.
const FIRST_VERSIONS: &[FirstVersion] = &[
    first_version("claude-opus-", 4, 8),
    first_version("claude-fable-", 5, 0),
    first_version("claude-mythos-", 5, 0),
];

/// Whether a model does, by its name, whatever its vendor or region before it and its date behind it.
pub(super) fn takes_system_prompts(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    FIRST_VERSIONS.iter().any(|first| {
        let version = model.find(first.family).map(|at| at + first.family.len());
        version.is_some_and(|at| {
            let mut numbers = model[at..].split(['-', '.']).map(read_version);
            let major = numbers.next().flatten();
            let minor = numbers.next().flatten().unwrap_or(0);
            major.is_some_and(|major| (major, minor) >= (first.major, first.minor))
        })
    })
}

/// The number at the beginning of a part of a name; `None` for a date.
fn read_version(part: &str) -> Option<u32> {
    let end = part.find(|it: char| !it.is_ascii_digit());
    let digits = &part[..end.unwrap_or(part.len())];
    digits.parse().ok().filter(|_| digits.len() <= 2)
}

#[cfg(test)]
mod tests {
    use super::takes_system_prompts;

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
}
