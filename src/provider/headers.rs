//! Which headers are forwarded, in both directions.
//!
//! End-to-end headers pass unchanged, in their order, repeated ones too: providers derive cache
//! affinity from the session headers of clients. Hop-by-hop headers (RFC 9110, 7.6.1), cookies and the
//! proxy's `x-plimsoll-*` are never forwarded; those that tell of the client's address (`x-forwarded-*`, `via`) only with
//! `providers.NAME.forwarded_headers`.
//! SECURITY: a credential goes to a provider only where its configuration says so, and never two
//! of them: with a configured key, no header with a credential of the client is forwarded.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST,
        SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

use crate::{
    config::{Auth, PROXY_HEADER_PREFIX, ProviderConfig},
    conversation::{Api, Format},
    wire::{parse_bearer, split_header_list},
};

/// Headers in which clients send credentials, `Authorization` apart.
const CREDENTIALS: &[&str] = &[
    "api-key",
    "ocp-apim-subscription-key",
    "x-api-key",
    "x-goog-api-key",
];

/// Headers in which proxies before this one name the address of their client, besides `x-forwarded-*`.
///
/// SECURITY: a request with one of them also counts as one from another machine (`http/origin.rs`).
const FORWARDING: [&str; 21] = [
    "cdn-loop",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-ipcountry",
    "cf-ray",
    "cf-visitor",
    "cf-worker",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-original-host",
    "x-real-ip",
];

/// Whether a header tells that, or for whom, a proxy forwarded the request.
pub fn tells_of_forwarding(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-forwarded-") || FORWARDING.contains(&name.as_str())
}

/// The headers for a provider.
///
/// `passes`: the provider takes the client's credentials, and they are none of this proxy.
/// `identity`: ask for an uncompressed answer.
pub fn filter_for_provider(
    headers: &HeaderMap,
    provider: &ProviderConfig,
    passes: bool,
    identity: bool,
) -> HeaderMap {
    let mut out = end_to_end(headers, 1 + provider.headers.len(), |name| {
        let credential = *name == AUTHORIZATION
            || CREDENTIALS.contains(&name.as_str())
            || provider.key_header.as_ref() == Some(name);
        (credential && !passes)
            || (!provider.forwarded_headers && tells_of_forwarding(name))
            || (identity && *name == ACCEPT_ENCODING)
            || provider.headers.contains_key(name)
            || [HOST, CONTENT_LENGTH, COOKIE, EXPECT].contains(name)
    });
    for (name, value) in &provider.headers {
        out.append(name, value.clone());
    }
    if let Auth::Key(key, _) = &provider.auth {
        let (name, value) = match &provider.key_header {
            Some(name) => (name.clone(), key.reveal().to_owned()),
            None => (AUTHORIZATION, format!("Bearer {}", key.reveal())),
        };
        if let Ok(mut value) = HeaderValue::try_from(value) {
            value.set_sensitive(true);
            out.insert(name, value);
        }
    }
    if identity {
        out.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    out
}

/// The client's credentials that a provider which takes them gets, with or without `Bearer` before them.
pub fn list_credentials<'a>(
    headers: &'a HeaderMap,
    provider: &'a ProviderConfig,
) -> impl Iterator<Item = &'a [u8]> {
    let names = provider.key_header.iter().map(HeaderName::as_str);
    let names = names.chain([AUTHORIZATION.as_str()]);
    let names = names.chain(CREDENTIALS.iter().copied());
    let passed = names.filter(|name| !provider.headers.contains_key(*name));
    let values = passed
        .flat_map(|name| headers.get_all(name))
        .map(HeaderValue::as_bytes);
    values.map(|value| parse_bearer(value).unwrap_or(value))
}

/// Moves the configured key to where the provider looks for it in requests of this format: Anthropic takes keys in
/// `x-api-key` for Messages, and as `Bearer` for chat completions.
pub fn place_key(headers: &mut HeaderMap, provider: &ProviderConfig, format: Format) {
    let moves = format.api() == Api::Anthropic && provider.profile.name == "anthropic";
    if let (true, Auth::Key(key, _), None) = (moves, &provider.auth, &provider.key_header)
        && let Ok(mut value) = HeaderValue::try_from(key.reveal())
    {
        value.set_sensitive(true);
        headers.remove(AUTHORIZATION);
        headers.insert(HeaderName::from_static("x-api-key"), value);
    }
}

