//! Raw tokens of texts, by the counts of a text and the rule of the model.
//!
//! Sums are whole millionths of a token, and rounded up once for each text. Neither the order of additions nor the machine
//! therefore changes them.

use crate::{
    config::{
        profile::{ImageRule, Profile},
        tokens::{self, TokenRule},
    },
    json::text::{self, TextSizes},
};

/// Millionths, the unit of sums.
const TOKEN: u64 = 1_000_000;
/// Millionths of a token in a product of a weight and its model's factor, both of which are in hundredths.
const HUNDREDTHS: u64 = TOKEN / 10_000;

/// The rule of a model under the settings.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    rule: &'static TokenRule,
    /// Millionths of a token for an ASCII character, where the settings say so.
    ascii: Option<u64>,
    /// How images count: as the model's name says, else as the provider's profile does.
    pub(super) images: ImageRule,
}

impl Weights {
    /// `ascii_per_token` is the setting `guard.chars_per_token`: it holds for all ASCII text in place of the rule.
    pub fn new(rule: &'static TokenRule, profile: &Profile, ascii_per_token: Option<f64>) -> Self {
        Self {
            rule,
            ascii: ascii_per_token.map(|chars| (TOKEN as f64 / chars) as u64),
            images: rule.images.unwrap_or(profile.images),
        }
    }

    /// The weights of a model that nothing is known of.
    pub fn for_unknown_model() -> Self {
        Self {
            rule: tokens::unknown_model(),
            ascii: None,
            images: ImageRule::Tiles,
        }
    }

    /// Raw tokens of a text, rounded up.
    pub fn count_text_tokens(&self, sizes: &TextSizes) -> u32 {
        round_up(self.sum_text(sizes, self.rule.factor))
    }

    /// Raw tokens of the JSON of tools, rounded up.
    pub fn count_tool_tokens(&self, sizes: &TextSizes) -> u32 {
        round_up(self.sum_text(sizes, self.rule.tools_factor))
    }

    /// Raw tokens of a text that is escaped for JSON, rounded up.
    pub fn count_json_tokens(&self, escaped: &[u8]) -> u32 {
        self.count_text_tokens(&text::measure_text(escaped))
    }

    /// Raw tokens of a text that is not escaped for JSON, rounded up.
    pub fn count_plain_tokens(&self, plain: &str) -> u32 {
        self.count_text_tokens(&text::measure_plain(plain))
    }

    /// Raw tokens of a text.
    pub fn text_weight(&self, sizes: &TextSizes) -> f64 {
        self.sum_text(sizes, self.rule.factor) as f64 / TOKEN as f64
    }

    /// Raw tokens of a text that is not escaped for JSON.
    pub fn plain_weight(&self, plain: &str) -> f64 {
        self.text_weight(&text::measure_plain(plain))
    }

    /// The most that a character of any text weighs; raw tokens.
    pub fn max_char_weight(&self) -> f64 {
        let family = self.rule.family;
        let factor = u64::from(self.rule.factor) * HUNDREDTHS;
        let [
            _,
            letter,
            _,
            _,
            mark,
            _,
            run,
            group,
            digit,
            wide,
            lone,
            late,
            control,
            _,
        ] = family.ascii;
        let letter = letter + late;
        let heaviest = letter
            .max(run + group + digit)
            .max(wide + lone)
            .max(mark + control);
        let ascii = self.ascii.unwrap_or(u64::from(heaviest) * factor);
        let scripts = family.scripts.into_iter().fold(0, u16::max);
        ascii.max(u64::from(scripts) * factor) as f64 / TOKEN as f64
    }

    /// Raw tokens of the frame of a message.
    pub fn message_tokens(&self) -> u32 {
        self.rule.message.into()
    }

    /// Raw tokens of the frames of a call and of its result.
    pub fn call_tokens(&self) -> u32 {
        self.rule.call.into()
    }

    /// Raw tokens of a request without anything in it.
    pub fn request_tokens(&self, with_tools: bool) -> u32 {
        let tools = if with_tools { self.rule.tools_once } else { 0 };
        u32::from(self.rule.request) + u32::from(tools)
    }

    /// Millionths of a token. `factor` is in hundredths.
    fn sum_text(&self, sizes: &TextSizes, factor: u16) -> u64 {
        let family = self.rule.family;
        let factor = u64::from(factor) * HUNDREDTHS;
        let scripts = weigh(sizes.scripts, family.scripts) * factor;
        let ascii = match self.ascii {
            Some(ascii) => ascii.saturating_mul(sizes.ascii.into()),
            None => weigh(sizes.ascii_counts(), family.ascii) * factor,
        };
        ascii.saturating_add(scripts)
    }
}

fn weigh<const N: usize>(counts: [u32; N], weights: [u16; N]) -> u64 {
    let weighed = counts.into_iter().zip(weights);
    weighed
        .map(|(count, weight)| u64::from(count) * u64::from(weight))
        .sum()
}

fn round_up(parts: u64) -> u32 {
    u32::try_from(parts.div_ceil(TOKEN)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{profile::find_profile, tokens::find_token_rule};

    fn weights(model: &str, ascii_per_token: Option<f64>) -> Weights {
        let profile = find_profile("template").unwrap();
        Weights::new(find_token_rule(model, profile), profile, ascii_per_token)
    }

    #[test]
    fn the_examples_of_the_estimator() {
        let weigh = |text: &str| weights("gpt-4o", None).plain_weight(text);
        assert_eq!(weigh("id=deadbeef0123 sha=QmFzZTY0 12:30:05.123456"), 24.3);
        assert_eq!(weigh("你好，世界。今天 3 度"), 10.76);
    }

    #[test]
    fn families_differ_in_digits_and_scripts_and_models_in_their_factor() {
        let weigh = |model, text: &str| weights(model, None).plain_weight(text);
        assert_eq!(weigh("gpt-4o", "12345"), 2.14);
        assert_eq!(weigh("qwen3", "12345"), 5.18);
        assert_eq!(weigh("deepseek-chat", "one, two"), 2.81);
        assert_eq!(weigh("gpt-4o", "one, two"), 2.65);
        assert_eq!(weigh("claude-sonnet-4", "one, two 中"), 3.8755);
    }

    #[test]
    fn the_setting_holds_for_ascii_alone() {
        let weights = weights("gpt-4o", Some(4.0));
        assert_eq!(weights.plain_weight("12345678 中"), 2.97);
        assert_eq!(weights.max_char_weight(), 3.84);
    }

    #[test]
    fn no_character_weighs_more_than_the_heaviest() {
        for model in ["gpt-4o", "mistral-large", "claude-opus-4-7", ""] {
            let weights = weights(model, None);
            for text in [
                "bcdfgh",
                "a1b2c3",
                "1",
                " 1",
                "\t 1",
                "a\n",
                "  ",
                "\u{1F600}",
                "()",
                "A",
                "。",
            ] {
                let chars = text.chars().count() as f64;
                assert!(
                    weights.plain_weight(text) <= chars * weights.max_char_weight(),
                    "{text}"
                );
            }
        }
    }
}
