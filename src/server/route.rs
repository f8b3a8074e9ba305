//! Finds the route of a method and path.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::{
    admin::dashboard,
    conversation::{FORMATS, Format},
    error::Failure,
    http::{admission::Client, lease::LEASE_PATH},
    telemetry::Operation,
};

/// What answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    Client(ClientRoute<'a>),
    Own(OwnRoute<'a>),
}

/// A path for clients with their keys. Providers are those that the path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRoute<'a> {
    /// A conversation, which is guarded.
    Conversation {
        format: Format,
        provider: Option<&'a str>,
    },
    /// The list of all models.
    Models,
    /// One model; the id may have slashes, and may be percent-encoded.
    Model { id: &'a str },
    /// Any other path of a provider's API, forwarded untouched. `path` follows `/v1`.
    Forward {
        provider: Option<&'a str>,
        path: &'a str,
    },
    /// A path of Ollama's own API, which is forwarded to it. `path` goes from `/v1` there.
    Ollama { path: &'static str },
}

/// What the proxy has itself. API and metrics check keys on their own, leases a proof; the others need none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnRoute<'a> {
    /// A client asks whether anything answers here, as Claude Code does when it starts.
    Root,
    Health,
    Ready,
    Metrics,
    /// `plimsoll run` holds the proxy for a client.
    Lease,
    /// `path` follows `/plimsoll/api/`.
    Api {
        path: &'a str,
    },
    /// A file of the dashboard; `path` follows `/plimsoll`.
    Dashboard {
        path: &'a str,
    },
}

impl ClientRoute<'_> {
    /// The path pattern, as traces name it, and the operation of the model.
    pub fn shape_and_operation(&self) -> (&'static str, Option<Operation>) {
        let path = match self {
            Self::Conversation { format, .. } => format.path(),
            Self::Forward { path, .. } => path,
            Self::Ollama { .. } => return ("/api/{path}", None),
            Self::Models => return ("/v1/models", None),
            Self::Model { .. } => return ("/v1/models/{id}", None),
        };
        let operation = Operation::from_path(path);
        let other = match operation {
            Some(Operation::Embeddings) => "/v1/embeddings",
            Some(Operation::TextCompletion) => "/v1/completions",
            Some(Operation::Chat) | None => "/v1/{path}",
        };
        let shape = Format::from_path(path).map_or(other, |format| format.rules().route);
        (shape, operation)
    }

    /// # Errors
    /// The client may not use this path.
    pub fn check_path(&self, client: &Client) -> Result<(), Failure> {
        let path = match self {
            Self::Conversation { format, .. } => format.path().trim_start_matches('/'),
            // A key for the list of models opens single ones too.
            Self::Models | Self::Model { .. } => "models",
            Self::Forward { path, .. } => path.strip_prefix('/').unwrap_or(path),
            Self::Ollama { path } => path.trim_start_matches("/../"),
        };
        if client.may_reach(path) {
            Ok(())
        } else {
            Err(Failure::PathNotAllowed)
        }
    }
}

/// # Errors
/// Nothing answers this path, or not with this method.
pub fn find_route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, Failure> {
    // SECURITY: `/v1/../admin` would leave the API that the provider's key is meant for.
    if has_dot_segments(path) {
        return Err(Failure::DotSegments);
    }
    // SECURITY: a server answers these with the request itself, and so with the provider's key.
    if ["TRACE", "TRACK"].contains(&method.as_str()) {
        let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        return Err(Failure::WrongMethod { allow });
    }
    let reads = [Method::GET, Method::HEAD].contains(method);
    let read_only = |route| {
        let allow = "GET, HEAD";
        reads.then_some(route).ok_or(Failure::WrongMethod { allow })
    };
    match path {
        "/" if *method == Method::HEAD => return Ok(Route::Own(OwnRoute::Root)),
        // A browser at the address of the proxy goes on to the page.
        "/" if *method == Method::GET => return Ok(Route::Own(OwnRoute::Dashboard { path: "" })),
        "/healthz" => return read_only(Route::Own(OwnRoute::Health)),
        "/readyz" => return read_only(Route::Own(OwnRoute::Ready)),
        "/metrics" => return read_only(Route::Own(OwnRoute::Metrics)),
        LEASE_PATH if reads => return Ok(Route::Own(OwnRoute::Lease)),
        "/v1/models" => return read_only(Route::Client(ClientRoute::Models)),
        _ => {}
    }
    if let Some(id) = path.strip_prefix("/v1/models/")
        && reads
        && !id.is_empty()
    {
        return Ok(Route::Client(ClientRoute::Model { id }));
    }
    if let Some(path) = path.strip_prefix("/plimsoll/api/") {
        return Ok(Route::Own(OwnRoute::Api { path }));
    }
    if let Some(path) = path.strip_prefix("/plimsoll")
        && dashboard::has_file(path)
    {
        return read_only(Route::Own(OwnRoute::Dashboard { path }));
    }
    if let Some(meant) = find_meant_path(path) {
        return Err(Failure::PathMeant(meant));
    }
    let Some((provider, path)) = split_provider(path) else {
        return find_ollama_route(method, path);
    };
    let Some(format) = Format::from_path(path).filter(|_| !reads) else {
        return Ok(Route::Client(ClientRoute::Forward { provider, path }));
    };
    if *method == Method::POST {
        return Ok(Route::Client(ClientRoute::Conversation {
            format,
            provider,
        }));
    }
    Err(Failure::WrongMethod {
        // GET is forwarded to the provider, which may list stored completions there.
        allow: "POST, GET, HEAD",
    })
}

