//! What can go wrong with one request, and what the client may read of it.
//!
//! Every stage has its own small error enum; each is converted once, beside it, into a [`Failure`].
//! Library errors never reach the client: they can hold URLs and keys, and go to the log only.

use std::{fmt::Write as _, time::Duration};

use http::StatusCode;
use thiserror::Error;

use crate::wire::content_coding;

/// A request that the proxy answers with an error. Its text is for the client: what happened, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The text says where.
    #[error("The request body is not valid JSON: {0}.")]
    NotJson(String),
    #[error("The request body broke off before its end.")]
    BodyBroken,
    #[error(
        "The request body is larger than {limit} bytes; send less, or raise server.max_body_bytes."
    )]
    BodyTooLarge { limit: usize },
    /// A body on a path that takes none, and too large to be skipped.
    #[error("This path needs no body; send one of at most {limit} bytes, or none.")]
    BodyUnwanted { limit: usize },
    #[error("No part of the request body came for {} s. Send it without such pauses, or raise server.body_timeout_ms.", .limit.as_secs_f64())]
    BodySlow { limit: Duration },
    #[error(
        "The content encoding `{}` is not supported; use one of {}, or send the body as it is.",
        .0,
        content_coding::READABLE_CODINGS
    )]
    UnsupportedEncoding(String),
    #[error("The request body cannot be decoded by its content-encoding, or is cut off.")]
    BodyDamaged,
    #[error(
        "The request body unpacks to more than {} times its size; send it as it is.",
        content_coding::MAX_RATIO
    )]
    BodyBomb,
    #[error("Too many bytes are in flight (server.max_bytes_in_flight). Try again shortly.")]
    Busy,
    /// A `Host` that is not this machine, while no client keys are set.
    #[error(
        "Without client keys only this machine is served: the Host header must be localhost, 127.0.0.1 or [::1]. If it \
         is another name of this machine, such as host.docker.internal for containers, the operator adds it to \
         server.allowed_hosts; other machines are served with client keys (plimsoll key NAME)."
    )]
    ForeignHost,
    /// The same of `Origin`; also of the preflight of a page that is not allowed, with keys too.
    #[error(
        "Pages of this origin may not send requests: the operator of the proxy adds the Origin header to \
         server.allowed_origins."
    )]
    ForeignOrigin,
    /// A page of another origin asks for a path of the dashboard.
    #[error(
        "Pages of another origin may not use this path, whatever the settings say: Origin must match the Host header."
    )]
    ForeignPage,
    #[error(
        "You didn't provide an API key. Send a client key of this proxy as `Authorization: Bearer KEY`, \
         or as `x-plimsoll-key: KEY` beside credentials for the provider."
    )]
    KeyMissing,
    /// A provider that the proxy chose by itself gets none of these credentials.
    #[error(
        "The provider `{provider}` takes the client's own key, and the request has no key. Send one as \
         `Authorization: Bearer KEY` or `x-api-key: KEY`. The models `simulated/…` need no key."
    )]
    CredentialMissing { provider: String },
    #[error(
        "The model belongs to the provider `{provider}`, and the key of the request to another one. Without settings, a key \
         that begins with `sk-ant-` goes to Anthropic only, and any other `sk-` key to OpenAI only."
    )]
    CredentialElsewhere { provider: String },
    #[error("Incorrect API key provided: it is no client key of this proxy.")]
    KeyWrong,
    /// An account was named by a text that others could guess.
    #[error("`x-plimsoll-key` names your sessions; send 16 characters or more, chosen at random.")]
    KeyShort,
    /// No such model, or not for this client.
    #[error("{0}")]
    ModelNotFound(String),
    /// A path without a model, at a provider whose address needs one.
    #[error(
        "The address of the provider `{provider}` contains the model; name a model in the request that can be a part of a path."
    )]
    ModelMissing { provider: String },
    /// A provider was named that is not configured.
    #[error("{0}")]
    ProviderNotFound(String),
    #[error(
        "No such path. There are: POST /v1/chat/completions, POST /v1/messages, POST /v1/responses, GET /v1/models, any other /v1/*, \
         /{{provider}}/v1/*, /healthz, /readyz, /metrics and /plimsoll/api/."
    )]
    PathNotFound,
    /// A path of Ollama's own API that is not forwarded, or no provider has that API.
    #[error(
        "No such path: of Ollama's own API, /api/tags, /api/show, /api/version, /api/chat and /api/generate are forwarded, to a \
         provider with profile = \"ollama\". Ask Ollama itself for anything else there. To have conversations guarded, choose an \
         OpenAI-compatible provider in the client, with a base URL that ends with /v1."
    )]
    OllamaPath,
    /// The path of a conversation, nearly.
    #[error(
        "No such path; did you mean {0}? A base URL ends with /v1 for clients that add /chat/completions or /responses, and \
         without it for those that add /v1/messages."
    )]
    PathMeant(String),
    #[error(
        "There is no such session, or it belongs to another client. Its id is the x-plimsoll-session header of any of \
         its answers."
    )]
    SessionNotFound,
    #[error(
        "The settings are shown to the administrator's key (admin.key_sha256) and, without client keys, with \
         admin.local = true, to requests of this machine that send no key and come through no other proxy."
    )]
    AdminOnly,
    /// A session of another key, which this requester may only read.
    #[error(
        "admin.local and the link of the start show sessions and cannot change them. Send the key that the session's \
         client sends, or the administrator's."
    )]
    SessionReadOnly,
    /// The dashboard's one-time link, or what a tab got for it, does not open the page.
    #[error(
        "This link was used, is of an earlier start, or does not hold here (admin.link). Each start of the proxy on a \
         terminal prints a new one."
    )]
    LinkOver,
    /// A request that changes a session names no switch.
    #[error("Send a JSON object such as {{\"auto_compact\": \"on\"}}.")]
    SwitchMissing,
    #[error("A session has no switch `{name}`. There is: auto_compact.")]
    SwitchUnknown { name: String },
    #[error("This path takes a body of at most {limit} bytes.")]
    SwitchTooLarge { limit: usize },
    /// A query parameter is not one number from `least` to `most`.
    #[error("Send `{name}` once, as a number from {least} to {most}.")]
    QueryValue {
        name: &'static str,
        least: usize,
        most: usize,
    },
    /// A query parameter or a switch is none of the allowed words.
    #[error("`{name}` must be {words}.")]
    UnknownWord { name: &'static str, words: String },
    /// A query parameter that the path does not have; `known` are those that it has.
    #[error("This path has no parameter `{name}`. There are: {known}.")]
    QueryUnknown { name: String, known: &'static str },
    #[error(
        "Too many event listeners: at most {all} in all and {per_client} of one client. Close one, then try again."
    )]
    TooManyListeners { all: usize, per_client: usize },
    #[error("The session store does not answer, so the session cannot be read. Try again.")]
    StoreDown,
    /// The path exists, for these methods.
    #[error("This path takes {allow} only.")]
    WrongMethod { allow: &'static str },
    #[error("A path must not have dot segments.")]
    DotSegments,
    #[error(
        "This client key may not use this path. The operator of the proxy can add it (clients.NAME.paths)."
    )]
    PathNotAllowed,
    #[error(
        "The metrics cover all clients: this path needs the administrator's key, or a client key with \
         clients.NAME.metrics = true."
    )]
    MetricsNotAllowed,
    /// A websocket for a format that is guarded over HTTP.
    #[error(
        "Responses are guarded over HTTP and not over a websocket. Use HTTP, or have the operator of the proxy set \
         responses.websocket = \"pass\"."
    )]
    WebsocketRefused,
    /// The provider of the model does not speak the format of the request.
    #[error(
        "The provider `{provider}` does not have this API (the format `{format}`), and the proxy does not translate. \
         Ask for a model of another provider; if this one does have the API, add the format to providers.{provider}.formats."
    )]
    FormatNotSpoken {
        provider: String,
        format: &'static str,
    },
    /// The client is to send the conversation as a whole.
    #[error(
        "`thread` is not supported here: the proxy fits conversations into the model's window, and sees them whole only \
         without it. Send the full conversation without `thread` (providers.{provider}.threads)."
    )]
    ThreadRefused { provider: String },
    #[error(
        "This client key has too many requests in flight (clients.NAME.max_in_flight). Try again when one has ended."
    )]
    TooManyRequests,
    /// The connection failed, or broke before an answer.
    #[error("The provider `{provider}` could not be reached, or closed without an answer{cause}.")]
    ProviderUnreachable {
        provider: String,
        /// `: ` with the provider's address and the cause, or nothing. For clients on this machine only.
        cause: String,
    },
    #[error("The provider `{provider}` {} within {} s ({}).", wait.describe(), .limit.as_secs_f64(), wait.setting())]
    ProviderTimeout {
        provider: String,
        wait: TimeoutStage,
        limit: Duration,
    },
    /// The provider sent no valid answer.
    #[error("The provider `{provider}` gave no valid answer: {what}.")]
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

