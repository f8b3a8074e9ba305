//! Errors as formats write them, and what providers say in them.

pub mod error_body;
pub mod other_kinds;
mod overflow_error;
pub mod refusal;
