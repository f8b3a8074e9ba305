//! The rare words of a conversation, and what each of them is worth to keep in sight.
//!
//! A word is a name, a path or a number: what a model refers back to. The model itself said nine tenths of what recorded
//! sessions refer back to, so a word is worth more the more answers contain it, and the more recently it was mentioned. In
//! text without such words (Chinese, Japanese), each pair of neighbouring characters is a word.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    conversation::{
        Author, Conversation, Item,
        edit::{Edit, Edits},
    },
    json::{scan::Span, text::TextWalk},
};

/// Fewest bytes of a name or path, and fewest digits of a number.
const NAME_BYTES: usize = 6;
const NUMBER_DIGITS: usize = 3;
/// A word is rare if at most this many messages contain it, or at most one part in this many of all messages.
const RARE_MESSAGES: u32 = 8;
const RARE_PART: u32 = 4;
/// What a word is worth that no answer held, and the most answers that count.
const BASE_WORTH: f64 = 0.3;
const MAX_ANSWERS: u32 = 3;
/// A word counts as mentioned at least this many messages ago.
const LEAST_AGE: u32 = 4;

/// A word of the conversation, by its index.
pub(in crate::guard) type WordId = u32;

/// Where and how often a word was used.
#[derive(Clone, Copy, Debug, Default)]
struct WordUse {
    /// Messages that hold it.
    messages: u32,
    /// Messages of the model that hold it.
    answers: u32,
    /// The newest message that holds it.
    newest: u32,
    /// Its first place in the body; `None` for a pair of characters.
    span: Option<Span>,
}

/// The words of the messages read so far.
#[derive(Default)]
pub(in crate::guard) struct Vocabulary {
    ids: HashMap<u64, WordId>,
    uses: Vec<WordUse>,
    /// Of each message, its words in order and once each.
    words: Vec<Vec<WordId>>,
    /// Messages read, system messages apart.
    messages: u32,
}

impl Vocabulary {
    /// Reads the messages up to `end` that were not read yet.
    pub(in crate::guard) fn read_messages(&mut self, conversation: &Conversation, end: usize) {
        for at in self.words.len()..end {
            let item = &conversation.items[at];
            let mut found = Vec::new();
            for span in list_texts(conversation, item) {
                scan_words(conversation.span_bytes(span), &mut |hash, word| {
                    let span = word.map(|(from, to)| Span {
                        start: span.start + from as u32,
                        end: span.start + to as u32,
                    });
                    found.push((hash, span));
                });
            }
            let words = self.count_words(found, item.author == Author::Model);
            self.messages += u32::from(!item.author.is_system());
            self.words.push(words);
        }
    }

    fn count_words(&mut self, found: Vec<(u64, Option<Span>)>, is_answer: bool) -> Vec<WordId> {
        let mut words = Vec::with_capacity(found.len());
        for (hash, span) in found {
            let id = *self.ids.entry(hash).or_insert_with(|| {
                self.uses.push(WordUse {
                    span,
                    ..WordUse::default()
                });
                (self.uses.len() - 1) as WordId
            });
            words.push(id);
        }
        words.sort_unstable();
        words.dedup();
        for &id in &words {
            let word = &mut self.uses[id as usize];
            word.messages += 1;
            word.answers += u32::from(is_answer);
            word.newest = self.messages;
        }
        words
    }

    /// How many different words were read.
    pub(in crate::guard) fn len(&self) -> usize {
        self.uses.len()
    }

    /// The words of a message as it came.
    pub(in crate::guard) fn words_of(&self, message: usize) -> &[WordId] {
        &self.words[message]
    }

    /// The words of a message that is sent with these edits.
    pub(in crate::guard) fn words_left(
        &self,
        conversation: &Conversation,
        message: usize,
        edits: &Edits,
    ) -> Vec<WordId> {
        let edits = edits.ordered_edits(&conversation.body);
        let mut words = Vec::new();
        for span in list_texts(conversation, &conversation.items[message]) {
            let mut scan = |start: u32, end: u32| {
                if start < end {
                    let raw = conversation.span_bytes(Span { start, end });
                    scan_words(raw, &mut |hash, _| words.extend(self.ids.get(&hash)));
                }
            };
            let is_inside = |edit: &&Edit| edit.span.start < span.end && edit.span.end > span.start;
            let mut from = span.start;
            for edit in edits.iter().filter(is_inside) {
                scan(from, edit.span.start.min(span.end));
                from = from.max(edit.span.end);
            }
            scan(from, span.end);
        }
        words.sort_unstable();
        words.dedup();
        // An edit may leave a part of a word, which may be a word of another message. The part would count from the moment
        // at which that message is read, and not before. So only the message's own words count.
        let own = self.words_of(message);
        words.retain(|word| own.binary_search(word).is_ok());
        words
    }

    /// What it is worth to have a word in sight: 0 for one that is common.
    pub(in crate::guard) fn worth(&self, id: WordId) -> f64 {
        let word = &self.uses[id as usize];
        if word.messages > RARE_MESSAGES.max(self.messages / RARE_PART) {
            return 0.0;
        }
        let age = f64::from((self.messages - word.newest).max(LEAST_AGE));
        // The power of 0.75 by square roots alone, which are the same on every machine.
        let root = age.sqrt();
        (BASE_WORTH + f64::from(word.answers.min(MAX_ANSWERS))) / (root * root.sqrt())
    }