/// The headers of the proxy's own request for a provider's list of models. Anthropic's list is that of its Messages.
pub fn write_for_list(provider: &ProviderConfig) -> HeaderMap {
    let mut headers = filter_for_provider(&HeaderMap::new(), provider, false, true);
    place_key(&mut headers, provider, Format::Messages);
    if provider.profile.name == "anthropic" && !headers.contains_key("anthropic-version") {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    headers
}

/// The headers for the client.
///
/// SECURITY: a length beside a transfer coding is not that of the body and is dropped (RFC 9112, 6.3):
/// a client would read the bytes after it as the answer to the next request.
pub fn filter_for_client(headers: &HeaderMap) -> HeaderMap {
    let coded = headers.contains_key(TRANSFER_ENCODING);
    end_to_end(headers, 16, |name| {
        *name == SET_COOKIE
            || (coded && *name == CONTENT_LENGTH)
            // Which pages may read an answer is said by this proxy alone.
            || name.as_str().starts_with("access-control-")
    })
}

/// The end-to-end headers but for the dropped ones, with capacity for some more.
fn end_to_end(
    headers: &HeaderMap,
    more: usize,
    is_dropped: impl Fn(&HeaderName) -> bool,
) -> HeaderMap {
    let named = named_by_connection(headers);
    let mut out = HeaderMap::with_capacity(headers.len() + more);
    for (name, value) in headers {
        if !is_hop_by_hop(name) && !named.contains(name) && !is_dropped(name) {
            out.append(name, value.clone());
        }
    }
    out
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || matches!(name.as_str(), "keep-alive" | "set-cookie2" | "cookie2")
        || name.as_str().starts_with("proxy-")
        || name.as_str().starts_with(PROXY_HEADER_PREFIX)
}

/// Headers that `Connection` names are hop-by-hop too. `Authorization` and `Content-Type` are named
/// there only by mistake, and are forwarded: no request works without them.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let names = split_header_list(headers, &CONNECTION);
    let mut names: Vec<HeaderName> = names.filter_map(|name| name.parse().ok()).collect();
    names.retain(|name| *name != AUTHORIZATION && *name != http::header::CONTENT_TYPE);
    names
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{filter_for_client, filter_for_provider};
    use crate::{
        config::{Auth, ProviderConfig, secret::Secret},
        provider::tests::provider,
    };

    fn with(auth: Auth) -> ProviderConfig {
        ProviderConfig {
            auth,
            ..provider("http://127.0.0.1:9/v1", &[])
        }
    }

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
        let out = filter_for_provider(&sent, &with(Auth::None), false, true);
        let expected = headers(&[
            ("x-session-id", "a"),
            ("x-many", "1"),
            ("x-many", "2"),
            ("accept-encoding", "identity"),
        ]);
        assert_eq!(out, expected);
        let out = filter_for_provider(&sent, &with(Auth::None), false, false);
        assert_eq!(out["accept-encoding"], "gzip");
    }

    #[test]
    fn either_the_clients_or_the_configured_credentials_are_sent() {
        let lines = &[("authorization", "Bearer client"), ("api-key", "client")];
        let check = |auth: Auth, passes: bool, expected: &[(&'static str, &'static str)]| {
            let shown = format!("{auth:?} {passes}");
            let out = filter_for_provider(&headers(lines), &with(auth), passes, false);
            assert_eq!(out, headers(expected), "{shown}");
        };
        check(Auth::Client, true, lines);
        check(Auth::Client, false, &[]);
        check(Auth::None, false, &[]);
        let key = Auth::Key(Secret::new("configured"), "KEY".into());
        check(key, false, &[("authorization", "Bearer configured")]);
    }

    #[test]
    fn with_a_configured_key_no_credential_of_a_client_is_sent() {
        let forms = [
            "authorization",
            "proxy-authorization",
            "api-key",
            "x-api-key",
            "x-goog-api-key",
            "ocp-apim-subscription-key",
            "x-own-key",
        ];
        let all: Vec<_> = forms.iter().map(|name| (*name, "client")).collect();
        let sent = headers(&[&all[..], &all[..], &[("connection", "authorization")]].concat());
        for key_header in [None, Some("x-own-key"), Some("api-key")] {
            let config = ProviderConfig {
                key_header: key_header.map(HeaderName::from_static),
                ..with(Auth::Key(Secret::new("configured"), "KEY".into()))
            };
            let out = filter_for_provider(&sent, &config, false, false);
            let (name, value) = match key_header {
                Some(name) => (name, "configured"),
                None => ("authorization", "Bearer configured"),
            };
            assert_eq!(out[name], value);
            assert!(out[name].is_sensitive());
            assert_eq!(out.get_all(name).iter().count(), 1);
            // An unknown header holds a credential only where the settings say so.
            let unknown = match key_header {
                Some("x-own-key") => vec![],
                _ => vec!["x-own-key"; 2],
            };
            let left = out.iter().filter(|(_, value)| *value == "client");
            let left: Vec<_> = left.map(|(name, _)| name.as_str()).collect();
            assert_eq!(left, unknown);
        }
    }

    #[test]
    fn configured_headers_replace_those_of_the_client() {
        let sent = headers(&[
            ("x-team", "client"),
            ("x-team", "twice"),
            ("accept-encoding", "gzip"),
            ("x-other", "1"),
        ]);
        let config = ProviderConfig {
            key_header: Some(HeaderName::from_static("api-key")),
            headers: headers(&[
                ("x-team", "configured"),
                ("accept-encoding", "br"),
                ("api-key", "no key"),
            ]),
            ..with(Auth::Key(Secret::new("configured"), "KEY".into()))
        };
        let out = filter_for_provider(&sent, &config, false, true);
        let expected = headers(&[
            ("x-other", "1"),
            ("x-team", "configured"),
            ("accept-encoding", "identity"),
            ("api-key", "configured"),
        ]);
        assert_eq!(out, expected);
    }

    #[test]
    fn answers_lose_cookies_hop_by_hop_and_plimsoll_headers() {
        let sent = headers(&[
            ("set-cookie", "a=b"),
            ("x-plimsoll-health", "healthy"),
            ("transfer-encoding", "chunked"),
            ("retry-after", "7"),
            ("x-request-id", "r"),
        ]);
        let expected = headers(&[("retry-after", "7"), ("x-request-id", "r")]);
        assert_eq!(filter_for_client(&sent), expected);
    }
}
