//! Places of answers.

use serde::{Deserialize, Serialize};

use crate::conversation::Conversation;

/// The place of an answer. `place`: the number of the client's messages before it, without system messages. `round`: the
/// number of tool rounds of the proxy at that place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AnswerPlace {
    pub place: u32,
    pub round: u32,
}

/// For each message, the number of the client's messages before it, without system messages. A system message has the place
/// of the message before it. One more number at the end counts all messages.
pub(in crate::guard) fn count_places(conversation: &Conversation) -> Vec<u32> {
    let mut count = conversation.summarised;
    let mut places = Vec::with_capacity(conversation.items.len() + 1);
    for item in &conversation.items {
        if item.author.is_system() {
            places.push(u32::saturating_sub(count, 1))
        } else {
            places.push(count);
            count += 1;
        }
    }
    places.push(count);
    places
}
