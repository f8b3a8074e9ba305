//! OpenAI's Responses.

pub mod answer;
mod entries;
pub(super) mod index;
mod kinds;
mod open_item;
pub(super) mod request;
pub(super) mod summary;
pub(super) mod tools;
mod values;
pub(super) mod write;

pub(super) use self::index::index_body;

/// Whether a member of an entry changes from request to request without another meaning. Some clients leave them out
/// of what they send back.
pub(super) const fn is_bookkeeping(key: &[u8]) -> bool {
    matches!(key, b"id" | b"status")
}

#[cfg(test)]
mod tests;
