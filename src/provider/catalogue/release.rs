//! The endings of a model's name that only mark a release, such as a date.
//!
//! A release has the window of its model: `gpt-4o-2024-08-06` is `gpt-4o`. Other endings may mean another
//! window (`-32k`, `-mini`, `:8b`), so only those listed here are removed. A release with a different
//! window has its own row in the table (`gpt-4-1106-preview`), which is found first. Any other ending is taken for
//! somebody's own word, such as that of a deployment, and is removed last.

use std::sync::LazyLock;

use regex::Regex;

pub(super) const SEPARATORS: [char; 4] = ['-', ':', '@', '_'];

/// Kinds that makers give a smaller window than the model they are made from, separated by spaces.
const SMALLER_KINDS: &str = "air distill lite micro mini nano small tiny";
/// The same of kinds that are models of their own.
const OTHER_KINDS: &str = "audio character chat code codex coder embed embedding flash image instruct \
    large live long max medium pro spark tts turbo ultra vision";

/// Dates in one word have eight digits, six, or four: month and day (`0613`) or year and month (`2407`).
static RELEASE: LazyLock<Regex> = LazyLock::new(|| {
    let (month, day, year) = ("(0[1-9]|1[0-2])", "(0[1-9]|[12][0-9]|3[01])", "20[0-9]{2}");
    let by = "[-:@_]";
    let pattern = format!(
        r"(?x-u) ^(
            # OpenRouter's words for how it picks one of a model's providers.
            :(nitro|floor|online|exacto)
            | ({by}(
                (
                    {year}{by}{month}{by}{day} | {month}{by}{year}
                    | {year}{month}{day} | [23][0-9]{month}{day} | {month}{day} | [23][0-9]{month}
                    # Google's numbers of releases.
                    | 0[0-9]{{2}}
                )
                # Amazon Bedrock's: `-20240620-v1:0`.
                ({by}v[0-9]({by}[0-9])?)?
                # Without a date, it has both numbers: `-v3` alone is another model.
                | v[0-9]:[0-9]
                # The state of a release: `default` is Google Vertex's. Gemini's previews have no year: `-preview-05-06`.
                | (latest|preview|exp|beta|default)({by}{month}{by}{day})?
            ))+
        )$"
    );
    Regex::new(&pattern).expect("a test uses it")
});

/// The name itself, then every shorter one of which it is a release, the longest first.
pub(super) fn base_names(model: &str) -> impl Iterator<Item = &str> {
    let ends = model.rmatch_indices(SEPARATORS).map(|(end, _)| end);
    let shorter = ends.filter(|&end| is_release(&model[end..]));
    std::iter::once(model).chain(shorter.map(|end| &model[..end]))
}

/// The name without anything that only marks a release.
pub(super) fn shortest_base_name(model: &str) -> &str {
    base_names(model).last().unwrap_or(model)
}

/// Shorter names that end where a separator follows, the longest first: of a deployment or a variant, such as
/// `gpt-4o-eu` of `gpt-4o`. None before a part that states a size or a version, or names another kind.
pub(super) fn prefixes(model: &str) -> impl Iterator<Item = &str> {
    let vendor = model.rfind('/').map_or(0, |slash| slash + 1);
    let mut parts_end = model.len();
    let ends = model.rmatch_indices(SEPARATORS).map(|(end, _)| end);
    let ends = ends.take_while(move |&end| {
        let part = &model[end + 1..std::mem::replace(&mut parts_end, end)];
        end > vendor && !names_another_model(part)
    });
    ends.map(|end| &model[..end])
}

/// Whether a part of a name states a size or a version, or names a kind with a window of its own.
fn names_another_model(part: &str) -> bool {
    let version = part.strip_prefix('v').unwrap_or(part);
    version.starts_with(|first: char| first.is_ascii_digit())
        || states_size(part)
        || is_smaller_kind(part)
        || OTHER_KINDS.split(' ').any(|kind| kind == part)
}

pub(super) fn is_smaller_kind(part: &str) -> bool {
    SMALLER_KINDS.split(' ').any(|kind| kind == part)
}

