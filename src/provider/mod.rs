//! Providers: which of them serve a model, how large its window is, and how a request is sent.
//!
//! [`Registry::choose_candidates`] turns the name of a model into candidates with their windows;
//! [`Provider::send_request`] sends a request to one of them.

mod background;
mod body_size;
pub mod catalogue;
pub mod headers;
mod http_client;
pub mod learnt_windows;
mod model_candidates;
pub mod model_lists;
mod outgoing_request;
pub mod overflow;
mod registry;
pub mod retry;
#[cfg_attr(not(feature = "simulated"), path = "no_simulated.rs")]
pub mod simulated;
pub mod size_refusal;
pub mod summary_refusal;
pub mod thinking_refusal;
mod upstream;
mod upstream_client;
mod warnings;
mod window;
pub mod window_beta_refusal;

pub use crate::breaker;
use crate::error::Failure;

pub use self::{
    body_size::fit_body_to_windows,
    http_client::{begin_client_for, begin_http_client},
    model_candidates::ModelCandidates,
    outgoing_request::{OutgoingRequest, Payload, Upload, UpstreamError},
    registry::{ModelListResult, OfferedModel, Registry, Target},
    upstream::Provider,
    upstream_client::IdleTimeoutBody,
    warnings::{collect_warnings, find_unknown_windows},
    window::{ASSUMED_WINDOW, Bounds, Window, WindowSource},
};
pub use crate::config::{
    SIMULATED,
    names::{self, ModelNameError, matches_pattern},
};

impl From<ModelNameError> for Failure {
    fn from(error: ModelNameError) -> Self {
        match error {
            ModelNameError::Provider { .. } => Self::ProviderNotFound(error.to_string()),
            _ => Self::ModelNotFound(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
