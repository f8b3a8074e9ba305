//! Chat completions.

pub mod answer;
mod index;
mod request;

pub use self::index::index;

#[cfg(test)]
mod tests;
