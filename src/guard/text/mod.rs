//! One text made shorter around a marker.

pub(in crate::guard) mod arguments;
pub(crate) mod fence;
pub mod truncate;