    /// The first place of a name, path or number in the body; `None` for a pair of characters.
    pub(in crate::guard) fn span_of(&self, id: WordId) -> Option<Span> {
        self.uses[id as usize].span
    }
}

/// The texts of a message that can hold words: its own, and names and arguments of its calls. A system message that is bound
/// to the one before it has no such text: a session remembers no place in it, and it is never left out.
fn list_texts<'c>(
    conversation: &'c Conversation,
    item: &'c Item,
) -> impl Iterator<Item = Span> + 'c {
    let calls = conversation.calls_of(item).iter().flat_map(|call| {
        let name = call.name.map(|name| name.span);
        let arguments = call.arguments.map(|arguments| arguments.span());
        name.into_iter().chain(arguments)
    });
    let texts = conversation.texts_of(item).map(|text| text.span);
    texts.chain(calls).filter(|_| !item.is_bound)
}

/// Calls `each` with the hash of every word of a text as JSON spells it, and with the word's place in the text: `None` for a
/// pair of characters.
fn scan_words(raw: &[u8], each: &mut impl FnMut(u64, Option<(usize, usize)>)) {
    let mut at = 0;
    // The Chinese or Japanese character before, for pairs.
    let mut before = None;
    while let Some(&byte) = raw.get(at) {
        let kind = CLASSES[byte as usize];
        let mut len = 1;
        let mut character = None;
        match kind {
            ByteClass::Letter => {
                len = run_length(raw, at, |class| {
                    class != ByteClass::Other
                        && class != ByteClass::Escape
                        && class != ByteClass::High
                });
                if len >= NAME_BYTES {
                    each(xxh3_64(&raw[at..at + len]), Some((at, at + len)));
                } else {
                    // The rest may contain a number.
                    len = raw[at..at + len]
                        .iter()
                        .position(u8::is_ascii_digit)
                        .unwrap_or(len)
                        .max(1);
                }
            }
            ByteClass::Digit => {
                len = run_length(raw, at, |class| class == ByteClass::Digit);
                if len >= NUMBER_DIGITS {
                    each(xxh3_64(&raw[at..at + len]), Some((at, at + len)));
                }
            }
            ByteClass::Escape => {
                len = 2;
                if raw.get(at + 1) == Some(&b'u') {
                    len = 6;
                    character = TextWalk::new(&raw[at..raw.len().min(at + 6)])
                        .next()
                        .map(|it| it.code);
                }
            }
            ByteClass::High => {
                len = match byte {
                    0xC0..0xE0 => 2,
                    0xE0..0xF0 => 3,
                    0xF0.. => 4,
                    _ => 1,
                };
                character = raw
                    .get(at..at + len)
                    .and_then(|bytes| std::str::from_utf8(bytes).ok()?.chars().next())
                    .map(u32::from);
            }
            ByteClass::Mark | ByteClass::Other => {}
        }
        let character = character.filter(|&code| is_paired(code));
        if let (Some(one), Some(next)) = (before, character) {
            each(u64::from(one) << 32 | u64::from(next), None);
        }
        before = character;
        at += len;
    }
}

/// Characters of texts that have no spaces between words.
const fn is_paired(code: u32) -> bool {
    matches!(code, 0x3040..0x3100 | 0x3400..0x4DC0 | 0x4E00..0xA000)
}

fn run_length(raw: &[u8], from: usize, inside: impl Fn(ByteClass) -> bool) -> usize {
    raw[from..]
        .iter()
        .take_while(|&&byte| inside(CLASSES[byte as usize]))
        .count()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    /// May begin a name.
    Letter,
    Digit,
    /// May stand in a name.
    Mark,
    /// A backslash.
    Escape,
    /// Beyond ASCII.
    High,
    Other,
}

const CLASSES: [ByteClass; 256] = {
    let mut classes = [ByteClass::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => ByteClass::Letter,
            b'0'..=b'9' => ByteClass::Digit,
            b'.' | b'/' | b'-' => ByteClass::Mark,
            b'\\' => ByteClass::Escape,
            0x80.. => ByteClass::High,
            _ => ByteClass::Other,
        };
        byte += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use super::*;

    fn words(raw: &str) -> Vec<&str> {
        let mut found = Vec::new();
        scan_words(raw.as_bytes(), &mut |_, span| {
            found.extend(span.map(|(from, to)| &raw[from..to]));
        });
        found
    }

    #[test]
    fn names_paths_and_numbers_are_words() {
        assert_eq!(
            words(
                r#"see src/guard/mod.rs:120 and `replay_conversation`,\nv12 \"error42\" a1234 _x"#
            ),
            [
                "src/guard/mod.rs",
                "120",
                "replay_conversation",
                "error42",
                "1234"
            ]
        );
        assert!(words("a bc def ghij klmno 12").is_empty());
    }

    #[test]
    fn pairs_of_characters_are_words_however_they_are_spelled() {
        let pairs = |raw: &str| {
            let mut found = Vec::new();
            scan_words(raw.as_bytes(), &mut |hash, span| {
                assert_eq!(span, None);
                found.push(hash);
            });
            found
        };
        assert_eq!(pairs("修复文件，错误").len(), 4);
        assert_eq!(pairs("修复"), pairs("\\u4fee\\u590d"));
        assert!(pairs("a修").is_empty());
    }
}
