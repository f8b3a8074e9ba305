//! What a state remembers of its conversation, so that the state is found again after the client has edited its history
//! ([`crate::session::edited_history`]).

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::{
    conversation::{Arguments, Author, BlockKind, Content, Conversation, Item, texts},
    json::text,
    session::hint::TrustedIds,
};

/// An answer of at least this many characters counts as unique: no other conversation has it by chance.
const LONG_ANSWER: usize = 64;
/// Elements that a state keeps of its conversation, the newest ones. With the loose keys they take 128 bytes at most; a
/// session keeps eight states or more.
const MAX_ELEMENTS: usize = 32;
/// A user message of more bytes is digested as a whole: texts that the client adds to it are not separated from the user's
/// words.
const MAX_WORDS_BYTES: usize = 16 << 10;
const NO_WORDS: u128 = 0;
/// If the calls of an answer take more bytes, then their arguments are digested as spelled.
const MAX_ARGUMENTS: usize = 1 << 10;

/// What a state remembers of its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistorySketch {
    /// The newest elements of the request, without system messages; oldest first.
    pub(super) elements: Vec<Element>,
    /// The digest of the answers and user messages before these elements, without the first message of the conversation.
    pub(super) older: u32,
    /// The digest of the answer's calls; 0 without calls.
    pub answer_calls: u32,
    /// Number of messages with which the session began. They have no weight in a comparison, since other sessions may have
    /// them too.
    pub(super) began: u32,
    pub(super) trusted: TrustedIds,
}

/// A message or a run of results, in 16 bits. The upper 2 bits are the [`Kind`]; the other 14 are bits of the digest. In a
/// run, the upper 5 of these 14 bits are the number of results instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Element(pub(super) [u8; 2]);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Results,
    Other,
    Answer,
    LongAnswer,
}

impl Element {
    const MAX_RUN: u16 = 31;

    pub(super) fn new(kind: Kind, digest: u16) -> Self {
        Self(((kind as u16) << 14 | digest & 0x3FFF).to_be_bytes())
    }

    const fn bits(self) -> u16 {
        u16::from_be_bytes(self.0)
    }

    pub(super) const fn kind(self) -> Kind {
        match self.bits() >> 14 {
            0 => Kind::Results,
            1 => Kind::Other,
            2 => Kind::Answer,
            _ => Kind::LongAnswer,
        }
    }

    pub(super) const fn is_answer(self) -> bool {
        matches!(self.kind(), Kind::Answer | Kind::LongAnswer)
    }

    /// The number of messages that the element covers.
    pub(super) const fn messages(self) -> u32 {
        match self.kind() {
            Kind::Results => (self.bits() >> 9) as u32,
            _ => 1,
        }
    }

    /// Whether both elements have words of the user, and these words differ.
    pub(super) fn has_different_words(self, now: Self) -> bool {
        let words = [self, now].map(|it| (it.kind() == Kind::Other).then_some(it.bits() & 0x3FFF));
        matches!(words, [Some(was), Some(now)] if was != now && was != 0 && now != 0)
    }

    /// How much the element counts when two histories are compared.
    pub(super) const fn weight(self) -> u32 {
        match self.kind() {
            Kind::Results => 0,
            Kind::Answer => 1,
            Kind::Other | Kind::LongAnswer => 2,
        }
    }

    /// How well two elements fit; `None` if one cannot have become the other.
    pub(super) fn fit(self, now: Self) -> Option<u32> {
        let is_run = self.kind() == Kind::Results && self.messages() == now.messages();
        match self == now {
            true => Some(8),
            false if self.is_answer() != now.is_answer() => None,
            false if self.is_answer() || self.kind() == now.kind() => {
                Some(1 + 2 * u32::from(is_run))
            }
            false => None,
        }
    }
}

