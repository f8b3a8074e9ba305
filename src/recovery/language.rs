//! The language of the proxy's texts in a session.
//!
//! The language is chosen once and stored: prompts or tool schemas in another language would break the prompt cache.

use crate::{
    config::Language,
    conversation::{Author, Conversation},
    json::text::{Script, TextSizes},
};

/// A Chinese message has at most this many letters for each Chinese character: about a word.
const LETTERS_PER_HAN: u32 = 6;
/// A message with at least this many Chinese characters is Chinese even if a pasted log stands beside them.
const MANY_HAN: u32 = 20;
/// Such a message has at most this many letters for each Chinese character.
const LETTERS_BESIDE_MANY: u32 = 40;

/// The configured language, else the stored one, else that of the conversation.
pub fn choose_language(
    configured: Option<Language>,
    stored: Option<Language>,
    conversation: &Conversation,
) -> Language {
    configured
        .or(stored)
        .unwrap_or_else(|| detect_language(conversation))
}

/// The language of a conversation, by its first and its newest user message.
fn detect_language(conversation: &Conversation) -> Language {
    let items = conversation.items.iter();
    let mut by_user = items.filter(|item| item.author == Author::User);
    let mut chosen = [by_user.next(), by_user.next_back()].into_iter().flatten();
    match chosen.any(|message| is_chinese(&message.sizes)) {
        true => Language::Chinese,
        false => Language::English,
    }
}

/// Whether a text is Chinese. Japanese and Korean texts, which may hold such characters, are not.
fn is_chinese(sizes: &TextSizes) -> bool {
    let han = sizes.script(Script::Han) + sizes.script(Script::CjkMarks);
    let other_asian = sizes.script(Script::Kana) + sizes.script(Script::Hangul);
    let wide = [
        Script::Latin,
        Script::Greek,
        Script::Cyrillic,
        Script::Semitic,
        Script::Indic,
        Script::Symbols,
    ];
    let letters = sizes.ascii + wide.map(|script| sizes.script(script)).iter().sum::<u32>();
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
    fn the_configured_or_stored_language_stays() {
        let chinese = conversation(&[("user", "继续")]);
        for (configured, stored) in [(Some(English), Some(Chinese)), (None, Some(English))] {
            let found = choose_language(configured, stored, &chinese);
            assert_eq!(found, English);
        }
    }
}
