//! A request for a provider, and why no answer to it began.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::combinators::BoxBody;
use thiserror::Error;

use crate::{
    conversation::edit::Rope,
    error::{Failure, TimeoutStage},
};

/// A request for a provider.
pub struct OutgoingRequest {
    pub method: Method,
    /// The part after the base URL, with the query.
    pub path: String,
    /// Made by [`super::headers::filter_for_provider`].
    pub headers: HeaderMap,
    pub body: Payload,
    /// Replaces `{model}` in the base URL.
    pub model: Option<String>,
}

pub enum Payload {
    Empty,
    /// Sent with its exact length.
    Whole(Rope),
    /// The same, and never twice.
    Once(Rope),
    /// Sent as it comes, and so never twice.
    Stream(Upload),
}

/// Why no answer began.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpstreamError {
    #[error("{provider} could not be reached")]
    Unreachable {
        provider: String,
        /// `: ` with address and cause, or nothing.
        cause: String,
        /// There was a connection, so that the request may have arrived.
        connected: bool,
    },
    #[error("{provider} did not answer in time")]
    Timeout {
        provider: String,
        wait: TimeoutStage,
        limit: Duration,
    },
    #[error("{provider} does not speak HTTP")]
    Garbage { provider: String },
    #[error("the request's body broke off")]
    BodyBroken,
    #[error("the request's body came too slowly")]
    BodySlow { limit: Duration },
    #[error(
        "the address of {provider} contains the model, and the request names no model that fits there"
    )]
    NoModel { provider: String },
}

impl UpstreamError {
    /// Whether the provider may have the request.
    pub fn may_have_arrived(&self) -> bool {
        match self {
            Self::Unreachable { connected, .. } => *connected,
            Self::Timeout { wait, .. } => *wait != TimeoutStage::Connect,
            error => !matches!(error, Self::NoModel { .. }),
        }
    }

    /// The name in traces.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Garbage { .. } => "no_http",
            Self::BodyBroken => "body_incomplete",
            Self::BodySlow { .. } => "body_timeout",
            Self::NoModel { .. } => "model_required",
        }
    }
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        use UpstreamError as Error;
        let what = "it does not speak HTTP";
        match error {
            Error::Unreachable {
                provider, cause, ..
            } => Self::ProviderUnreachable { provider, cause },
            Error::Timeout {
                provider,
                wait,
                limit,
            } => Self::ProviderTimeout {
                provider,
                wait,
                limit,
            },
            Error::Garbage { provider } => Self::ProviderBadAnswer { provider, what },
            Error::BodyBroken => Self::BodyBroken,
            Error::BodySlow { limit } => Self::BodySlow { limit },
            Error::NoModel { provider } => Self::ModelMissing { provider },
        }
    }
}

/// A streamed request body. Its errors are those of the client that sends it.
pub type Upload = BoxBody<Bytes, UpstreamError>;
