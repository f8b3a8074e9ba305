//! Admission: client keys and what each key may use. Without keys, only this machine is admitted.
//!
//! SECURITY: without client keys anybody who reaches the port spends the user's money. A web page can reach it:
//! by a name that resolves to 127.0.0.1 (`Host` shows it), or by a plain cross-site request (`Origin` shows it).
//! So both headers must name a loopback address, on every path.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL},
    request::Parts,
};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::limit::{Hold, Limit, LimitMap};
use crate::{
    config::{ClientConfig, PROXY_KEY},
    error::Failure,
    provider::{self, Registry, Target},
    wire::split_header_list,
};

/// A browser states here how the page that makes the request relates to this host.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Without client keys, a shorter one names no account: others would guess it.
const LEAST_PROXY_KEY: usize = 16;

/// Headers that carry a bare key, beside `Authorization`: clients made for Azure or for other APIs use them.
const KEY_HEADERS: [&str; 2] = ["api-key", "x-api-key"];

/// Prefix of the key among the protocols of a websocket: browsers can set no other header there.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Client {
    /// The name of its key; `None` where no keys are set.
    pub name: Option<Arc<str>>,
    config: Arc<ClientConfig>,
    /// Bounds its concurrent requests.
    limit: Arc<Limit>,
}

/// All client keys.
#[derive(Clone, Debug)]
pub struct Clients {
    with_keys: Vec<Client>,
    /// Every client where no keys are set.
    anonymous: Client,
}

impl Client {
    /// Whether the client may use a model of this name.
    pub fn may_use(&self, name: &str) -> bool {
        let mut patterns = self.config.models.iter();
        patterns.any(|pattern| provider::matches_pattern(pattern, name))
    }

    /// Whether the client may use a path; `path` follows `/v1/`.
    ///
    /// The path is compared as it is written: another spelling of an allowed path is not allowed.
    pub fn may_reach(&self, path: &str) -> bool {
        let mut patterns = self.config.paths.iter();
        patterns.any(|pattern| provider::matches_pattern(pattern, path))
    }

    /// Counts a request as running until the result is dropped.
    ///
    /// # Errors
    /// The client has as many running requests as it may have.
    pub fn begin_request(&self) -> Result<Arc<Hold>, Failure> {
        let hold = self.limit.try_take_one();
        hold.map(Arc::new).ok_or(Failure::TooManyRequests)
    }

    pub fn has_recovery(&self) -> bool {
        self.config.recovery
    }

    /// Whether the client may use every model.
    pub fn is_unlimited(&self) -> bool {
        self.config.models.iter().any(|pattern| pattern == "*")
    }
}

impl Clients {
    /// `limits` counts running requests by the client's name, so that a limit holds across a reload too.
    pub fn new(config: &BTreeMap<String, ClientConfig>, limits: &LimitMap<String>) -> Self {
        let with_keys = config.iter().map(|(name, client)| {
            let max = client.max_in_flight.map_or(usize::MAX, |max| max as usize);
            Client {
                name: Some(name.as_str().into()),
                config: Arc::new(client.clone()),
                limit: limits.get(name.clone(), max),
            }
        });
        let anonymous = ClientConfig {
            key_sha256: [0; 32],
            models: vec!["*".to_owned()],
            paths: vec!["*".to_owned()],
            max_in_flight: None,
            recovery: true,
        };
        Self {
            with_keys: with_keys.collect(),
            anonymous: Client {
                name: None,
                config: Arc::new(anonymous),
                limit: Limit::new(usize::MAX),
            },
        }
    }

    /// Whether clients need keys.
    pub fn have_keys(&self) -> bool {
        !self.with_keys.is_empty()
    }

