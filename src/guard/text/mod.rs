//! Shortens one text around a marker.

pub(in crate::guard) mod arguments;
pub(in crate::guard) mod asked_lines;
pub(in crate::guard) mod error_line;
pub(crate) mod fence;
pub(crate) mod line_range;
pub mod truncate;
