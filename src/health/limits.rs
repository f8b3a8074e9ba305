//! From where on a level is caution or critical.

/// In prompt tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub optimal_max_tokens: u32,
    pub critical_max_tokens: u32,
}