/// Whether an answer is so long that no other conversation has it by chance.
pub(super) fn is_long_answer(conversation: &Conversation, answer: &Item) -> bool {
    // A character takes 12 bytes at most.
    let count = |raw: &[u8]| {
        if raw.len() < 12 * LONG_ANSWER {
            text::count_chars(raw).unwrap_or(0)
        } else {
            LONG_ANSWER
        }
    };
    let blocks = conversation.blocks_of(answer).iter();
    let texts = blocks.filter_map(|block| match block.kind {
        BlockKind::Text(text) => Some(text),
        _ => None,
    });
    let texts = texts.chain(match answer.content {
        Content::Text(text) => Some(text),
        _ => None,
    });
    let calls = conversation.calls_of(answer).iter();
    let calls = calls.flat_map(|call| {
        let name = call.name.map(|name| conversation.raw_bytes(name));
        let arguments = call.arguments.map(|arguments| match arguments {
            Arguments::Text(text) => conversation.raw_bytes(text),
            Arguments::Json(span) => conversation.span_bytes(span),
        });
        [name, arguments].into_iter().flatten()
    });
    let raw = texts.map(|text| conversation.raw_bytes(text)).chain(calls);
    raw.map(count).sum::<usize>() >= LONG_ANSWER
}

/// Digests an answer. Another spelling of its calls gives the same digest, unless the calls take more than [`MAX_ARGUMENTS`]
/// bytes.
pub(super) fn digest_answer(conversation: &Conversation, answer: &Item) -> u128 {
    let calls = conversation.calls_of(answer).iter();
    let bytes = calls.map(|call| call.span.len()).sum::<usize>();
    if bytes > MAX_ARGUMENTS {
        answer.digest
    } else {
        let calls = u128::from(conversation.digest_calls(answer));
        xxh3_128(&[answer.short_digest.to_le_bytes(), calls.to_le_bytes()].concat())
    }
}

/// Digests the user's words in a message, without white space; of a message over [`MAX_WORDS_BYTES`], the whole message.
/// [`NO_WORDS`] if there are no words.
fn digest_words(conversation: &Conversation, item: &Item) -> u128 {
    if item.span.len() > MAX_WORDS_BYTES {
        return item.digest;
    }
    let words = conversation.user_words(item).flat_map(texts::decode_chars);
    let words: String = words.filter(|it| !it.is_whitespace()).collect();
    if words.is_empty() {
        NO_WORDS
    } else {
        xxh3_128(words.as_bytes())
    }
}

/// Lists the newest elements of these items, at most `most`; oldest first.
pub(super) fn list_elements(
    conversation: &Conversation,
    items: &[Item],
    most: usize,
) -> Vec<Element> {
    let mut elements = Vec::with_capacity(most);
    let (mut run, mut digest) = (0, 0);
    let end_run = |elements: &mut Vec<_>, run: &mut u16, digest: &mut u64| {
        if *run > 0 {
            let bits = *run << 9 | *digest as u16 & 0x1FF;
            elements.push(Element::new(Kind::Results, bits));
        }
        (*run, *digest) = (0, 0);
    };
    for item in items.iter().rev().filter(|item| !item.author.is_system()) {
        if !item.author.is_tool() || run == Element::MAX_RUN {
            end_run(&mut elements, &mut run, &mut digest);
        }
        if elements.len() >= most {
            break;
        }
        let (kind, whole) = match item.author {
            Author::Tool => {
                run += 1;
                let mixed = [digest.to_le_bytes(), (item.digest as u64).to_le_bytes()];
                digest = xxh3_64(&mixed.concat());
                continue;
            }
            Author::Model if is_long_answer(conversation, item) => {
                (Kind::LongAnswer, digest_answer(conversation, item))
            }
            Author::Model => (Kind::Answer, digest_answer(conversation, item)),
            _ => (Kind::Other, digest_words(conversation, item)),
        };
        elements.push(Element::new(kind, whole as u16));
    }
    end_run(&mut elements, &mut run, &mut digest);
    elements.truncate(most);
    elements.reverse();
    elements
}

/// What a state keeps of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestSketch {
    pub(super) elements: Vec<Element>,
    /// The digest of the older messages, as in [`HistorySketch::older`].
    pub(super) older: u32,
}

/// Sketches a request. `known` is the sketch of a state and the index of the item of its answer, if all messages before that
/// item are those of the state. Then only the items from the answer on are read.
pub(super) fn sketch_request(
    conversation: &Conversation,
    known: Option<(&HistorySketch, usize)>,
) -> RequestSketch {
    let continued = known.and_then(|(sketch, answer)| extend_sketch(conversation, sketch, answer));
    continued.unwrap_or_else(|| {
        let elements = list_elements(conversation, &conversation.items, MAX_ELEMENTS);
        let before = count_counted(&conversation.items) - count_messages(&elements);
        let older = digest_older(conversation, 0..before, 0);
        RequestSketch { elements, older }
    })
}

