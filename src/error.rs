//! What can go wrong with one request, and what the client may read of it.
//!
//! Every stage has its own small error enum; each is converted once, beside it, into a [`Failure`].
//! Library errors never reach the client: they can hold URLs and keys, and go to the log only.
//! Which status a failure gets is decided in `http::answer` alone.

use std::{fmt::Write as _, time::Duration};

use thiserror::Error;

use crate::wire::content_coding;

/// A request that the proxy answers with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The body is not JSON; the text says where.
    NotJson(String),
    /// The body broke off.
    BodyBroken,
    /// The body is larger than the settings allow.
    BodyTooLarge { limit: usize },
    /// A body on a path that takes none, and too large to be skipped.
    BodyUnwanted { limit: usize },
    /// The body stalled for this long.
    BodySlow { limit: Duration },
    /// A content encoding that the proxy cannot read.
    UnsupportedEncoding(String),
    /// The body is not what its content encoding says.
    BodyDamaged,
    /// The body unpacks to a suspicious multiple of its size.
    BodyBomb,
    /// The bytes in flight have reached their limit.
    Busy,
    /// A `Host` or `Origin` that is not this machine, while no client keys are set.
    Foreign { header: &'static str },
    /// A page of another origin asks for a path of the dashboard.
    ForeignPage,
    /// The request has no client key.
    KeyMissing,
    /// The key is not a client key.
    KeyWrong,
    /// No such model, or not for this client.
    ModelNotFound(String),
    /// A path without a model, at a provider whose address needs one.
    ModelMissing { provider: String },
    /// A provider was named that is not configured.
    ProviderNotFound(String),
    /// No such path.
    PathNotFound,
    /// No such session, or not of this client.
    SessionNotFound,
    /// Only the administrator may read this.
    AdminOnly,
    /// A session of another key, which this requester may only read.
    SessionReadOnly,
    /// A request that changes a session names no switch.
    SwitchMissing,
    /// The value of a switch is none of those allowed.
    SwitchValue,
    /// No session has this switch.
    SwitchUnknown { name: String },
    /// The body of a request that changes a session is too large.
    SwitchTooLarge { limit: usize },
    /// A query parameter is not one number from `least` to `most`.
    QueryValue {
        name: &'static str,
        least: usize,
        most: usize,
    },
    /// A query parameter is none of the allowed words.
    QueryWord { name: &'static str, words: String },
    /// A query parameter that the path does not have; `known` are those that it has.
    QueryUnknown { name: String, known: &'static str },
    /// The event listeners have reached their limit, over all clients or for this one.
    TooManyListeners { all: usize, per_client: usize },
    /// The state store does not answer.
    StoreDown,
    /// The path exists, for these methods.
    WrongMethod { allow: &'static str },
    /// The path has dot segments.
    DotSegments,
    /// A path that this client key may not use.
    PathNotAllowed,
    /// A websocket for a format that is guarded over HTTP.
    WebsocketRefused,
    /// The provider of the model does not speak the format of the request.
    FormatNotSpoken {
        provider: String,
        format: &'static str,
    },
    /// This client has as many requests in flight as it may.
    TooManyRequests,
    /// The connection failed, or broke before an answer.
    ProviderUnreachable { provider: String },
    /// The provider did not answer in time.
    ProviderTimeout {
        provider: String,
        wait: TimeoutStage,
        limit: Duration,
    },
    /// The provider sent no valid answer.
    ProviderBadAnswer {
        provider: String,
        what: &'static str,
    },
}

/// The stage in which the wait for a provider timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutStage {
    /// The connection, with its TLS handshake.
    Connect,
    FirstByte,
    /// The next bytes of an answer that had begun.
    NextChunk,
}

/// An answer's next bytes did not come in time. Travels inside an [`std::io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("nothing came for {} s", limit.as_secs_f64())]
pub struct IdleTimeoutError {
    pub limit: Duration,
}

impl IdleTimeoutError {
    /// The limit that an answer's body exceeded; `None` for other errors.
    pub fn limit_from_error(error: &std::io::Error) -> Option<Duration> {
        Some(error.get_ref()?.downcast_ref::<Self>()?.limit)
    }
}

impl Failure {
    /// The stable name of this failure: in the body, in `x-plimsoll-error` and in the log.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "invalid_json",
            Self::BodyBroken => "body_incomplete",
            Self::BodyTooLarge { .. }
            | Self::BodyUnwanted { .. }
            | Self::SwitchTooLarge { .. }
            | Self::BodyBomb => "body_too_large",
            Self::BodySlow { .. } => "body_timeout",
            Self::UnsupportedEncoding(_) => "unsupported_content_encoding",
            Self::BodyDamaged => "invalid_content_encoding",
            Self::Busy => "overloaded",
            Self::Foreign { header: "origin" } | Self::ForeignPage => "foreign_origin",
            Self::Foreign { .. } => "foreign_host",
            Self::KeyMissing | Self::KeyWrong => "invalid_api_key",
            Self::ModelNotFound(_) => "model_not_found",
            Self::ModelMissing { .. } => "model_required",
            Self::ProviderNotFound(_) => "provider_not_found",
            Self::PathNotFound => "path_not_found",
            Self::SessionNotFound => "session_not_found",
            Self::AdminOnly => "admin_only",
            Self::SessionReadOnly => "session_read_only",
            Self::SwitchMissing => "missing_required_parameter",
            Self::SwitchValue | Self::QueryValue { .. } | Self::QueryWord { .. } => "invalid_value",
            Self::SwitchUnknown { .. } | Self::QueryUnknown { .. } => "unknown_parameter",
            Self::TooManyListeners { .. } => "too_many_listeners",
            Self::StoreDown => "store_unavailable",
            Self::WrongMethod { .. } => "method_not_allowed",
            Self::DotSegments => "invalid_path",
            Self::PathNotAllowed => "path_not_allowed",
            Self::FormatNotSpoken { .. } => "format_not_spoken",
            Self::WebsocketRefused => "websocket_refused",
            Self::TooManyRequests => "too_many_requests",
            Self::ProviderUnreachable { .. } => "provider_unreachable",
            Self::ProviderTimeout { .. } => "provider_timeout",
            Self::ProviderBadAnswer { .. } => "provider_bad_answer",
        }
    }

    /// Whether a part of the request's body may be left unread.
    pub const fn leaves_body(&self) -> bool {
        matches!(
            self,
            Self::BodyTooLarge { .. }
                | Self::BodyUnwanted { .. }
                | Self::SwitchTooLarge { .. }
                | Self::BodyBomb
                | Self::BodyBroken
                | Self::BodySlow { .. }
        )
    }

    /// The request's parameter at fault, where it is one.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::ModelNotFound(_) | Self::ModelMissing { .. } => Some("model"),
            Self::SwitchMissing | Self::SwitchValue => Some("auto_compact"),
            Self::QueryValue { name, .. } | Self::QueryWord { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The text for the client: what happened, and what to do about it.
    pub fn message(&self) -> String {
        match self {
            Self::NotJson(place) => format!("The request body is not valid JSON: {place}."),
            Self::BodyBroken => "The request body broke off before its end.".into(),
            Self::BodyTooLarge { limit } => format!(
                "The request body is larger than {limit} bytes; send less, or raise \
                 server.max_body_bytes."
            ),
            Self::BodyUnwanted { limit } => {
                format!("This path needs no body; send one of at most {limit} bytes, or none.")
            }
            Self::BodySlow { limit } => format!(
                "No part of the request body came for {} s (server.body_timeout_ms).",
                limit.as_secs_f64()
            ),
            Self::UnsupportedEncoding(encoding) => format!(
                "The content encoding `{encoding}` is not supported; use one of {}, \
                 or send the body as it is.",
                content_coding::READABLE_CODINGS
            ),
            Self::BodyDamaged => {
                "The request body cannot be decoded by its content-encoding, or is cut off.".into()
            }
            Self::BodyBomb => format!(
                "The request body unpacks to more than {} times its size; send it as it is.",
                content_coding::MAX_RATIO
            ),
            Self::Busy => {
                "Too many bytes are in flight (server.max_bytes_in_flight). Try again shortly."
                    .into()
            }
            Self::Foreign { header: "origin" } => "Without client keys only pages of this machine \
                may send requests: the Origin header is not a loopback address. Set client keys to \
                serve others."
                .into(),
            Self::Foreign { .. } => "Without client keys only this machine is served: the Host \
                header must be localhost, 127.0.0.1 or [::1]. Set client keys to serve others."
                .into(),
            Self::ForeignPage => {
                "Pages of another origin may not use this path: Origin must match \
                the Host header."
                    .into()
            }
            Self::KeyMissing => "You didn't provide an API key. Send a client key of this proxy \
                as `Authorization: Bearer KEY`."
                .into(),
            Self::KeyWrong => {
                "Incorrect API key provided: it is no client key of this proxy.".into()
            }
            Self::ModelNotFound(message) | Self::ProviderNotFound(message) => message.clone(),
            Self::ModelMissing { provider } => format!(
                "The provider `{provider}` has the model in its address; name one in the request \
                 that can be a part of a path."
            ),
            Self::PathNotFound => "No such path. There are: POST /v1/chat/completions, \
                POST /v1/messages, GET /v1/models, any other /v1/*, /{provider}/v1/*, /healthz, /readyz, /metrics \
                and /plimsoll/api/."
                .into(),
            Self::SessionNotFound => "There is no such session, or it belongs to another client. \
                Its id is the x-plimsoll-session header of any of its answers."
                .into(),
            Self::AdminOnly => "The settings are shown to the administrator's key \
                (admin.key_sha256) and, without client keys, with admin.local = true, to requests \
                of this machine that send no key and come through no other proxy."
                .into(),
            Self::SessionReadOnly => "admin.local shows sessions of other keys and cannot change \
                them. Send the key that the session's client sends, or the administrator's."
                .into(),
            Self::SwitchMissing => "Send a JSON object such as {\"auto_compact\": \"on\"}.".into(),
            Self::SwitchValue => {
                "`auto_compact` must be \"on\", \"off\" or \"follow\" (the settings).".into()
            }
            Self::SwitchUnknown { name } => {
                format!("A session has no switch `{name}`. There is: auto_compact.")
            }
            Self::SwitchTooLarge { limit } => {
                format!("This path takes a body of at most {limit} bytes.")
            }
            Self::QueryValue { name, least, most } => {
                format!("Send `{name}` once, as a number from {least} to {most}.")
            }
            Self::QueryWord { name, words } => format!("`{name}` must be {words}."),
            Self::QueryUnknown { name, known } => {
                format!("This path has no parameter `{name}`. There are: {known}.")
            }
            Self::TooManyListeners { all, per_client } => format!(
                "Too many event listeners: at most {all} in all and {per_client} of one client. \
                 Close one, then try again."
            ),
            Self::StoreDown => {
                "The state store does not answer, so the session cannot be read. Try again.".into()
            }
            Self::WrongMethod { allow } => format!("This path takes {allow} only."),
            Self::DotSegments => "A path must not have dot segments.".into(),
            Self::PathNotAllowed => "This client key may not use this path. The operator of the \
                proxy can add it (clients.NAME.paths)."
                .into(),
            Self::WebsocketRefused => "Responses are guarded over HTTP and not over a websocket. Use HTTP, or have the \
                operator of the proxy set responses.websocket = \"pass\"."
                .into(),
            Self::FormatNotSpoken { provider, format } => format!(
                "The provider `{provider}` does not speak this API (the format `{format}`), and the proxy does not \
                 translate. Ask for a model of another provider; if it does speak it, add the format to \
                 providers.{provider}.formats."
            ),
            Self::TooManyRequests => "This client key has too many requests in flight \
                (clients.NAME.max_in_flight). Try again when one has ended."
                .into(),
            Self::ProviderUnreachable { provider } => format!(
                "The provider `{provider}` could not be reached, or closed without an answer."
            ),
            Self::ProviderTimeout {
                provider,
                wait,
                limit,
            } => {
                let (happened, setting) = match wait {
                    TimeoutStage::Connect => ("took no connection", "connect_timeout_ms"),
                    TimeoutStage::FirstByte => ("did not answer", "first_byte_timeout_ms"),
                    TimeoutStage::NextChunk => {
                        ("sent nothing more of its answer", "idle_timeout_ms")
                    }
                };
                let limit = limit.as_secs_f64();
                format!("The provider `{provider}` {happened} within {limit} s ({setting}).")
            }
            Self::ProviderBadAnswer { provider, what } => {
                format!("The provider `{provider}` gave no valid answer: {what}.")
            }
        }
    }
}

/// An error and its causes on one line, for the log.
pub fn format_error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // A String takes every write.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
