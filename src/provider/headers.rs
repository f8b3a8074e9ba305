//! Which headers go on, in both directions.
//!
//! End-to-end headers pass as they are, in their order, repeated ones too: providers derive cache
//! affinity from the session headers of clients. Never passed on: what belongs to one connection
//! (RFC 9110, 7.6.1), cookies, and our own `x-plimsoll-*`.
//! SECURITY: a credential goes to a provider only where its configuration says so, and never two
//! of them: with a key of ours, whatever the client sent stays here.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST,
        SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

use crate::config::Auth;

/// Prefix of the headers that are ours.
pub const OURS: &str = "x-plimsoll-";

/// Headers in which clients send credentials, `Authorization` apart.
const CREDENTIALS: &[&str] = &["api-key", "x-api-key", "x-goog-api-key"];

/// What to send to a provider for a request with these headers.
///
/// `client_keys`: clients authenticate with keys of ours, which no provider may see.
/// `identity`: ask for an answer that is not compressed.
pub fn to_provider(
    headers: &HeaderMap,
    auth: &Auth,
    client_keys: bool,
    identity: bool,
) -> HeaderMap {
    let named = named_by_connection(headers);
    let pass = matches!(auth, Auth::Client) && !client_keys;
    let mut out = HeaderMap::with_capacity(headers.len() + 1);
    for (name, value) in headers {
        let credential = *name == AUTHORIZATION || CREDENTIALS.contains(&name.as_str());
        let dropped = belongs_to_connection(name)
            || named.contains(name)
            || (credential && !pass)
            || (identity && *name == ACCEPT_ENCODING)
            || [HOST, CONTENT_LENGTH, COOKIE, EXPECT].contains(name);
        if !dropped {
            out.append(name, value.clone());
        }
    }
    if let Auth::Key(key) = auth
        && let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", key.reveal()))
    {
        value.set_sensitive(true);
        out.insert(AUTHORIZATION, value);
    }
    if identity {
        out.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    out
}

/// What the client gets of a provider's headers.
///
/// SECURITY: a length beside a transfer coding is not that of the body and goes no further
/// (RFC 9112, 6.3): what came after it would be read as the answer to the next request.
pub fn to_client(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    let coded = headers.contains_key(TRANSFER_ENCODING);
    let mut out = HeaderMap::with_capacity(headers.len() + 16);
    for (name, value) in headers {
        let dropped = belongs_to_connection(name)
            || named.contains(name)
            || *name == SET_COOKIE
            || (coded && *name == CONTENT_LENGTH);
        if !dropped {
            out.append(name, value.clone());
        }
    }
    out
}

fn belongs_to_connection(name: &HeaderName) -> bool {
    [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || matches!(name.as_str(), "keep-alive" | "set-cookie2" | "cookie2")
        || name.as_str().starts_with("proxy-")
        || name.as_str().starts_with(OURS)
}

/// What `Connection` names belongs to the connection too. Named there by mistake, credentials and
/// the kind of content go on all the same: nothing works without them.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != AUTHORIZATION && *name != http::header::CONTENT_TYPE)
        .collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{to_client, to_provider};
    use crate::config::{Auth, secret::Secret};

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        headers
    }

    #[test]
    fn end_to_end_headers_pass_and_others_do_not() {
        let sent = headers(&[
            ("host", "localhost"),
            ("connection", "keep-alive, x-private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("cookie", "a=b"),
            ("proxy-authorization", "x"),
            ("content-length", "3"),
            ("x-plimsoll-session", "s"),
            ("x-session-id", "a"),
            ("x-many", "1"),
            ("x-many", "2"),
            ("accept-encoding", "gzip"),
        ]);
        let out = to_provider(&sent, &Auth::None, false, true);
        let expected = headers(&[
            ("x-session-id", "a"),
            ("x-many", "1"),
            ("x-many", "2"),
            ("accept-encoding", "identity"),
        ]);
        assert_eq!(out, expected);
        let out = to_provider(&sent, &Auth::None, false, false);
        assert_eq!(out["accept-encoding"], "gzip");
    }

    #[test]
    fn credentials_are_the_clients_or_ours_and_never_both() {
        let sent = headers(&[("authorization", "Bearer theirs"), ("api-key", "theirs")]);
        let check = |auth: Auth, client_keys: bool, expected: &[(&'static str, &'static str)]| {
            let out = to_provider(&sent, &auth, client_keys, false);
            assert_eq!(out, headers(expected), "{auth:?} {client_keys}");
        };
        let theirs = &[("authorization", "Bearer theirs"), ("api-key", "theirs")];
        check(Auth::Client, false, theirs);
        check(Auth::Client, true, &[]);
        check(Auth::None, false, &[]);
        let ours = Auth::Key(Secret::new("ours"));
        check(ours, false, &[("authorization", "Bearer ours")]);
    }

    #[test]
    fn answers_lose_what_is_not_the_providers_to_say() {
        let sent = headers(&[
            ("set-cookie", "a=b"),
            ("x-plimsoll-health", "healthy"),
            ("transfer-encoding", "chunked"),
            ("retry-after", "7"),
            ("x-request-id", "r"),
        ]);
        let expected = headers(&[("retry-after", "7"), ("x-request-id", "r")]);
        assert_eq!(to_client(&sent), expected);
    }
}