    /// Refuses a request that may come from a web page of another machine.
    ///
    /// # Errors
    /// No keys are set, and `Host` or `Origin` is not this machine.
    pub fn check_origin(&self, parts: &Parts) -> Result<(), Failure> {
        if self.have_keys() {
            return Ok(());
        }
        let mut hosts = named_hosts(parts).peekable();
        if hosts.peek().is_none() || !hosts.all(is_loopback) {
            return Err(Failure::ForeignHost);
        }
        let is_local = |origin: &HeaderValue| {
            let origin = origin.to_str().unwrap_or_default();
            let host = origin.strip_prefix("http://");
            host.or_else(|| origin.strip_prefix("https://"))
                .is_some_and(is_loopback)
        };
        // A page can make a browser GET without an `Origin`; browsers report it in this header.
        let mut sites = parts.headers.get_all(FETCH_SITE).iter();
        if sites.any(|site| site == "cross-site")
            || !parts.headers.get_all(ORIGIN).iter().all(is_local)
        {
            return Err(Failure::ForeignOrigin);
        }
        Ok(())
    }

    /// Finds the client by the key that its request carries.
    ///
    /// # Errors
    /// Keys are set, and the request has none or an unknown one; or none are, and `x-plimsoll-key` is too short.
    pub fn recognise_client(&self, headers: &HeaderMap) -> Result<Client, Failure> {
        if !self.have_keys() {
            let key = headers.get(PROXY_KEY);
            return match key.is_some_and(|key| key.as_bytes().trim_ascii().len() < LEAST_PROXY_KEY)
            {
                true => Err(Failure::KeyShort),
                false => Ok(self.anonymous.clone()),
            };
        }
        let client = self.find_by_key(find_client_key(headers)?);
        client.cloned().ok_or(Failure::KeyWrong)
    }

    /// Whether what the client sends as its own credentials may go to a provider that takes them (`auth = "client"`).
    ///
    /// SECURITY: with client keys only where the client's key came in a header of its own.
    pub fn may_pass_credentials(&self, headers: &HeaderMap) -> bool {
        !self.have_keys() || headers.contains_key(PROXY_KEY)
    }

    /// Removes the headers whose value is a client key, with or without `Bearer`: no provider may see one.
    pub fn strip_keys(&self, headers: &mut HeaderMap) {
        let values = headers.iter().filter(|(_, value)| {
            let value = value.as_bytes();
            self.is_key(value) || parse_bearer(value).is_some_and(|key| self.is_key(key))
        });
        let names: Vec<HeaderName> = values.map(|(name, _)| name.clone()).collect();
        for name in names {
            headers.remove(name);
        }
    }

    /// Whether a text is a client key.
    pub fn is_key(&self, text: &[u8]) -> bool {
        self.find_by_key(text.trim_ascii()).is_some()
    }

    fn find_by_key(&self, key: &[u8]) -> Option<&Client> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        // Every key is compared, so that the time taken does not show which one came close.
        let mut found = u32::MAX;
        for (index, client) in (0u32..).zip(&self.with_keys) {
            let same: Choice = client.config.key_sha256.ct_eq(&digest);
            found.conditional_assign(&index, same);
        }
        self.with_keys.get(found as usize)
    }
}

/// Refuses requests of pages of another origin for `/plimsoll/`, the proxy's API and dashboard.
///
/// SECURITY: with or without keys. A page on another port of this machine is another origin too: it must not read
/// conversations. The same holds for what a browser loads into another page.
///
/// # Errors
/// `Origin` is not that of `Host`, or the browser reports that another site asks.
pub fn check_admin_origin(parts: &Parts) -> Result<(), Failure> {
    let path = parts.uri.path();
    if path != "/plimsoll" && !path.starts_with("/plimsoll/") {
        return Ok(());
    }
    let sites = parts.headers.get_all(FETCH_SITE);
    let is_same_site = |site: &HeaderValue| site == "same-origin" || site == "none";
    let hosts: Vec<&str> = named_hosts(parts).collect();
    let is_same_origin = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        !hosts.is_empty() && hosts.iter().all(|host| is_origin_of(origin, host))
    };
    match sites.iter().all(is_same_site) && parts.headers.get_all(ORIGIN).iter().all(is_same_origin)
    {
        true => Ok(()),
        false => Err(Failure::ForeignPage),
    }
}

