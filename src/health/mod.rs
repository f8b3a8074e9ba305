//! (being built)

pub mod limits;
