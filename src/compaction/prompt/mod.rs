//! What is said to the model that summarises, in English and Chinese.
//!
//! The block that it answers with carries a key that nobody knew who wrote anything in the
//! conversation: where a summary may have been planted in a tool's output, none counts without it. The
//! sections are shown empty, so that the request repeated is no summary either.

use super::SECTIONS;
use crate::{guard::fence, recovery::Language};

/// The least that is asked for; words.
const LEAST_WORDS: u32 = 100;

/// What an answer must carry, and how long it may be.
#[derive(Clone)]
pub(super) struct SummaryPrompt {
    pub(super) language: Language,
    /// Random.
    pub(super) key: Box<str>,
    /// Words, or Chinese characters.
    pub(super) words: u32,
}

impl SummaryPrompt {
    /// `nonce`: bytes that nobody can have known before. At most `max_tokens`, and at most a
    /// quarter of what is replaced; tokens.
    pub(super) fn new(language: Language, nonce: [u8; 8], max_tokens: u32, replaced: u32) -> Self {
        let key = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        // A word is more than a token, a Chinese character about one.
        let words = (max_tokens / 2).min(replaced / 4).max(LEAST_WORDS);
        Self {
            language,
            key: String::into_boxed_str(key),
            words: words / 50 * 50,
        }
    }

    /// The message after a conversation that is itself the record.
    pub(super) fn write_final_message(&self) -> String {
        self.fill_template(match self.language {
            Language::English => include_str!("en/after.txt"),
            Language::Chinese => include_str!("zh/after.txt"),
        })
    }

    /// What is said in the model's place where no user may speak directly after what came last.
    pub(super) fn write_model_message(&self) -> String {
        self.fill_template(match self.language {
            Language::English => include_str!("en/between.txt"),
            Language::Chinese => include_str!("zh/between.txt"),
        })
    }

    /// The message that holds a part of the record.
    pub(super) fn write_record_message(&self, record: &str) -> String {
        let (before, after) = match self.language {
            Language::English => (include_str!("en/before.txt"), include_str!("en/rules.txt")),
            Language::Chinese => (include_str!("zh/before.txt"), include_str!("zh/rules.txt")),
        };
        let tag = fence::TRANSCRIPT;
        let record = format!("<{tag} key=\"{}\">\n{record}\n</{tag}>", self.key);
        // The rules last, so that the last word is ours.
        format!(
            "{}\n\n{record}\n\n{}",
            self.fill_template(before),
            self.fill_template(after)
        )
    }

    fn fill_template(&self, template: &str) -> String {
        let rules = match self.language {
            Language::English => include_str!("en/rules.txt"),
            Language::Chinese => include_str!("zh/rules.txt"),
        };
        let sections: String = SECTIONS
            .iter()
            .map(|tag| format!("<{tag}>…</{tag}>\n"))
            .collect();
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

    fn wanted(language: Language) -> SummaryPrompt {
        SummaryPrompt::new(language, [1, 2, 3, 4, 5, 6, 7, 8], 4_000, 40_000)
    }

    #[test]
    fn both_languages_ask_for_the_same_block() {
        for language in [Language::English, Language::Chinese] {
            let wanted = wanted(language);
            for text in [
                wanted.write_final_message(),
                wanted.write_record_message("what was said"),
            ] {
                let block = "<summary key=\"0102030405060708\">\n<done>…</done>\n<to_do>…</to_do>";
                assert!(text.contains(block), "{text}");
                assert!(
                    text.ends_with("<cautions>…</cautions>\n</summary>"),
                    "{text}"
                );
                assert!(text.contains(" 2000 ") && !text.contains('{'), "{text}");
            }
            assert!(!wanted.write_model_message().contains(&*wanted.key));
            let around = wanted.write_record_message("what was said");
            let record = "<transcript key=\"0102030405060708\">\nwhat was said\n</transcript>";
            assert!(around.contains(record), "{around}");
        }
    }

    #[test]
    fn fewer_words_are_asked_for_where_little_is_replaced() {
        let words =
            |most, replaced| SummaryPrompt::new(Language::English, [0; 8], most, replaced).words;
        assert_eq!(words(4_000, 100_000), 2_000);
        assert_eq!(words(4_000, 3_300), 800);
        assert_eq!(words(10, 10), LEAST_WORDS);
    }

    #[test]
    fn they_are_short_and_say_where_they_come_from() {
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
            let after = wanted(language).write_final_message();
            assert!(after.contains(name), "{after}");
            assert!(tokens(&after) < 560, "{}", tokens(&after));
            for wrong in ["mention", "secret", "不要提"] {
                assert!(!after.contains(wrong), "{wrong}");
            }
        }
    }
}
