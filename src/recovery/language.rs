//! The language of the proxy's texts in a session.
//!
//! The language is chosen once and stored: prompts or tool schemas in another language would break the prompt cache.

use crate::{
    config::Language,
    conversation::{Conversation, Item},
    json::text::{Script, TextSizes, measure_text},
};

/// A Chinese message has at most this many letters for each Chinese character: about a word.
const LETTERS_PER_HAN: u32 = 6;
/// A message with at least this many Chinese characters is Chinese even if it also holds a pasted log.
const MANY_HAN: u32 = 20;
/// Such a message has at most this many letters for each Chinese character.
const LETTERS_BESIDE_MANY: u32 = 40;

/// Chooses the configured language, else the stored one, else that of the conversation.
pub fn choose_language(
    configured: Option<Language>,
    stored: Option<Language>,
    conversation: &Conversation,
) -> Language {
    configured
        .or(stored)
        .unwrap_or_else(|| detect_language(conversation))
}

/// The language of a conversation, by the first and the newest words of the user.
fn detect_language(conversation: &Conversation) -> Language {
    let measure = |message: &Item| {
        let mut sizes = TextSizes::default();
        let words = conversation.user_words(message);
        words.for_each(|words| sizes += measure_text(words));
        sizes
    };
    let messages = conversation.items.iter().filter(|item| item.is_by_user());
    let sizes = messages.map(measure);
    let mut said = sizes.filter(|sizes| sizes.total_chars() > 0);
    let mut chosen = [said.next(), said.next_back()].into_iter().flatten();
    if chosen.any(|sizes| is_chinese(&sizes)) {
        Language::Chinese
    } else {
        Language::English
    }
}

/// Whether a text is Chinese. Japanese and Korean texts, which may hold such characters, are not.
fn is_chinese(sizes: &TextSizes) -> bool {
    let han = sizes.script(Script::Han) + sizes.script(Script::CjkMarks);
    let other_asian = sizes.script(Script::Kana) + sizes.script(Script::Hangul);
    let pictures = sizes.script(Script::Emoji) + sizes.script(Script::FourBytes);
    let letters = (sizes.total_chars() as u32).saturating_sub(han + other_asian + pictures);
    let mostly_han = han.saturating_mul(LETTERS_PER_HAN) >= letters;
    let with_paste = han >= MANY_HAN && han.saturating_mul(LETTERS_BESIDE_MANY) >= letters;
    han > 0 && han > other_asian.saturating_mul(4) && (mostly_han || with_paste)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::{Language::*, *};
    use crate::format::chat::index_body;

    fn conversation(messages: &[(&str, &str)]) -> Conversation {
        let messages: Vec<_> = messages
            .iter()
            .map(|(role, text)| json!({ "role": role, "content": text }))
            .collect();
        index_body(Bytes::from(json!({ "messages": messages }).to_string())).unwrap()
    }

    #[test]
    fn the_text_of_the_user_decides() {
        let log = "error[E0382]: borrow of moved value\n".repeat(10);
        let pasted = format!("帮我看看这个错误是怎么回事，应该如何修改代码才好？\n{log}");
        for (text, language) in [
            ("Fix the build, please.", English),
            ("请修复构建。", Chinese),
            ("把 src/main.rs 里的 unwrap 去掉", Chinese),
            (pasted.as_str(), Chinese),
            (
                "Translate 你好 into English, and say where it is used",
                English,
            ),
            ("ビルドを修正してください。東京都", English),
            ("빌드를 고쳐 주세요 漢字", English),
            ("Почини сборку", English),
            ("", English),
            ("。", Chinese),
        ] {
            let found = choose_language(None, None, &conversation(&[("user", text)]));
            assert_eq!(found, language, "{text}");
        }
    }

    #[test]
    fn first_and_newest_user_messages_count_and_no_others() {
        let english = "Look at the tests and fix them";
        let chinese = "继续修复测试";
        let answered = [("user", english), ("assistant", chinese), ("tool", chinese)];
        let switched = [("user", chinese), ("user", english), ("user", english)];
        for (messages, language) in [
            (&[("system", chinese), ("user", english)][..], English),
            (&answered, English),
            (&switched, Chinese),
            (&[("user", english), ("user", chinese)], Chinese),
            (&[], English),
        ] {
            let found = choose_language(None, None, &conversation(messages));
            assert_eq!(found, language, "{messages:?}");
        }
    }

    #[test]
    fn what_the_client_says_does_not_count() {
        let note =
            "<system-reminder>The user is on holiday; be brief and do not ask.</system-reminder>";
        let chinese = "<environment_details>当前时间：十二点</environment_details>";
        let mixed = format!("{note}\n请修复构建\n{note}");
        let behind = |text| [("user", "Fix the build"), ("tool", "r"), ("user", text)];
        for (messages, language) in [
            (&[("user", mixed.as_str())][..], Chinese),
            (
                &[("user", "请修复"), ("assistant", "a"), ("user", note)],
                Chinese,
            ),
            (&behind(chinese), English),
            (&behind(mixed.as_str()), Chinese),
            (&[("user", chinese)], English),
        ] {
            let found = choose_language(None, None, &conversation(messages));
            assert_eq!(found, language, "{messages:?}");
        }
    }

    #[test]
    fn the_configured_or_stored_language_stays() {
        let chinese = conversation(&[("user", "继续")]);
        for (configured, stored) in [(Some(English), Some(Chinese)), (None, Some(English))] {
            let found = choose_language(configured, stored, &chinese);
            assert_eq!(found, English);
        }
    }
}
