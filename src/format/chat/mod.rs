//! Chat completions.

pub mod answer;
mod index;
mod request;
pub(super) mod summary;
pub(super) mod write;

pub use self::index::index;

#[cfg(test)]
mod tests;
