//! In which language a session is spoken to.
//!
//! Chosen once and remembered: a prompt or a schema that changes its language costs the cache.

use crate::{
    config::Language,
    conversation::{Author, Conversation, Item},
    json::text::TextSizes,
};

/// A message is Chinese that has at most this many Latin letters to a Chinese character: a word
/// of the one is about as long as a character of the other.
const LETTERS_PER_HAN: u32 = 6;
/// This many Chinese characters are somebody's own words, …
const MANY_HAN: u32 = 20;
/// … also beside this many times as many letters, as of a log that was pasted in.
const LETTERS_BESIDE_MANY: u32 = 40;

/// The configured language, else the one of before, else the conversation's own.
pub fn choose_language(
    configured: Option<Language>,
    before: Option<Language>,
    conversation: &Conversation,
) -> Language {
    configured
        .or(before)
        .unwrap_or_else(|| detect_language(conversation))
}

/// The language of a conversation, by its first and its newest user message.
fn detect_language(conversation: &Conversation) -> Language {
    let messages = &conversation.items;
    let by_user = |message: &&Item| message.author == Author::User;
    let first = messages.iter().find(by_user);
    let newest = messages.iter().rev().find(by_user);
    let chinese = |message: Option<&Item>| message.is_some_and(|said| is_chinese(&said.sizes));
    if chinese(first) || chinese(newest) {
        Language::Chinese
    } else {
        Language::English
    }
}

/// Whether a text is Chinese. Japanese and Korean, which have such characters too, are not.
fn is_chinese(sizes: &TextSizes) -> bool {
    let han = sizes.han;
    let elsewhere = sizes.kana.saturating_add(sizes.hangul);
    let letters = sizes.latin.saturating_add(sizes.other);
    let own = han.saturating_mul(LETTERS_PER_HAN) >= letters;
    let beside = han >= MANY_HAN && han.saturating_mul(LETTERS_BESIDE_MANY) >= letters;
    han > 0 && han > elsewhere.saturating_mul(4) && (own || beside)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::{Language::*, *};
    use crate::format::chat::index_body;

    fn spoken(messages: &[(&str, &str)]) -> Conversation {
        let messages: Vec<_> = messages
            .iter()
            .map(|(role, text)| json!({ "role": role, "content": text }))
            .collect();
        index_body(Bytes::from(json!({ "messages": messages }).to_string())).unwrap()
    }

    #[test]
    fn the_users_own_words_decide() {
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
            let found = choose_language(None, None, &spoken(&[("user", text)]));
            assert_eq!(found, language, "{text}");
        }
    }

    #[test]
    fn first_and_newest_user_messages_count_and_no_others() {
        let english = "Look at the tests and fix them";
        let chinese = "继续修复测试";
        let of = |messages: &[(&str, &str)]| choose_language(None, None, &spoken(messages));
        assert_eq!(of(&[("system", chinese), ("user", english)]), English);
        assert_eq!(
            of(&[("user", english), ("assistant", chinese), ("tool", chinese)]),
            English
        );
        assert_eq!(
            of(&[("user", chinese), ("user", english), ("user", english)]),
            Chinese
        );
        assert_eq!(of(&[("user", english), ("user", chinese)]), Chinese);
        assert_eq!(of(&[]), English);
    }

    #[test]
    fn what_was_configured_or_chosen_before_stays() {
        let chinese = spoken(&[("user", "继续")]);
        assert_eq!(
            choose_language(Some(English), Some(Chinese), &chinese),
            English
        );
        assert_eq!(choose_language(None, Some(English), &chinese), English);
    }
}
