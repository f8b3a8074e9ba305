//! The messages of an edited conversation, in their order.

use crate::conversation::{Author, Conversation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineItem {
    /// A message of the conversation, by its index.
    Client(usize),
    /// A message of the conversation, with the number of calls injected into it.
    ClientWithCalls(usize, u32),
    /// An injected message without calls.
    Injected(Author),
    /// An injected assistant message, with the number of its calls.
    InjectedAssistant(u32),
    /// An injected result of an injected call.
    InjectedResult,
}

impl OutlineItem {
    pub(in crate::guard) fn role(self, conversation: &Conversation) -> Author {
        match self {
            Self::Client(at) | Self::ClientWithCalls(at, _) => conversation.items[at].author,
            Self::Injected(role) => role,
            Self::InjectedAssistant(_) => Author::Model,
            Self::InjectedResult => Author::Tool,
        }
    }

    pub(super) fn is_bound(self, conversation: &Conversation) -> bool {
        match self {
            Self::Client(at) => conversation.items[at].is_bound,
            // A prompt that is a system message.
            Self::Injected(author) => author.is_system(),
            _ => false,
        }
    }
}

/// The outline of a conversation as it came.
pub(super) fn list_client_items(conversation: &Conversation) -> Vec<OutlineItem> {
    let items = 0..conversation.items.len();
    items.map(OutlineItem::Client).collect()
}
