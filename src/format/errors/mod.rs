//! The bodies in which formats write errors, and the words that providers use in them.

pub mod error_body;
pub mod other_kinds;
mod overflow_error;
pub mod refusal;
