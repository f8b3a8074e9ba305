//! Who is asked, how, and what is known of them.
//!
//! [`Registry::choose`] turns the name of a model into those who may answer, with their windows;
//! [`Provider::send`] asks one of them.

mod background;
mod body_size;
pub mod catalogue;
mod choice;
mod client;
pub mod headers;
pub mod learnt;
pub mod listed;
pub mod overflow;
mod patience;
mod query;
mod registry;
pub mod retry;
mod reuse;
pub mod simulated;
mod upstream;
mod warnings;
mod window;

pub use crate::breaker;
use crate::error::Failure;

pub use self::{
    body_size::fit_body_to_windows,
    choice::Choice,
    patience::Impatient,
    registry::{Asked, Offered, Registry, Target},
    upstream::{Outgoing, Payload, Provider, Unsent, Upload},
    warnings::{unknown_windows, warnings},
    window::{ASSUMED_WINDOW, Bounds, Source, Window},
};
pub use crate::config::{
    SIMULATED,
    names::{self, Unknown, matches},
};

impl From<Unknown> for Failure {
    fn from(unknown: Unknown) -> Self {
        match unknown {
            Unknown::Provider { .. } => Self::ProviderNotFound(unknown.to_string()),
            _ => Self::ModelNotFound(unknown.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
