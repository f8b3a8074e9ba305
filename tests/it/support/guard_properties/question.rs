//! Which message is the user's newest one: a judge that shares no code with the proxy.

use crate::support::generate::notes::{KNOWN, LEARNT, OF_USER};
use plimsoll::conversation::{Author, Conversation, Item};

/// The newest message of the user's own, in conversations of the generators.
pub(super) fn find_question(conversation: &Conversation) -> Option<usize> {
    let (mut has_learnt, mut is_behind, mut question) = (false, false, None);
    for (at, item) in conversation.items.iter().enumerate() {
        match item.author {
            Author::Tool => is_behind = true,
            Author::User => {
                if !(is_behind && is_note(conversation, item, &mut has_learnt)) {
                    (is_behind, question) = (false, Some(at));
                }
            }
            _ => is_behind = false,
        }
    }
    question
}

/// Whether a message behind results is the client's. `has_learnt`: one with the element that is learnt stood behind
/// results.
fn is_note(conversation: &Conversation, item: &Item, has_learnt: &mut bool) -> bool {
    let texts = conversation.texts_of(item);
    let texts: Vec<_> = texts.map(|text| conversation.decode_text(text)).collect();
    let (mut is_of_client, mut learns, mut count) = (true, false, 0);
    for mut text in texts.iter().map(|text| text.trim()) {
        while !text.is_empty() {
            let mut names = KNOWN.iter().chain([&LEARNT, &OF_USER]).copied();
            let opens = |name: &&str| text.starts_with(&format!("<{name}>"));
            let Some(name) = names.find(opens) else {
                return false;
            };
            let Some((_, rest)) = text.split_once(&format!("</{name}>")) else {
                return false;
            };
            is_of_client &= name != OF_USER && (name != LEARNT || *has_learnt);
            learns |= name == LEARNT;
            count += 1;
            text = rest.trim();
        }
    }
    if conversation.blocks_of(item).len() > texts.len() {
        return false;
    }
    *has_learnt |= learns;
    is_of_client && count > 0
}
