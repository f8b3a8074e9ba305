//! JSON without a tree: a scanner over bytes, spans of values, and the sizes and digests of texts.
//!
//! This module knows no wire format, and never copies or re-serialises a body.

pub mod scan;
pub mod text;
