//! Pages of other origins that may read answers: `server.allowed_origins` (CORS, <https://fetch.spec.whatwg.org/>).
//!
//! SECURITY: origins are compared whole; `null`, which any sandboxed page has, is never allowed; nothing of it holds for
//! what the proxy has itself (`/plimsoll/`, probes, metrics). Credentials of the browser (cookies) are never allowed.

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
        ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
    },
    request::Parts,
};

use crate::{
    config::ServerConfig,
    error::Failure,
    wire::{Body, whole_body},
};

/// First parts of the paths that the proxy has itself; the empty one is `/`.
const OWN: [&str; 5] = ["", "plimsoll", "healthz", "readyz", "metrics"];

/// Seconds for which a browser keeps the answer to a preflight.
const MAX_AGE: &str = "600";

/// Asked for by browsers before a page reaches a private address.
const PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

/// Whether the page that makes a request may read its answer.
#[derive(Debug)]
pub struct PageAccess {
    /// The path is one for pages, and there are allowed origins.
    applies: bool,
    /// The page's, if it is allowed.
    origin: Option<HeaderValue>,
}

impl PageAccess {
    pub fn from_request(server: &ServerConfig, parts: &Parts) -> Self {
        let applies = !server.allowed_origins.is_empty() && is_page_path(parts.uri.path());
        let mut origins = parts.headers.get_all(ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (Some(origin), None) if applies => Some(origin),
            _ => None,
        };
        let allowed = &server.allowed_origins;
        let is_allowed = |origin: &&HeaderValue| {
            let origin = origin.to_str().unwrap_or_default();
            allowed.iter().any(|entry| matches_origin(entry, origin))
        };
        Self {
            applies,
            origin: origin.filter(is_allowed).cloned(),
        }
    }

    /// Whether the request is of an allowed origin.
    pub const fn is_allowed(&self) -> bool {
        self.origin.is_some()
    }

    /// The answer to a preflight, which has no key; `None` for other requests.
    ///
    /// # Errors
    /// The page's origin is not allowed.
    pub fn answer_preflight(&self, parts: &Parts) -> Result<Option<Response<Body>>, Failure> {
        let headers = &parts.headers;
        let is_preflight = parts.method == Method::OPTIONS
            && headers.contains_key(ORIGIN)
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight || !is_page_path(parts.uri.path()) {
            return Ok(None);
        }
        if !self.is_allowed() {
            return Err(Failure::ForeignOrigin);
        }
        let mut answer = Response::new(whole_body(""));
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let out = answer.headers_mut();
        let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
        out.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        if let Some(names) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            out.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        if headers.contains_key(PRIVATE_NETWORK) {
            out.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
        }
        Ok(Some(answer))
    }

    /// Lets the page read an answer with all its headers.
    pub fn open_answer(self, headers: &mut HeaderMap) {
        if self.applies {
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        if let Some(origin) = self.origin {
            let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
            if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names);
            }
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
    }
}

/// Whether a path is none of the proxy's own.
pub(super) fn is_page_path(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    !first.is_some_and(|first| OWN.contains(&first))
}

/// `*` is any origin, and a `*` behind a scheme any of this scheme; `null` is none.
fn matches_origin(entry: &str, origin: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(scheme) => origin.contains("://") && origin.starts_with(scheme),
        None => entry.eq_ignore_ascii_case(origin),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_page_path, matches_origin};

    #[test]
    fn origins_are_compared_whole() {
        for (entry, origin, expected) in [
            ("https://a.example", "https://a.example", true),
            ("https://a.example", "https://a.example:8443", false),
            ("https://a.example", "https://a.example.evil", false),
            ("https://a.example", "http://a.example", false),
            ("https://a.example", "https://b.a.example", false),
            ("app://obsidian.md", "app://obsidian.md", true),
            ("vscode-webview://*", "vscode-webview://0a1b", true),
            ("vscode-webview://*", "https://vscode-webview://", false),
            ("*", "https://a.example", true),
            ("*", "null", false),
            ("*", "", false),
        ] {
            assert_eq!(matches_origin(entry, origin), expected, "{entry} {origin}");
        }
    }

    #[test]
    fn paths_of_the_proxy_are_not_for_pages() {
        for own in [
            "/",
            "/plimsoll",
            "/plimsoll/api/x",
            "//plimsoll/x",
            "/metrics",
            "/healthz",
        ] {
            assert!(!is_page_path(own), "{own}");
        }
        for path in [
            "/v1/models",
            "/p/v1/messages",
            "/models",
            "/chat/completions",
        ] {
            assert!(is_page_path(path), "{path}");
        }
    }
}
