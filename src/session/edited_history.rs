//! A conversation whose history the client has edited: whether it continues a state that was found by loose keys.
//!
//! Clients replace old results by placeholders, set reminders beside the newest message, tell the time in their first
//! message, and spell the arguments of old calls anew. Then no key of the digest chain fits, and the state is looked for by
//! its answer. Other conversations may have that answer too. So the state keeps a [`HistorySketch`] of its conversation, and
//! is continued only where all of this holds:
//!
//! - The request holds the state's answer, with its text, call ids, names and arguments.
//! - It has at least 64 characters (`LONG_ANSWER`), or another answer of the state, with other words, stands before it.
//! - No trusted session id differs ([`TrustedIds`]).
//! - No message of the user has other words than it had; the first one may, and one that lost its words: what the client
//!   says in the user's place comes and goes, but other words of the user are another conversation.
//! - What is older than the sketch is the same but for results and the first message.
//! - Most of what was said since the session began is still there, in order. Answers and the user's messages count,
//!   results and system messages do not, nor does the first message, nor the examples or the history that the session began
//!   with: other sessions may have them too.
//!
//! Of several sessions with that answer, none is found: a loose key is ambiguous then ([`crate::store::LooseKeys`]).

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::{
    conversation::{Arguments, Author, BlockKind, Content, Conversation, Item, PlaceMap, texts},
    json::text,
    session::{SessionState, hint::TrustedIds},
};

/// Characters of an answer that no other conversation has by chance.
const LONG_ANSWER: usize = 64;
/// Elements that a state keeps of its conversation, the newest ones. With the loose keys they take 128 bytes at most; a
/// session keeps eight states or more.
const MAX_ELEMENTS: usize = 32;
/// Elements of a request that are compared with them.
const MAX_COMPARED: usize = 64;
/// Of longer messages of the user, what the client adds is not told from the words.
const MAX_WORDS_BYTES: usize = 16 << 10;
const NO_WORDS: u128 = 0;
/// Arguments of more bytes are digested as spelled.
const MAX_ARGUMENTS: usize = 1 << 10;

/// What a state remembers of its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistorySketch {
    /// Of the request, without system messages, the newest ones; oldest first.
    pub(super) elements: Vec<Element>,
    /// The digest of the answers and the user's messages before them, the first message apart.
    pub(super) older: u32,
    /// The digest of the answer's calls; 0 without calls.
    pub answer_calls: u32,
    /// The messages that the session began with.
    pub(super) began: u32,
    pub(super) trusted: TrustedIds,
}

/// A message, or a run of results. The upper 2 bits of 16 tell which; the others are of its digest, and of a run 5 bits are
/// the number of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Element([u8; 2]);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Results,
    Other,
    Answer,
    LongAnswer,
}

impl Element {
    const MAX_RUN: u16 = 31;

    fn new(kind: Kind, digest: u16) -> Self {
        Self(((kind as u16) << 14 | digest & 0x3FFF).to_be_bytes())
    }

    const fn bits(self) -> u16 {
        u16::from_be_bytes(self.0)
    }

    const fn kind(self) -> Kind {
        match self.bits() >> 14 {
            0 => Kind::Results,
            1 => Kind::Other,
            2 => Kind::Answer,
            _ => Kind::LongAnswer,
        }
    }

    const fn is_answer(self) -> bool {
        matches!(self.kind(), Kind::Answer | Kind::LongAnswer)
    }

    /// How many messages it stands for.
    const fn messages(self) -> u32 {
        match self.kind() {
            Kind::Results => (self.bits() >> 9) as u32,
            _ => 1,
        }
    }

    /// Whether the user's words of a message became other ones.
    fn has_other_words(self, now: Self) -> bool {
        let words = [self, now].map(|it| (it.kind() == Kind::Other).then_some(it.bits() & 0x3FFF));
        matches!(words, [Some(was), Some(now)] if was != now && was != 0 && now != 0)
    }

    /// How much it tells of a conversation.
    const fn weight(self) -> u32 {
        match self.kind() {
            Kind::Results => 0,
            Kind::Answer => 1,
            Kind::Other | Kind::LongAnswer => 2,
        }
    }

