//! Who is asked, how, and what is known of them.
//!
//! [`Registry::choose`] turns the name of a model into those who may answer, with their windows;
//! [`Provider::send`] asks one of them.

mod background;
pub mod catalogue;
mod choice;
mod client;
pub mod headers;
pub mod learnt;
pub mod listed;
pub mod names;
pub mod overflow;
mod patience;
mod query;
mod registry;
pub mod retry;
mod reuse;
pub mod simulated;
pub mod upgrade;
mod upstream;
mod window;

pub use crate::breaker;

pub use self::{
    choice::Choice,
    names::Unknown,
    registry::{Asked, Offered, Registry, Target},
    upstream::{Outgoing, Payload, Provider, Unsent, Upload, UploadBroken},
    window::{ASSUMED_WINDOW, Source, Window},
};

/// The built-in provider's name.
pub const SIMULATED: &str = "simulated";

/// Whether a name fits a pattern, which may have a `*` at its end.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests;
