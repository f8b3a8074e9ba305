//! One text made shorter around a marker.

pub(in crate::guard) mod arguments;
pub(in crate::guard) mod decodable;
pub(crate) mod fence;
pub mod truncate;