    /// How well two elements fit; `None` if one cannot have become the other.
    fn fit(self, now: Self) -> Option<u32> {
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
    let count = |raw: &[u8]| match raw.len() < 12 * LONG_ANSWER {
        true => text::count_chars(raw).unwrap_or(0),
        false => LONG_ANSWER,
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

/// The digest of an answer whose calls may be spelled anew.
fn digest_answer(conversation: &Conversation, answer: &Item) -> u128 {
    let calls = conversation.calls_of(answer).iter();
    let bytes = calls.map(|call| call.span.len()).sum::<usize>();
    match bytes > MAX_ARGUMENTS {
        true => answer.digest,
        false => {
            let calls = u128::from(conversation.digest_calls(answer));
            xxh3_128(&[answer.short_digest.to_le_bytes(), calls.to_le_bytes()].concat())
        }
    }
}

/// The digest of what the user says in a message, blanks apart, or of all of a long one; [`NO_WORDS`] for nothing.
fn digest_words(conversation: &Conversation, item: &Item) -> u128 {
    if item.span.len() > MAX_WORDS_BYTES {
        return item.digest;
    }
    let words = conversation.user_words(item).flat_map(texts::decode_chars);
    let words: String = words.filter(|it| !it.is_whitespace()).collect();
    match words.is_empty() {
        true => NO_WORDS,
        false => xxh3_128(words.as_bytes()),
    }
}

/// The newest elements of these items, oldest first.
fn list_elements(conversation: &Conversation, items: &[Item], most: usize) -> Vec<Element> {
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

/// The elements of a request that its state keeps, and the digest of what stands before them.
pub(super) type RequestSketch = (Vec<Element>, u32);

/// Sketches a request. `known`: the sketch of a state, and the item of its answer, where all messages before that are those of
/// the state. Then only the others are read.
pub(super) fn sketch_request(
    conversation: &Conversation,
    known: Option<(&HistorySketch, usize)>,
) -> RequestSketch {
    let continued = known.and_then(|(sketch, answer)| extend_sketch(conversation, sketch, answer));
    continued.unwrap_or_else(|| {
        let elements = list_elements(conversation, &conversation.items, MAX_ELEMENTS);
        let before = count_items(&conversation.items) - count_messages(&elements);
        let older = digest_older(conversation, 0..before, 0);
        (elements, older)
    })
}

/// `None` if the sketch is not that of the items before the answer, or nothing of it would stay.
fn extend_sketch(
    conversation: &Conversation,
    sketch: &HistorySketch,
    answer: usize,
) -> Option<RequestSketch> {
    let (before, added) = conversation.items.split_at_checked(answer)?;
    let added = list_elements(conversation, added, MAX_ELEMENTS);
    let first = count_items(before).checked_sub(count_messages(&sketch.elements))?;
    let is_whole = first == 0 || sketch.elements.len() == MAX_ELEMENTS;
    if !is_whole || added.len() == MAX_ELEMENTS {
        return None;
    }
    let mut elements = [&sketch.elements[..], &added].concat();
    let too_many = elements.len().saturating_sub(MAX_ELEMENTS);
    let gone: Vec<_> = elements.drain(..too_many).collect();
    let older = first..first + count_messages(&gone);
    let older = digest_older(conversation, older, sketch.older);
    Some((elements, older))
}

/// Messages of the system do not count.
fn count_items(items: &[Item]) -> u32 {
    let messages = items.iter().filter(|item| !item.author.is_system());
    messages.count() as u32
}

fn count_messages(elements: &[Element]) -> u32 {
    elements.iter().map(|it| it.messages()).sum()
}

/// Adds the answers and the user's messages among the messages of a range to the digest of those `before`, the first message
/// apart. A client may clear results.
fn digest_older(conversation: &Conversation, range: Range<u32>, before: u32) -> u32 {
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
    digests.fold(before, |before, digest| {
        let mut mixed = digest.to_le_bytes().to_vec();
        mixed.extend(u32::to_le_bytes(before));
        xxh3_64(&mixed) as u32
    })
}

/// How a conversation continues a state although its history was edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EditedHistory {
    pub(super) places: PlaceMap,
    /// Messages and runs of results that were changed, added or removed, as far as the state remembers them, 1 at the least.
    pub(super) changed: u32,
}

/// How this conversation, whose `item` behind `answer_at` messages has the loose keys of the state's answer, continues the
/// state; `None` if it does not.
pub(super) fn compare_history(
    state: &SessionState,
    conversation: &Conversation,
    item: usize,
    answer_at: u32,
    trusted: TrustedIds,
) -> Option<EditedHistory> {
    let sketch = &state.sketch;
    let answer = conversation.items.get(item)?;
    if sketch.answer_calls != conversation.digest_calls(answer)
        || trusted.differ_from(sketch.trusted, state.session)
    {
        return None;
    }
    let was = &sketch.elements;
    let now = list_elements(conversation, &conversation.items[..item], MAX_COMPARED);
    let count = count_messages;
    let first = state.messages.checked_sub(count(was))?;
    let first_now = answer_at.checked_sub(count(&now))?;
    let pairs = align_elements(was, &now);
    if first > 0 {
        let (_, begin) = pairs.first().filter(|pair| pair.0 == 0)?;
        let older = first_now + count(&now[..*begin]);
        if digest_older(conversation, 0..older, 0) != sketch.older {
            return None;
        }
    }

    let is_long = is_long_answer(conversation, answer);
    let kind = if is_long {
        Kind::LongAnswer
    } else {
        Kind::Answer
    };
    let own_answer = Element::new(kind, digest_answer(conversation, answer) as u16);
    let own = 1 + u32::from(is_long);
    let (mut all, mut there, mut same, mut answers) = (own, own, 0, 0);
    let mut places = Vec::new();
    let mut place = first;
    for (at, element) in was.iter().enumerate() {
        let kept = pairs.iter().find(|pair| pair.0 == at).map(|pair| pair.1);
        let is_same = kept.is_some_and(|kept| now[kept] == *element);
        if place > 0 && kept.is_some_and(|kept| element.has_other_words(now[kept])) {
            return None;
        }
        let weight = if place < sketch.began {
            0
        } else {
            element.weight()
        };
        (all, there) = (all + weight, there + weight * u32::from(is_same));
        same += u32::from(is_same);
        // Local engines repeat an answer word for word: said twice, it tells no more than once.
        answers += u32::from(is_same && element.is_answer() && *element != own_answer);
        let begin = kept.map(|kept| (first_now + count(&now[..kept]), now[kept].messages()));
        places.extend((0..element.messages()).map(|of| {
            let (begin, messages) = begin?;
            (of < messages).then_some(begin + of)
        }));
        place += element.messages();
    }
    if 2 * there <= all || (!is_long && answers == 0) {
        return None;
    }
    let compared = pairs.first().map_or(0, |pair| now.len() - pair.1) as u32;
    Some(EditedHistory {
        places: PlaceMap::new(first, places, answer_at),
        changed: ((was.len() as u32).max(compared) - same).max(1),
    })
}

/// Which element has become which, ascending. Both lists end at the same place.
fn align_elements(was: &[Element], now: &[Element]) -> Vec<(usize, usize)> {
    let width = now.len() + 1;
    let mut best = vec![0; (was.len() + 1) * width];
    for at in (0..was.len()).rev() {
        for of in (0..now.len()).rev() {
            let pair = was[at].fit(now[of]);
            let pair = pair.map_or(0, |fit| fit + best[(at + 1) * width + of + 1]);
            let apart = best[(at + 1) * width + of].max(best[at * width + of + 1]);
            best[at * width + of] = pair.max(apart);
        }
    }
    let (mut at, mut of) = (0, 0);
    let mut pairs = Vec::new();
    while at < was.len() && of < now.len() {
        let here = best[at * width + of];
        if here == best[at * width + of + 1] {
            // The later one is nearer to what follows.
            of += 1;
        } else if here == best[(at + 1) * width + of] {
            at += 1;
        } else {
            pairs.push((at, of));
            (at, of) = (at + 1, of + 1);
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};
    use serde_json::json;

    use super::*;
    use crate::conversation::Format;

    const fn element(kind: Kind, digest: u16) -> Element {
        Element(((kind as u16) << 14 | digest).to_be_bytes())
    }

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
            let (elements, older) = sketch_request(&conversation(&before), None);
            let known = HistorySketch { elements, older, ..HistorySketch::default() };
            let all = conversation(&all);
            let answer = Some((&known, before.len()));
            prop_assert_eq!(sketch_request(&all, answer), sketch_request(&all, None));
        }
    }

    #[test]
    fn elements_are_aligned_by_what_is_the_same_and_edited_ones_stand_between() {
        let user = |digest| element(Kind::Other, digest);
        let answer = |digest| element(Kind::Answer, digest);
        let run = |count: u16, digest| element(Kind::Results, count << 9 | digest);
        let was = [user(1), answer(2), run(2, 7), answer(3), user(4), answer(5)];
        // The first message is another, the results are cleared, and a text stands beside them.
        let now = [
            user(9),
            answer(2),
            run(2, 1),
            user(8),
            answer(3),
            user(4),
            answer(5),
        ];
        let pairs = align_elements(&was, &now);
        assert_eq!(pairs, [(0, 0), (1, 1), (2, 2), (3, 4), (4, 5), (5, 6)]);
        // A user's message never becomes an answer.
        let pairs = align_elements(&[user(1), answer(2)], &[answer(1), answer(2)]);
        assert_eq!(pairs, [(1, 1)]);
        assert_eq!(align_elements(&[], &now), []);
        assert_eq!(align_elements(&was, &[]), []);
    }
}