impl TimeoutStage {
    const fn describe(self) -> &'static str {
        match self {
            Self::Connect => "took no connection",
            Self::FirstByte => "did not answer",
            Self::NextChunk => "sent nothing more of its answer",
        }
    }

    const fn setting(self) -> &'static str {
        match self {
            Self::Connect => "connect_timeout_ms",
            Self::FirstByte => "first_byte_timeout_ms",
            Self::NextChunk => "idle_timeout_ms",
        }
    }
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
    pub const fn code(&self) -> &'static str {
        self.status_and_code().1
    }

    pub const fn status(&self) -> StatusCode {
        self.status_and_code().0
    }

    const fn status_and_code(&self) -> (StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Self::NotJson(_) => (S::BAD_REQUEST, "invalid_json"),
            Self::BodyBroken => (S::BAD_REQUEST, "body_incomplete"),
            Self::BodyDamaged => (S::BAD_REQUEST, "invalid_content_encoding"),
            Self::DotSegments => (S::BAD_REQUEST, "invalid_path"),
            Self::ModelMissing { .. } => (S::BAD_REQUEST, "model_required"),
            Self::SwitchMissing => (S::BAD_REQUEST, "missing_required_parameter"),
            Self::QueryValue { .. } | Self::UnknownWord { .. } => (S::BAD_REQUEST, "invalid_value"),
            Self::SwitchUnknown { .. } | Self::QueryUnknown { .. } => {
                (S::BAD_REQUEST, "unknown_parameter")
            }
            Self::FormatNotSpoken { .. } => (S::BAD_REQUEST, "format_not_spoken"),
            Self::ThreadRefused { .. } => (S::BAD_REQUEST, "thread_unsupported_request"),
            Self::KeyMissing
            | Self::KeyWrong
            | Self::KeyShort
            | Self::CredentialMissing { .. }
            | Self::CredentialElsewhere { .. } => (S::UNAUTHORIZED, "invalid_api_key"),
            Self::ForeignHost => (S::FORBIDDEN, "foreign_host"),
            Self::ForeignOrigin | Self::ForeignPage => (S::FORBIDDEN, "foreign_origin"),
            Self::PathNotAllowed | Self::MetricsNotAllowed => (S::FORBIDDEN, "path_not_allowed"),
            Self::SessionReadOnly => (S::FORBIDDEN, "session_read_only"),
            Self::AdminOnly => (S::FORBIDDEN, "admin_only"),
            Self::LinkOver => (S::FORBIDDEN, "link_over"),
            Self::ModelNotFound(_) => (S::NOT_FOUND, "model_not_found"),
            Self::ProviderNotFound(_) => (S::NOT_FOUND, "provider_not_found"),
            Self::PathNotFound | Self::PathMeant(_) | Self::OllamaPath => {
                (S::NOT_FOUND, "path_not_found")
            }
            Self::SessionNotFound => (S::NOT_FOUND, "session_not_found"),
            Self::WrongMethod { .. } => (S::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::BodySlow { .. } => (S::REQUEST_TIMEOUT, "body_timeout"),
            Self::BodyTooLarge { .. }
            | Self::BodyUnwanted { .. }
            | Self::SwitchTooLarge { .. }
            | Self::BodyBomb => (S::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::UnsupportedEncoding(_) => {
                (S::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_encoding")
            }
            Self::WebsocketRefused => (S::UPGRADE_REQUIRED, "websocket_refused"),
            Self::TooManyRequests => (S::TOO_MANY_REQUESTS, "too_many_requests"),
            Self::TooManyListeners { .. } => (S::TOO_MANY_REQUESTS, "too_many_listeners"),
            Self::ProviderUnreachable { .. } => (S::BAD_GATEWAY, "provider_unreachable"),
            Self::ProviderBadAnswer { .. } => (S::BAD_GATEWAY, "provider_bad_answer"),
            Self::Busy => (S::SERVICE_UNAVAILABLE, "overloaded"),
            Self::StoreDown => (S::SERVICE_UNAVAILABLE, "store_unavailable"),
            Self::ProviderTimeout { .. } => (S::GATEWAY_TIMEOUT, "provider_timeout"),
        }
    }

    /// The failure as a client elsewhere may know it.
    ///
    /// SECURITY: where a provider is and why it does not answer are facts of the operator's network.
    #[must_use]
    pub fn without_cause(mut self) -> Self {
        if let Self::ProviderUnreachable { cause, .. } = &mut self {
            cause.clear();
        }
        self
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
            Self::SwitchMissing => Some("auto_compact"),
            Self::QueryValue { name, .. } | Self::UnknownWord { name, .. } => Some(name),
            _ => None,
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
