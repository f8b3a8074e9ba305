//! The floor of a family: a model that is newer than all that are known of its family has at least the window of the
//! newest one.
//!
//! A family is a name with its version taken out: `gpt-6.2-sol` is version 6.2 of `gpt-*-sol`. So another kind
//! (`gpt-6.4`) is another family. A name that states a size, or a smaller kind, has none.

use std::{collections::HashMap, sync::LazyLock};

use regex::Regex;

use super::{keep_built_in, release};
use crate::provider::{Window, WindowSource};

/// Major versions by which a model may be newer than the newest known one.
const NEWER_MAJORS: u8 = 2;

/// The models of each family, by the providers that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Families(HashMap<String, Vec<Member>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    provider: String,
    version: Version,
    /// The row is of a dated release, or of a preview.
    is_release: bool,
    window: Window,
}

/// A major version and hundredths: vendors count in decimals, and 4.20 came before 4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u8, u8);

impl Families {
    pub(super) fn add_row(&mut self, provider: &str, model: &str, window: Window) {
        let base = release::shortest_base_name(model);
        if let Some((family, version)) = split_version(base) {
            self.0.entry(family).or_default().push(Member {
                provider: provider.to_owned(),
                version,
                is_release: base.len() < model.len(),
                window,
            });
        }
    }

    /// The window of the newest known model of the family, where `model` is newer: at this provider, else the least at
    /// any provider. `model` is in lower case.
    pub(super) fn find_floor(&self, provider: &str, model: &str) -> Option<Window> {
        let (family, version) = split_version(release::shortest_base_name(model))?;
        let members = self.0.get(&family)?;
        let own = members.iter().filter(|member| member.provider == provider);
        let mut known: Vec<&Member> = own.collect();
        if known.is_empty() {
            known = keep_built_in(members, |member| &member.provider);
        }
        let newest = known.iter().map(|member| member.version).max()?;
        let newest_ones = || known.iter().filter(|member| member.version == newest);
        let has_undated = newest_ones().any(|member| !member.is_release);
        let counted = newest_ones().filter(|member| !(has_undated && member.is_release));
        let least = counted.min_by_key(|member| member.window.tokens)?;
        // A version written without its point, such as `gpt-51`, is an old one.
        let is_newer = version > newest && version.0 <= newest.0.saturating_add(NEWER_MAJORS);
        is_newer.then_some(Window {
            source: WindowSource::Family,
            ..least.window
        })
    }
}

/// The parts of a name with its version: `6`, `6.2`, `6-2`, or as Fireworks writes it, `6p2`. Letters may stand before it,
/// as in `k3.1`.
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    let (number, by) = ("([0-9]{1,2})", "[-:@_]");
    let version = format!("{number}{by}{number}|[a-z]*{number}(?:[.p]{number})?");
    Regex::new(&format!("(?:^|{by})(?:{version})(?:{by}|$)")).expect("a test uses it")
});