/// The hosts that a request names: in `Host` and in its URI.
fn named_hosts(parts: &Parts) -> impl Iterator<Item = &str> {
    let headers = parts.headers.get_all(HOST).iter();
    headers
        .map(|host| host.to_str().unwrap_or_default())
        .chain(parts.uri.authority().map(http::uri::Authority::as_str))
}

/// Whether a page of this origin was loaded from that host. A proxy in front may have ended the TLS of either.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let matches = |scheme: &str, port: &str| {
        origin.strip_prefix(scheme).is_some_and(|named| {
            let named = named.strip_suffix(port).unwrap_or(named);
            let host = host.strip_suffix(port).unwrap_or(host);
            !named.is_empty() && named.eq_ignore_ascii_case(host)
        })
    };
    matches("http://", ":80") || matches("https://", ":443")
}

/// Whether a client may use a model, by its name with or without the provider's.
///
/// SECURITY: a name whose first part is a provider's belongs to that provider: a key for `local/*` must not open
/// a model of another provider that is called `local/x` there.
pub fn allows_model(registry: &Registry, client: &Client, provider: &str, model: &str) -> bool {
    let prefix = model.split_once('/');
    let names_provider = prefix.is_some_and(|(name, _)| registry.find_provider(name).is_ok());
    client.may_use(&format!("{provider}/{model}")) || (!names_provider && client.may_use(model))
}

/// Whether a client that asked for `asked` may use the model behind the name. `is_configured`: the settings
/// define the name, as an alias or as a model with several candidates. Such a name may be allowed by itself, since
/// the operator who allows it knows its candidates.
pub fn allows_target(
    registry: &Registry,
    client: &Client,
    asked: &str,
    is_configured: bool,
    target: &Target,
) -> bool {
    (is_configured && client.may_use(asked))
        || allows_model(registry, client, &target.provider.name, &target.model)
}

/// The same error for a model that does not exist and one that the client may not use, as at OpenAI.
pub fn no_such_model(model: &str) -> Failure {
    Failure::ModelNotFound(format!(
        "The model `{model}` does not exist or you do not have access to it."
    ))
}

/// Whether a client may send a provider requests without a model: not where its key is for other providers.
pub fn allows_provider(registry: &Registry, client: &Client, provider: &str) -> bool {
    let opens = |pattern: &String| match pattern.split_once('/') {
        Some((name, _)) if registry.find_provider(name).is_ok() => name == provider,
        _ => true,
    };
    client.config.models.iter().any(opens)
}

/// The key that a request carries. Of several, the first in the order of this function counts.
fn find_client_key(headers: &HeaderMap) -> Result<&[u8], Failure> {
    if let Some(key) = headers.get(PROXY_KEY) {
        return Ok(key.as_bytes().trim_ascii());
    }
    if let Some(credential) = headers.get(AUTHORIZATION) {
        return parse_bearer(credential.as_bytes()).ok_or(Failure::KeyWrong);
    }
    if let Some(key) = KEY_HEADERS.iter().find_map(|name| headers.get(*name)) {
        return Ok(key.as_bytes().trim_ascii());
    }
    let key = split_header_list(headers, &SEC_WEBSOCKET_PROTOCOL)
        .find_map(|protocol| protocol.strip_prefix(KEY_PROTOCOL));
    key.map(str::as_bytes).ok_or(Failure::KeyMissing)
}

