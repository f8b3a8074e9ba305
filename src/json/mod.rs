//! JSON without a tree: a scanner over bytes, spans of what it finds, the text of strings with its measure and digest.
//!
//! Knows nothing of any wire format. Nothing here copies or re-serialises a body.

pub mod scan;
pub mod text;