/// Whether a part of a name is a size: `32k`, `8b`, `a22b`, `1m`, or a number of three digits or more.
pub(super) fn states_size(part: &str) -> bool {
    let bytes = part.as_bytes();
    match bytes {
        [.., digit, b'k' | b'm' | b'b' | b't'] if digit.is_ascii_digit() => true,
        _ => bytes.len() > 2 && bytes.iter().all(u8::is_ascii_digit),
    }
}

/// Whether `rest`, which begins with a separator, only marks a release.
fn is_release(rest: &str) -> bool {
    RELEASE.is_match(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{base_names, is_release, prefixes};

    #[test]
    fn dates_versions_and_states_are_releases() {
        for end in [
            "-2024-08-06",
            "-20240620",
            "@20240620",
            "-250115",
            "-0613",
            "-2407",
            "-08-2024",
            "-001",
            "-latest",
            ":latest",
            "@default",
            "-preview",
            "-preview-05-06",
            "-preview-2024-12-17",
            "-preview-09-2025",
            "-exp-0827",
            "-1106-preview",
            "-20241022-v2:0",
            "-20241022-v2",
            "-v1:0",
            ":nitro",
        ] {
            assert!(is_release(end), "{end}");
        }
    }

    #[test]
    fn sizes_and_kinds_of_models_are_no_releases() {
        for end in [
            "-32k",
            "-16k",
            "-128k",
            "-1m",
            "-mini",
            "-nano",
            "-lite",
            "-small",
            "-medium",
            "-large",
            "-flash",
            "-pro",
            "-max",
            "-turbo",
            "-8b",
            ":8b",
            "-70b",
            "-a22b",
            "-fast",
            "-high",
            "-vision",
            "-vision-preview",
            "-audio-preview",
            "-mini-2024-07-18",
            "-32k-0613",
            "-5",
            "-7",
            "-4-20250514",
            "-10",
            "-05-06",
            "-v3",
            "-v3:8b",
            "-v3-0",
            "-2048",
            "-4096",
            "-2613",
            "-1345",
            "-0900",
            "-8192",
            "-32768",
            "-instruct",
            "-thinking",
            ":free",
            ":extended",
            "-nitro",
            "-",
            "--latest",
            "-latest-",
            "-202",
            "-é",
            "-éé",
            "-2é2",
        ] {
            assert!(!is_release(end), "{end}");
        }
    }

    #[test]
    fn a_prefix_ends_where_a_word_of_ones_own_begins() {
        let list = |model| prefixes(model).collect::<Vec<_>>();
        assert_eq!(list("gpt-4o-eu:mine"), ["gpt-4o-eu", "gpt-4o"]);
        assert_eq!(
            list("openai/gpt-4o-2024-08-06_eu"),
            ["openai/gpt-4o-2024-08-06"]
        );
        assert_eq!(list("my-org/model"), [""; 0]);
        assert_eq!(list("gpt-3.5-turbo-xyz"), ["gpt-3.5-turbo"]);
        for model in [
            "gpt-4-32k",
            "gpt-4-128k",
            "m-1m",
            "m-mini",
            "m@lite",
            "m_nano",
            "m:8b",
            "m-v3",
            "m-5",
            "m-pro",
            "gpt4",
            "",
            "-",
        ] {
            assert_eq!(
                list(model).iter().filter(|it| !it.is_empty()).count(),
                0,
                "{model}"
            );
        }
        assert_eq!(list("gpt-4-mini-eu"), ["gpt-4-mini"]);
    }

    #[test]
    fn the_longest_name_comes_first() {
        let found: Vec<_> = base_names("gpt-4-1106-preview").collect();
        assert_eq!(found, ["gpt-4-1106-preview", "gpt-4-1106", "gpt-4"]);
        let release = "claude-3-5-sonnet-20241022-v2:0";
        let found: Vec<_> = base_names(release).collect();
        let dated = "claude-3-5-sonnet-20241022";
        assert_eq!(found, [release, dated, "claude-3-5-sonnet"]);
    }

    proptest! {
        #[test]
        fn base_names_are_ever_shorter_beginnings(model in ".*") {
            let mut last = usize::MAX;
            for name in base_names(&model) {
                prop_assert!(model.starts_with(name) && name.len() < last);
                last = name.len();
            }
        }
    }
}
