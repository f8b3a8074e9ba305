//! OpenAI's Responses.

use bytes::Bytes;

pub mod answer;
mod compaction_item;
mod entries;
mod followers;
pub(super) mod index;
mod kinds;
mod open_item;
pub(super) mod request;
pub(super) mod summary;
pub(super) mod tools;
mod values;
pub(super) mod write;

pub(super) use self::compaction_item::append_trigger;

/// The body with messages in the place of compaction entries of the proxy; `None` where there is none.
pub(super) fn unfold_body(body: &Bytes) -> Option<Bytes> {
    if !compaction_item::may_have_entries(body) {
        return None;
    }
    let found = index::index_entries(body.clone()).ok()?;
    compaction_item::unfold_entries(&found)
}

#[cfg(test)]
mod tests;
