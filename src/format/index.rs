//! Indexes request bodies: bytes to a [`Conversation`] of spans.

use bytes::Bytes;

#[cfg(test)]
use super::tests::toy;
use super::{chat, messages};
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
            #[cfg(test)]
            Self::Toy => toy::index(body),
        }
    }

    /// Indexes items; `None` if one of them is not exactly one item.
    pub fn index_items(self, items: &[&str]) -> Option<Conversation> {
        let body = match self {
            Self::Chat => chat::write::wrap_messages(items),
            Self::Messages => messages::write::wrap_messages(items),
            #[cfg(test)]
            Self::Toy => toy::request_of(items),
        };
        let found = self.index_body(Bytes::from(body)).ok()?;
        (found.items.len() == items.len() && found.fields.len() == 1).then_some(found)
    }
}
