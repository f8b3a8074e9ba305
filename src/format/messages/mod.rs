//! Anthropic's Messages.

pub mod answer;
pub(super) mod blocks;
pub(super) mod index;
pub(super) mod markers;
pub(super) mod request;
pub(super) mod summary;
pub(super) mod tools;
pub(super) mod write;

pub use self::index::index_body;

#[cfg(test)]
mod tests;