/// Removes the keys from the protocols that a websocket offers.
pub fn strip_protocol_keys(headers: &mut HeaderMap) {
    // A value that cannot be read may hide a key.
    let has_key = |value: &HeaderValue| {
        let text = value.to_str().map(str::to_ascii_lowercase);
        text.map_or(true, |text| text.contains(KEY_PROTOCOL))
    };
    if !headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().any(has_key) {
        return;
    }
    let kept: Vec<_> = split_header_list(headers, &SEC_WEBSOCKET_PROTOCOL)
        .filter(|protocol| !protocol.to_ascii_lowercase().starts_with(KEY_PROTOCOL))
        .collect();
    let kept = HeaderValue::try_from(kept.join(", ")).ok();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(kept) = kept.filter(|kept| !kept.is_empty()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

/// The key of a `Bearer` credential.
pub fn parse_bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer ");
    is_bearer.then(|| key.trim_ascii())
}

/// `localhost`, `127.0.0.0/8` or `[::1]`, with or without a port.
fn is_loopback(host: &str) -> bool {
    let parts = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']'),
        None => Some(host.split_at(host.find(':').unwrap_or(host.len()))),
    };
    let Some((name, port)) = parts else {
        return false;
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_address =
        |address: IpAddr| address.is_loopback() && (address.is_ipv6() == host.starts_with('['));
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        && (name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_address))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{find_client_key, is_loopback, is_origin_of, strip_protocol_keys};
    use crate::error::Failure;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn a_key_is_found_wherever_clients_put_it() {
        let check = |lines: &[(&'static str, &'static str)], expected: Result<&str, Failure>| {
            let expected = expected.map(str::as_bytes);
            assert_eq!(find_client_key(&headers(lines)), expected, "{lines:?}");
        };
        check(&[("authorization", "bearer  k ")], Ok("k"));
        check(&[("authorization", "Basic k")], Err(Failure::KeyWrong));
        check(&[("api-key", "k")], Ok("k"));
        check(&[("x-api-key", "k")], Ok("k"));
        check(&[("authorization", "Bearer a"), ("api-key", "k")], Ok("a"));
        let beside = [("authorization", "Bearer a"), ("x-plimsoll-key", "k")];
        check(&beside, Ok("k"));
        let offered = "realtime, openai-insecure-api-key.k, openai-beta.realtime-v1";
        check(&[("sec-websocket-protocol", offered)], Ok("k"));
        check(
            &[("sec-websocket-protocol", "realtime")],
            Err(Failure::KeyMissing),
        );
        check(&[], Err(Failure::KeyMissing));
    }

    #[test]
    fn keys_are_removed_from_offered_protocols() {
        let check = |offered: &[&'static str], expected: &[&'static str]| {
            let lines = |values: &[&'static str]| {
                let line = |value: &&'static str| ("sec-websocket-protocol", *value);
                headers(&values.iter().map(line).collect::<Vec<_>>())
            };
            let mut stripped = lines(offered);
            strip_protocol_keys(&mut stripped);
            assert_eq!(stripped, lines(expected), "{offered:?}");
        };
        check(&["realtime ,x"], &["realtime ,x"]);
        check(
            &["realtime, openai-insecure-api-key.k, beta"],
            &["realtime, beta"],
        );
        check(&["a", "OpenAI-Insecure-API-Key.k", "b"], &["a, b"]);
        check(&["openai-insecure-api-key.k"], &[]);
    }

    #[test]
    fn an_origin_matches_only_its_own_host_and_port() {
        let check = |origin: &str, host: &str, expected: bool| {
            assert_eq!(is_origin_of(origin, host), expected, "{origin} {host}");
        };
        check("http://localhost:1876", "localhost:1876", true);
        check("https://Load.example", "load.example", true);
        check("https://load.example", "load.example:443", true);
        check("http://load.example", "load.example:80", true);
        check("http://[::1]:1876", "[::1]:1876", true);
        check("http://localhost:1877", "localhost:1876", false);
        check("http://localhost", "localhost:1876", false);
        check("http://127.0.0.1:1876", "localhost:1876", false);
        check("http://load.example", "load.example:443", false);
        check("http://evil.load.example", "load.example", false);
        check("http://load.example.evil", "load.example", false);
        check("http://load.example/", "load.example", false);
        check("null", "localhost:1876", false);
        check("", "", false);
        check("http://", "", false);
        check("http://:80", ":80", false);
        check("file://localhost", "localhost", false);
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for local in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.9.9.9:1876",
            "[::1]",
            "[::1]:1876",
        ] {
            assert!(is_loopback(local), "{local}");
        }
        for foreign in [
            "",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "user@localhost",
            "localhost:80@example.com",
            "0.0.0.0",
            "::1",
            "[::1",
            "[::1]x",
            "[localhost]x",
            "10.0.0.1",
            "localhost/",
            "null",
        ] {
            assert!(!is_loopback(foreign), "{foreign}");
        }
    }
}
