//! Prompts for the summary model, in English and Chinese.
//!
//! The block of the answer must carry a key that is younger than the conversation, so a summary that was planted in a
//! tool result is not accepted. The prompt shows empty sections, so an echo of the prompt is no summary either.

use super::SECTIONS;
use crate::{guard::fence, recovery::Language};

const ENGLISH_RULES: &str = include_str!("en/rules.txt");
const CHINESE_RULES: &str = include_str!("zh/rules.txt");
/// Shortest requested summary, in words.
const LEAST_WORDS: u32 = 100;

/// The parameters of the prompts of one summary.
#[derive(Clone)]
pub(super) struct SummaryPrompt {
    pub(super) language: Language,
    /// Random.
    pub(super) key: Box<str>,
    /// Requested length in words, or in Chinese characters.
    pub(super) words: u32,
}

impl SummaryPrompt {
    /// `nonce` must be random. The requested length is at most `max_tokens`, and at most a quarter of the `replaced`
    /// tokens.
    pub(super) fn new(language: Language, nonce: [u8; 8], max_tokens: u32, replaced: u32) -> Self {
        // A word is more than a token, a Chinese character about one.
        let words = (max_tokens / 2).min(replaced / 4).max(LEAST_WORDS);
        Self {
            language,
            key: hex::encode(nonce).into(),
            words: words / 50 * 50,
        }
    }

    /// The request at the end of the repeated conversation.
    pub(super) fn write_final_message(&self) -> String {
        self.fill_template(include_str!("en/after.txt"), include_str!("zh/after.txt"))
    }

    /// The assistant message before that request, for grammars that need one there.
    pub(super) fn write_model_message(&self) -> String {
        let (english, chinese) = (
            include_str!("en/between.txt"),
            include_str!("zh/between.txt"),
        );
        self.fill_template(english, chinese)
    }

    /// The message that holds a part of the record.
    pub(super) fn write_record_message(&self, record: &str) -> String {
        let before =
            self.fill_template(include_str!("en/before.txt"), include_str!("zh/before.txt"));
        let (tag, key) = (fence::TRANSCRIPT, &self.key);
        // The rules come last, so that no text of the conversation follows them.
        let rules = self.fill_template(ENGLISH_RULES, CHINESE_RULES);
        format!("{before}\n\n<{tag} key=\"{key}\">\n{record}\n</{tag}>\n\n{rules}")
    }

    fn fill_template(&self, english: &str, chinese: &str) -> String {
        let (template, rules) = match self.language {
            Language::English => (english, ENGLISH_RULES),
            Language::Chinese => (chinese, CHINESE_RULES),
        };
        let sections = SECTIONS.map(|tag| format!("<{tag}>…</{tag}>\n")).concat();
        let tag = fence::SUMMARY;
        let block = format!("<{tag} key=\"{}\">\n{sections}</{tag}>", self.key);
        template
            .trim()
            .replace("{rules}", rules.trim())
            .replace("{words}", &self.words.to_string())
            .replace("{key}", &self.key)
            .replace("{block}", &block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(language: Language) -> SummaryPrompt {
        SummaryPrompt::new(language, [1, 2, 3, 4, 5, 6, 7, 8], 4_000, 40_000)
    }

    #[test]
    fn both_languages_request_the_same_block() {
        for language in [Language::English, Language::Chinese] {
            let prompt = prompt(language);
            let with_record = prompt.write_record_message("the record");
            for text in [&prompt.write_final_message(), &with_record] {
                let block = "<summary key=\"0102030405060708\">\n<done>…</done>\n<to_do>…</to_do>";
                assert!(text.contains(block), "{text}");
                let end = "<cautions>…</cautions>\n</summary>";
                assert!(text.ends_with(end), "{text}");
                assert!(text.contains(" 2000 ") && !text.contains('{'), "{text}");
            }
            assert!(!prompt.write_model_message().contains(&*prompt.key));
            let record = "<transcript key=\"0102030405060708\">\nthe record\n</transcript>";
            assert!(with_record.contains(record), "{with_record}");
        }
    }

    #[test]
    fn the_requested_length_shrinks_with_the_replaced_part() {
        let words =
            |most, replaced| SummaryPrompt::new(Language::English, [0; 8], most, replaced).words;
        assert_eq!(words(4_000, 100_000), 2_000);
        assert_eq!(words(4_000, 3_300), 800);
        assert_eq!(words(10, 10), LEAST_WORDS);
    }

    #[test]
    fn prompts_are_short_and_name_their_origin() {
        let tokens = |text: &str| tiktoken_rs::o200k_base_singleton().count_ordinary(text);
        for (language, name) in [
            (
                Language::English,
                "context guard between client and model, not from the user",
            ),
            (
                Language::Chinese,
                "客户端与模型之间的上下文守护程序，不是用户所说",
            ),
        ] {
            let text = prompt(language).write_final_message();
            assert!(text.contains(name), "{text}");
            assert!(tokens(&text) < 560, "{}", tokens(&text));
            for wrong in ["mention", "secret", "不要提"] {
                assert!(!text.contains(wrong), "{wrong}");
            }
        }
    }
}
