//! Chat completions.

pub mod answer;
