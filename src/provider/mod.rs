//! (being built)

pub mod catalogue;
