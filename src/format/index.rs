//! Indexes request bodies: bytes to a [`Conversation`] of spans.

use bytes::Bytes;

#[cfg(test)]
use super::tests::toy;
use super::{chat, messages, responses};
use crate::conversation::{Conversation, Format, IndexError};

impl Format {
    /// Indexes a request body.
    ///
    /// # Errors
    /// Where it is no JSON, or no conversation of this format.
    pub fn index_body(self, body: Bytes) -> Result<Conversation, IndexError> {
        match self {
            Self::Chat => chat::index_body(body),
            Self::Messages => messages::index_body(body),
            Self::Responses => responses::index_body(body),
            #[cfg(test)]
            Self::Toy => toy::index(body),
        }
    }

    /// Whether a member of an entry or a block says nothing of what the model reads: its digest leaves it out.
    pub(super) fn ignores_in_digest(self, key: &[u8]) -> bool {
        self == Self::Responses && responses::is_bookkeeping(key)
    }

    /// Indexes items; `None` if one of them is not exactly one item.
    pub fn index_items(self, items: &[&str]) -> Option<Conversation> {
        let body = match self {
            Self::Chat => chat::write::wrap_messages(items),
            Self::Messages => messages::write::wrap_messages(items),
            Self::Responses => responses::write::wrap_entries(items),
            #[cfg(test)]
            Self::Toy => toy::request_of(items),
        };
        let found = self.index_body(Bytes::from(body)).ok()?;
        (found.items.len() == items.len() && found.fields.len() == 1).then_some(found)
    }
}
