//! Indexes request bodies: bytes to a [`Conversation`] of spans.

pub(super) mod describe;
mod guess;
pub(super) mod indexing;
pub(super) mod known_prefix;
pub(crate) mod media;
pub(super) mod sealed;

use bytes::Bytes;

pub use self::known_prefix::{KnownPrefixes, PrefixesOfAccount};
use super::{chat, messages, responses};
use crate::conversation::{Conversation, Format, IndexError};

impl Format {
    /// Indexes a request body. If a body of Responses has compaction entries of the proxy, then the conversation has
    /// another body, in which messages with the texts of these entries replace them.
    ///
    /// # Errors
    /// The body is not JSON, or not a conversation of this format.
    pub fn index_body(self, body: Bytes) -> Result<Conversation, IndexError> {
        self.index_known_body(body, None)
    }

    /// Indexes a request body, faster if its list has a known prefix: see [`KnownPrefixes`].
    ///
    /// # Errors
    /// The body is not JSON, or not a conversation of this format.
    pub fn index_known_body(
        self,
        body: Bytes,
        prefixes: PrefixesOfAccount<'_>,
    ) -> Result<Conversation, IndexError> {
        in_format!(self, index::index_known_body(body, prefixes))
    }

    /// A body with messages in the place of the proxy's own compaction entries; `None` where it has none.
    pub fn unfold_compactions(self, body: &Bytes) -> Option<Bytes> {
        by_format!(self,
            Responses => responses::index::unfold_body(body);
            else Chat | Messages => None)
    }

    /// Indexes items; `None` if one of them is not exactly one item.
    pub fn index_items(self, items: &[&str]) -> Option<Conversation> {
        let body = in_format!(self, write::wrap_items(items));
        let found = self.index_body(Bytes::from(body)).ok()?;
        (found.items.len() == items.len() && found.fields.len() == 1).then_some(found)
    }
}
