//! Decides whether a conversation whose history the client has edited continues a state that was found by loose keys.
//!
//! Clients replace old results by placeholders, add texts of their own to the newest message, write the time into their
//! first message, and spell the arguments of old calls anew. Then no key of the digest chain fits, and the state is looked
//! for by its answer. Other conversations may have that answer too. Therefore the state keeps a sketch of its conversation
//! ([`crate::session::history_sketch`]), and it is continued only if all of this holds:
//!
//! - The request holds the state's answer, with its text, call ids, names and arguments.
//! - This answer has at least 64 characters (`LONG_ANSWER`), or the request has another answer of the state, with other
//!   words, before it.
//! - No trusted session id differs ([`TrustedIds`]).
//! - No user message except the first has other words than before. A message may have lost all its words, or gained words if
//!   it had none, since texts that the client puts in the user's place come and go. Other words of the user mean another
//!   conversation.
//! - Everything older than the sketch is the same, except for results and the first message.
//! - More than half of what was said since the session began is still there, in order. Answers and user messages count.
//!   Results, system messages and the first message do not count, nor do the examples or the history that the session began
//!   with: other sessions may have them too.
//!
//! If several sessions have that answer, then no state is found: the loose key is ambiguous ([`crate::store::LooseKeys`]).

use crate::{
    conversation::{Conversation, PlaceMap},
    session::{
        SessionState,
        hint::TrustedIds,
        history_sketch::{
            Element, Kind, count_messages, digest_answer, digest_older, is_long_answer,
            list_elements,
        },
    },
};

/// Elements of a request that are compared with those of a state.
const MAX_COMPARED: usize = 64;

/// How a conversation continues a state although its history was edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EditedHistory {
    pub(super) places: PlaceMap,
    /// Messages and runs of results that were changed, added or removed, as far as the state remembers them; at least 1.
    pub(super) changed: u32,
}

/// Compares a conversation with a state that a loose key found. `item` is the index of the answer with that key, and
/// `answer_at` the number of messages before it. `None` if the conversation does not continue the state.
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
        if place > 0 && kept.is_some_and(|kept| element.has_different_words(now[kept])) {
            return None;
        }
        let weight = if place < sketch.began {
            0
        } else {
            element.weight()
        };
        (all, there) = (all + weight, there + weight * u32::from(is_same));
        same += u32::from(is_same);
        // Local engines repeat an answer word for word, so a repetition of the state's own answer proves nothing more.
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

/// Aligns the earlier elements with the present ones by the best total fit (a weighted longest common subsequence). Returns
/// pairs of indices, ascending. Both lists end at the same place.
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
            // Of equal alignments, the one with the later element is taken: it is nearer to what follows.
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
    use super::*;

    const fn element(kind: Kind, digest: u16) -> Element {
        Element(((kind as u16) << 14 | digest).to_be_bytes())
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
