//! OpenAI's Responses.

pub mod answer;
pub(super) mod compaction_item;
mod entries;
mod followers;
pub(super) mod index;
mod kinds;
pub(super) mod request;
pub(super) mod summary;
pub(super) mod tools;
mod values;
pub(super) mod write;

#[cfg(test)]
mod tests;
