//! How a model counts tokens, by its name, as far as that is known before it has answered.
//!
//! The rows are in `table`. A [`TokenRule`] is the vocabulary's family, and what stands beside the text: the frames of
//! messages and calls, and what tools cost. All weights are whole hundredths, so that every replica adds up the same.

mod table;

use super::profile::{ImageRule, Profile};

/// A family of vocabularies. All weights are hundredths of a token.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenFamily {
    pub name: &'static str,
    /// Of ASCII text, in the order of `json::text::TextSizes::ascii_counts`.
    pub ascii: [u16; 14],
    /// A character by script, in the order of `json::text::Script`.
    pub scripts: [u16; 32],
}

/// The tokens of a model, as estimated before its first answer.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenRule {
    /// The beginnings of the names of its models; the longest one decides.
    names: &'static [&'static str],
    /// Profiles whose models have this rule where their names say nothing.
    profiles: &'static [&'static str],
    pub family: &'static TokenFamily,
    /// What texts are multiplied by; hundredths.
    pub factor: u16,
    /// Tokens of a request without anything in it.
    pub request: u16,
    /// Tokens of the frame of a message.
    pub message: u16,
    /// Tokens of the frames of a call and of its result, beside their messages.
    pub call: u16,
    /// Tokens of a request with tools, beside them.
    pub tools_once: u16,
    /// What the JSON of tools is multiplied by, instead of `factor`; hundredths.
    pub tools_factor: u16,
    /// `None`: by the profile.
    pub images: Option<ImageRule>,
}

/// The rule of a model that is asked under this name with this profile.
pub fn find_token_rule(model: &str, profile: &Profile) -> &'static TokenRule {
    find_by_name(model)
        .or_else(|| {
            let mut rules = table::RULES.iter();
            rules.find(|rule| rule.profiles.contains(&profile.name))
        })
        .unwrap_or_else(unknown_model)
}

/// The rule by the name of a tokenizer: that of a family, or of a model that counts so. A family's is that of the first
/// models of the table that have it.
pub fn find_tokenizer(name: &str) -> Option<&'static TokenRule> {
    let is_family = |rule: &&TokenRule| rule.family.name.eq_ignore_ascii_case(name);
    let by_family = || table::RULES.iter().chain(table::UNKNOWN).find(is_family);
    find_by_name(name).or_else(by_family)
}

/// The names of all families.
pub fn list_tokenizers() -> Vec<&'static str> {
    let mut names = Vec::new();
    for rule in table::RULES.iter().chain(table::UNKNOWN) {
        if !names.contains(&rule.family.name) {
            names.push(rule.family.name);
        }
    }
    names
}

/// The rule of models and engines that nothing is known of.
pub fn unknown_model() -> &'static TokenRule {
    &table::UNKNOWN[0]
}

/// The rule by a model's name: `vendor/name`, `region.vendor.name` and `vendor/name@place` are known too.
fn find_by_name(model: &str) -> Option<&'static TokenRule> {
    let model = model.to_ascii_lowercase();
    let mut name = model.rsplit('/').next().unwrap_or_default();
    loop {
        let longest = |rule: &TokenRule| {
            let starts = rule.names.iter().filter(|start| name.starts_with(**start));
            starts.map(|start| start.len()).max()
        };
        let rules = table::RULES.iter();
        let found = rules.filter_map(|rule| longest(rule).map(|len| (len, rule)));
        if let Some((_, rule)) = found.max_by_key(|(len, _)| *len) {
            return Some(rule);
        }
        // Amazon's names begin with a region and a vendor: `us.anthropic.claude-…`.
        let (vendor, rest) = name.split_once('.')?;
        if vendor.is_empty() || !vendor.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return None;
        }
        name = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::profile::find_profile;

    fn find(model: &str, profile: &str) -> (&'static str, u16, u16) {
        let rule = find_token_rule(model, find_profile(profile).unwrap());
        (rule.family.name, rule.factor, rule.call)
    }

    #[test]
    fn the_name_of_the_model_decides() {
        for (model, expected) in [
            ("gpt-4o-2024-08-06", ("o200k", 100, 7)),
            ("openai/gpt-4.1-mini", ("o200k", 100, 7)),
            ("gpt-4-0613", ("cl100k", 100, 7)),
            ("gpt-4-turbo", ("cl100k", 100, 7)),
            ("gpt-5-2025-08-07", ("o200k", 100, 9)),
            ("openai/gpt-oss-120b", ("o200k", 100, 18)),
            ("o4-mini", ("o200k", 100, 7)),
            ("claude-sonnet-4-20250514", ("o200k", 115, 68)),
            (
                "us.anthropic.claude-haiku-4-5-20251001-v1:0",
                ("o200k", 115, 68),
            ),
            ("anthropic/claude-opus-4.7", ("o200k", 150, 68)),
            ("claude-sonnet-5", ("o200k", 150, 68)),
            ("google/gemini-2.5-pro", ("gemma", 100, 40)),
            ("gemma-3-27b-it", ("gemma", 100, 40)),
            ("Qwen/Qwen3-32B", ("qwen", 100, 40)),
            ("qwen2.5:7b", ("qwen", 100, 40)),
            ("meta-llama/Llama-3.3-70B-Instruct", ("llama-3", 100, 20)),
            ("meta.llama3-1-70b-instruct-v1:0", ("llama-3", 100, 20)),
            ("meta-llama/llama-4-scout", ("llama-4", 100, 40)),
            ("deepseek-chat", ("deepseek", 100, 35)),
            ("devstral-small", ("tekken", 100, 7)),
            ("moonshotai/kimi-k2", ("o200k", 100, 25)),
            ("glm-4.6", ("o200k", 100, 25)),
            ("x-ai/grok-4", ("o200k", 100, 30)),
            ("phi-4", ("unknown", 100, 20)),
            ("", ("unknown", 100, 20)),
        ] {
            assert_eq!(find(model, "template"), expected, "{model}");
        }
    }

    #[test]
    fn without_a_known_name_the_profile_decides() {
        assert_eq!(find("ours", "openai"), ("o200k", 100, 7));
        assert_eq!(find("ours", "mistral"), ("tekken", 100, 7));
        assert_eq!(find("ours", "anthropic"), ("o200k", 115, 68));
        assert_eq!(find("ours", "openrouter"), ("unknown", 100, 20));
        assert_eq!(find("llama-3.3", "mistral"), ("llama-3", 100, 20));
    }

    #[test]
    fn a_tokenizer_is_named_by_its_family_or_a_model() {
        for name in list_tokenizers() {
            assert_eq!(find_tokenizer(name).unwrap().family.name, name);
        }
        let factor = |name| find_tokenizer(name).map(|rule| (rule.family.name, rule.factor));
        assert_eq!(factor("O200K"), Some(("o200k", 100)));
        assert_eq!(factor("anthropic/claude-opus-4.7"), Some(("o200k", 150)));
        assert_eq!((factor(""), factor("sentencepiece")), (None, None));
    }

    #[test]
    fn images_follow_the_model_where_it_is_known() {
        let images = |model| find_token_rule(model, find_profile("openai").unwrap()).images;
        assert_eq!(images("gpt-4o"), None);
        assert_eq!(images("gpt-4.1-mini"), Some(ImageRule::Patches(162)));
        assert_eq!(images("gpt-5.4"), Some(ImageRule::Patches(120)));
        assert_eq!(images("gpt-5.1"), None);
        assert_eq!(images("gemini-3-pro"), Some(ImageRule::Once(1_120)));
    }
}
