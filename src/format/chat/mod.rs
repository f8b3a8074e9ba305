//! Chat completions.

pub mod answer;
pub(super) mod index;
pub(super) mod reasoning_members;
pub(super) mod request;
pub(super) mod summary;
pub(super) mod tools;
pub(super) mod write;

pub use self::index::index_body;

#[cfg(test)]
mod tests;