/// The family and the version of a name without dates; `None` without a version, or where the name states a size or a
/// smaller kind.
fn split_version(name: &str) -> Option<(String, Version)> {
    let begin = name.rfind('/').map_or(0, |slash| slash + 1);
    let (vendor, model) = name.split_at(begin);
    let mut parts = model.split(release::SEPARATORS);
    if parts.any(|part| release::states_size(part) || release::is_smaller_kind(part)) {
        return None;
    }
    let found = VERSION.captures(model)?;
    let (major, minor) = (
        found.get(1).or(found.get(3))?,
        found.get(2).or(found.get(4)),
    );
    let hundredths = minor.map_or(Some(0), |minor| {
        let tens = if minor.len() == 1 { 10 } else { 1 };
        Some(minor.as_str().parse::<u8>().ok()? * tens)
    });
    let version = Version(major.as_str().parse().ok()?, hundredths?);
    let (before, after) = (
        &model[..major.start()],
        &model[minor.unwrap_or(major).end()..],
    );
    Some((format!("{vendor}{before}*{after}"), version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Families, Version, split_version};
    use crate::provider::{
        Window, WindowSource,
        catalogue::{look_up_family_floor, table::built_in_table},
    };

    #[track_caller]
    fn check(name: &str, family: &str, major: u8, hundredths: u8) {
        let expected = Some((family.to_owned(), Version(major, hundredths)));
        assert_eq!(split_version(name), expected, "{name}");
    }

    #[test]
    fn a_name_has_a_family_and_a_version() {
        check("claude-opus-5", "claude-opus-*", 5, 0);
        check("claude-opus-5-7", "claude-opus-*", 5, 70);
        check(
            "anthropic/claude-opus-5.7",
            "anthropic/claude-opus-*",
            5,
            70,
        );
        check("claude-3-5-sonnet", "claude-*-sonnet", 3, 50);
        check("gpt-6.4-sol", "gpt-*-sol", 6, 40);
        check("openai.gpt-6-luna", "openai.gpt-*-luna", 6, 0);
        check("kimi-k3.1", "kimi-k*", 3, 10);
        check(
            "accounts/fireworks/models/glm-5p4",
            "accounts/fireworks/models/glm-*",
            5,
            40,
        );
        check("qwen3.8-max", "qwen*-max", 3, 80);
        check("grok-4.20", "grok-*", 4, 20);
        check("o3", "o*", 3, 0);
        check("hermes-4-llama-3.1", "hermes-*-llama-3.1", 4, 0);
        check("gpt-6-x-2", "gpt-*-x-2", 6, 0);
    }

    #[test]
    fn a_version_without_its_point_is_no_newer_one() {
        for (provider, model) in [
            ("azure", "gpt-51"),
            ("zai", "glm-45"),
            ("moonshotai", "kimi-k25"),
        ] {
            let floor = look_up_family_floor(built_in_table(), provider, model);
            assert_eq!(floor, None, "{model}");
        }
        assert!(look_up_family_floor(built_in_table(), "zai", "glm-6").is_some());
    }

    #[test]
    fn sizes_and_smaller_kinds_have_no_family() {
        for name in [
            "gpt-6.4-mini",
            "gpt-7-nano",
            "gpt-4-32k",
            "gemini-4.1-flash-lite",
            "glm-6-air",
            "llama-5:8b",
            "qwen4-235b-a22b",
            "claude-opus-6-1m",
            "llama-4-8192",
            "gpt-4o",
            "claude-opus-latest",
            "gpt-123",
            "opus",
            "",
            "-",
            "/",
        ] {
            assert_eq!(split_version(name), None, "{name}");
        }
    }

    #[track_caller]
    fn floor(provider: &str, model: &str, tokens: u32) {
        let found = look_up_family_floor(built_in_table(), provider, model);
        let found = found.map(|window| (window.tokens, window.source));
        assert_eq!(
            found,
            Some((tokens, WindowSource::Family)),
            "{provider}/{model}"
        );
    }

    #[test]
    fn a_newer_version_has_the_window_of_the_newest_known_one() {
        floor("anthropic", "claude-opus-5-7", 1_000_000);
        floor("anthropic", "claude-opus-6", 1_000_000);
        floor("anthropic", "claude-haiku-6-20270301", 1_000_000);
        floor(
            "amazon-bedrock",
            "us.anthropic.claude-opus-5-7-v1:0",
            1_000_000,
        );
        floor("openai", "gpt-6.4-sol", 1_050_000);
        floor("openai", "GPT-6.4-Sol-2027-01-01", 1_050_000);
        floor("openrouter", "openai/gpt-6.4-sol:nitro", 1_050_000);
        floor("google", "gemini-4.1-pro", 1_048_576);
        floor("google", "gemini-4.1-pro-preview", 1_048_576);
        floor("google", "gemini-4.1-argon", 1_048_576);
        floor("zai", "glm-5.4", 1_000_000);
        floor("moonshotai", "kimi-k3.1", 1_048_576);
        floor("xai", "grok-4.8", 500_000);
        floor("deepseek", "deepseek-v5-flash", 1_000_000);
        // At a gateway that nobody knows.
        floor("mine", "claude-opus-5-7", 1_000_000);
        floor("mine", "openai/gpt-6.4-sol", 1_050_000);
        floor("mine", "grok-4.8", 500_000);
        let openai = look_up_family_floor(built_in_table(), "openai", "gpt-6.4-sol");
        assert_eq!(openai.unwrap().input, Some(922_000));
    }

    #[test]
    fn other_kinds_and_older_versions_have_no_floor() {
        for (provider, model) in [
            ("openai", "gpt-6.15-sol"),
            ("openai", "gpt-5.9-sol"),
            ("openai", "gpt-6.2-sol"),
            ("openai", "gpt-7-mini"),
            ("openai", "gpt-7-sol-mini"),
            ("openai", "gpt-7-sol-32k"),
            ("openai", "gpt-7-sol:8b"),
            ("openai", "gpt-7-comet"),
            ("anthropic", "claude-opus-4-2"),
            ("anthropic", "claude-opus-5-7-lite"),
            ("xai", "grok-4.25"),
            ("xai", "grok-4.6-fast"),
            ("zai", "glm-4.8"),
            ("mine", "mine-2"),
            ("mine", ""),
        ] {
            let found = look_up_family_floor(built_in_table(), provider, model);
            assert_eq!(found, None, "{provider}/{model}");
        }
    }

    #[test]
    fn a_row_without_a_date_counts_before_one_with_it() {
        let mut families = Families::default();
        for (model, tokens) in [("x-2", 8_000), ("x-2-2031-01-01", 4_000), ("x-1", 2_000)] {
            let source = WindowSource::Catalogue;
            let window = Window {
                tokens,
                input: None,
                taught: None,
                source,
            };
            families.add_row("p", model, window);
        }
        let found = families.find_floor("p", "x-3").unwrap();
        assert_eq!(found.tokens, 8_000);
        assert_eq!(families.find_floor("other", "x-3"), Some(found));
        assert_eq!(families.find_floor("p", "x-2"), None);
    }

    proptest! {
        #[test]
        fn any_name_is_split_without_a_panic(name in "\\PC*|[a-z0-9.p/:@_-]{0,24}") {
            if let Some((family, _)) = split_version(&name) {
                prop_assert!(family.contains('*'));
            }
        }
    }
}
