//! (being built)
pub mod simulated;