/// Of Ollama's own API, what asks: the rest changes the engine.
fn find_ollama_route<'a>(method: &Method, path: &str) -> Result<Route<'a>, Failure> {
    let (path, allow) = match path {
        "/api/tags" => ("/../api/tags", "GET, HEAD"),
        "/api/version" => ("/../api/version", "GET, HEAD"),
        "/api/show" => ("/../api/show", "POST"),
        "/api/chat" => ("/../api/chat", "POST"),
        "/api/generate" => ("/../api/generate", "POST"),
        _ if path.starts_with("/api/") => return Err(Failure::OllamaPath),
        _ => return Err(Failure::PathNotFound),
    };
    let is_allowed = allow.split(", ").any(|allowed| allowed == method.as_str());
    let route = Route::Client(ClientRoute::Ollama { path });
    is_allowed
        .then_some(route)
        .ok_or(Failure::WrongMethod { allow })
}

/// The provider, and the path after `/v1`, slash included.
fn split_provider(path: &str) -> Option<(Option<&str>, &str)> {
    if let Some(rest) = path.strip_prefix("/v1") {
        return (rest.len() > 1 && rest.starts_with('/')).then_some((None, rest));
    }
    let (provider, rest) = path.strip_prefix('/')?.split_once('/')?;
    let rest = rest.strip_prefix("v1")?;
    let is_valid = !provider.is_empty() && rest.len() > 1 && rest.starts_with('/');
    (is_valid && provider != "plimsoll").then_some((Some(provider), rest))
}

/// What may stand before the path of a conversation by mistake: parts of base URLs, and paths that clients added twice.
const STRAY: [&str; 10] = [
    "v1",
    "v1beta",
    "beta",
    "api",
    "openai",
    "anthropic",
    "chat",
    "completions",
    "messages",
    "responses",
];
/// Parts that a model's name follows.
const BEFORE_MODEL: [&str; 3] = ["engines", "deployments", "models"];
/// First parts of paths behind `/v1`. No path of the proxy's own begins with one.
const UNDER_V1: [&str; 12] = [
    "audio",
    "batches",
    "chat",
    "completions",
    "embeddings",
    "files",
    "images",
    "messages",
    "models",
    "moderations",
    "rerank",
    "responses",
];

/// The path that was meant by one without `/v1`, with `/v1` twice, or by one that ends with the path of a conversation in
/// another case, escaped, or behind other parts ([`STRAY`]). If that were forwarded as it is, the conversation would not be guarded.
///
/// SECURITY: servers decode escapes, and some ignore case, empty parts, and what follows `;`. So it is compared without.
fn find_meant_path(path: &str) -> Option<String> {
    let (provider, rest) = match split_provider(path) {
        Some((_, rest)) if Format::from_path(rest).is_some() => return None,
        Some((Some(provider), rest)) => (format!("/{provider}"), rest),
        Some((None, rest)) => (String::new(), rest),
        None => (String::new(), path),
    };
    let decoded = percent_decode_str(rest)
        .decode_utf8_lossy()
        .replace("%25", "%");
    let decoded = percent_decode_str(&decoded)
        .decode_utf8_lossy()
        .to_ascii_lowercase();
    // A client may have escaped a query, or a blank behind the address that was copied into its settings.
    let decoded = decoded.split(['?', '#']).next().unwrap_or_default();
    let decoded = decoded.trim_end_matches(|it: char| it.is_whitespace() || it.is_control());
    let parts = decoded
        .split(['/', '\\'])
        .map(|part| part.split(';').next().unwrap_or_default());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let meant = match find_meant_format(&parts) {
        Some(format) => format!("{provider}/v1{}", format.path()),
        // Other paths keep their spelling.
        None => {
            let lost = split_provider(path).is_none()
                && parts.first().is_some_and(|first| UNDER_V1.contains(first));
            let doubled = rest
                .strip_prefix("/v1/")
                .filter(|_| split_provider(path).is_some());
            match doubled.or_else(|| lost.then(|| rest.trim_start_matches('/'))) {
                Some(rest) => format!("{provider}/v1/{}", rest.trim_start_matches("v1/")),
                None => return None,
            }
        }
    };
    (meant != path).then_some(meant)
}

/// The format whose conversation the parts of a path mean. `messages` also ends paths of stored things (`threads/ID/messages`),
/// so what stands before it has to be known.
fn find_meant_format(parts: &[&str]) -> Option<Format> {
    FORMATS.into_iter().find(|format| {
        let path: Vec<&str> = format.path().split('/').skip(1).collect();
        let before = parts.strip_suffix(&path[..]);
        before.is_some_and(|before| path.len() > 1 || is_stray(before))
    })
}

fn is_stray(parts: &[&str]) -> bool {
    match parts {
        [] => true,
        [name, _, rest @ ..] if BEFORE_MODEL.contains(name) => is_stray(rest),
        [name, rest @ ..] => STRAY.contains(name) && is_stray(rest),
    }
}

/// Finds `.` and `..` in every spelling that some server reads so: with `%2e`, after `%2f` or `\`, encoded twice, and before
/// `;`, after which some servers expect parameters.
fn has_dot_segments(path: &str) -> bool {
    let mut path = Cow::Borrowed(path);
    if path.contains('%') {
        let mut decoded = path.to_ascii_lowercase().replace("%25", "%");
        for (coded, character) in [("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("%3b", ";")] {
            decoded = decoded.replace(coded, character);
        }
        path = decoded.into();
    }
    path.split(['/', '\\'])
        .map(|part| part.split(';').next().unwrap_or_default())
        .any(|part| matches!(part, "." | ".."))
}

#[cfg(test)]
mod tests;