/// Extends the sketch of a state by the items from `answer` on. All items before the answer are those of the state, by the
/// key that found the state. The first added item is an answer, so no run of results spans the border. `None` if the counts
/// do not fit, or if nothing of the old sketch would stay.
fn extend_sketch(
    conversation: &Conversation,
    sketch: &HistorySketch,
    answer: usize,
) -> Option<RequestSketch> {
    let (before, added) = conversation.items.split_at_checked(answer)?;
    let added = list_elements(conversation, added, MAX_ELEMENTS);
    let first = count_counted(before).checked_sub(count_messages(&sketch.elements))?;
    let covers_all = first == 0 || sketch.elements.len() == MAX_ELEMENTS;
    if !covers_all || added.len() == MAX_ELEMENTS {
        return None;
    }
    let mut elements = [&sketch.elements[..], &added].concat();
    let too_many = elements.len().saturating_sub(MAX_ELEMENTS);
    let gone: Vec<_> = elements.drain(..too_many).collect();
    let range = first..first + count_messages(&gone);
    let older = digest_older(conversation, range, sketch.older);
    Some(RequestSketch { elements, older })
}

/// Counts the items that are not system messages.
fn count_counted(items: &[Item]) -> u32 {
    let messages = items.iter().filter(|item| !item.author.is_system());
    messages.count() as u32
}

pub(super) fn count_messages(elements: &[Element]) -> u32 {
    elements.iter().map(|it| it.messages()).sum()
}

/// Adds the answers and user messages in `range` to `seed`, the digest of the messages before the range. The first message
/// of the conversation is left out. Results are left out too, since a client may clear them.
pub(super) fn digest_older(conversation: &Conversation, range: Range<u32>, seed: u32) -> u32 {
    let items = conversation.items.iter();
    let older = items.filter(|item| !item.author.is_system());
    let older = older.take(range.end as usize);
    let older = older.skip(range.start.max(1) as usize);
    let digests = older.filter_map(|item| match item.author {
        Author::Model => Some(item.short_digest),
        Author::User => {
            let words = digest_words(conversation, item);
            (words != NO_WORDS).then_some(words)
        }
        _ => None,
    });
    digests.fold(seed, |before, digest| {
        let mut mixed = digest.to_le_bytes().to_vec();
        mixed.extend(u32::to_le_bytes(before));
        xxh3_64(&mixed) as u32
    })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};
    use serde_json::json;

    use super::*;
    use crate::conversation::Format;

    /// A conversation of these roles: each message has other words than those before it.
    fn conversation(roles: &[u8]) -> Conversation {
        let message = |(at, role): (usize, &u8)| {
            let text = format!("{at} is said at length, {}", "and on ".repeat(at % 13));
            match role {
                0 => json!({"role": "system", "content": text}),
                1 => json!({"role": "user", "content": text}),
                2 => json!({"role": "assistant", "content": text}),
                _ => json!({"role": "tool", "tool_call_id": format!("call_{at}"), "content": text}),
            }
        };
        let messages: Vec<_> = roles.iter().enumerate().map(message).collect();
        let body = json!({"model": "m", "messages": messages}).to_string();
        Format::Chat.index_body(body.into()).unwrap()
    }

    proptest! {
        #[test]
        fn a_sketch_that_goes_on_is_that_of_the_whole_conversation(
            roles in vec(prop_oneof![1 => Just(0_u8), 3 => Just(1), 3 => Just(2), 8 => Just(3)], 1..160),
            cut in any::<Index>(),
        ) {
            let mut before = roles.clone();
            before.truncate(cut.index(roles.len()));
            let mut all = before.clone();
            all.push(2);
            all.extend(&roles[before.len()..]);
            let RequestSketch { elements, older } = sketch_request(&conversation(&before), None);
            let known = HistorySketch { elements, older, ..HistorySketch::default() };
            let all = conversation(&all);
            let answer = Some((&known, before.len()));
            prop_assert_eq!(sketch_request(&all, answer), sketch_request(&all, None));
        }
    }
}
