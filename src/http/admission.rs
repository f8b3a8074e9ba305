//! Who may come, and what for: client keys, and without them, this machine only.
//!
//! SECURITY: without client keys anybody who reaches the port spends the user's money. A web page
//! can: by a name that resolves to 127.0.0.1 (its `Host` tells), or by a plain cross-site request
//! (its `Origin` tells). So both must be loopback, on every path.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use http::{
    HeaderMap, HeaderName,
    header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL},
    request::Parts,
};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::limit::{Hold, Limit, LimitMap};
use crate::{
    config::ClientConfig,
    error::Failure,
    provider::{self, Registry, Target},
};

/// What a browser says of the page that makes a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Where a key may stand as it is, beside `Authorization`: clients made for Azure or for other
/// APIs put it there.
const KEY_HEADERS: [&str; 2] = ["api-key", "x-api-key"];

/// How a browser, which can set no headers, offers a key when it opens a websocket.
const KEY_PROTOCOL: &str = "openai-insecure-api-key.";

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Client {
    /// The name of its key; `None` where no keys are set.
    pub name: Option<Arc<str>>,
    config: Arc<ClientConfig>,
    /// Of the requests that it may have running.
    limit: Arc<Limit>,
}

/// All client keys.
#[derive(Clone, Debug)]
pub struct Clients {
    with_keys: Vec<Client>,
    /// Whoever asks where no keys are set.
    anonymous: Client,
}

impl Client {
    /// Whether the client may use one of these names of a model.
    pub fn may_use(&self, names: &[&str]) -> bool {
        let allows = |name: &&str| {
            self.config
                .models
                .iter()
                .any(|p| provider::matches_pattern(p, name))
        };
        names.iter().any(allows)
    }

    /// Whether the client may use a path; `path` follows `/v1/`.
    ///
    /// It is compared as it stands: another spelling of an allowed path is not allowed.
    pub fn may_reach(&self, path: &str) -> bool {
        self.config
            .paths
            .iter()
            .any(|p| provider::matches_pattern(p, path))
    }

    /// Takes one of the requests that it may have running.
    ///
    /// # Errors
    /// All of them run.
    pub fn begin_request(&self) -> Result<Arc<Hold>, Failure> {
        let running = self.limit.try_take_one();
        running.map(Arc::new).ok_or(Failure::TooManyRequests)
    }

    /// Whether its conversations have recovery.
    pub fn has_recovery(&self) -> bool {
        self.config.recovery
    }

    /// Whether the client may use every model.
    pub fn is_unlimited(&self) -> bool {
        self.config.models.iter().any(|pattern| pattern == "*")
    }
}

impl Clients {
    /// `limits`: of the requests that run already, counted by the client's name, so that a limit holds
    /// also where it, or the client's key, was changed while requests were running.
    pub fn new(config: &BTreeMap<String, ClientConfig>, limits: &LimitMap<String>) -> Self {
        let with_keys = config.iter().map(|(name, client)| {
            let max = client.max_in_flight.map_or(usize::MAX, |max| max as usize);
            Client {
                name: Some(name.as_str().into()),
                config: Arc::new(client.clone()),
                limit: limits.get(name.clone(), max),
            }
        });
        let all = || vec!["*".to_owned()];
        let anonymous = ClientConfig {
            key_sha256: [0; 32],
            models: all(),
            paths: all(),
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

    /// Refuses what may come from a web page elsewhere.
    ///
    /// # Errors
    /// No keys are set, and `Host` or `Origin` is not this machine.
    pub fn check_origin(&self, parts: &Parts) -> Result<(), Failure> {
        if self.have_keys() {
            return Ok(());
        }
        let named: Vec<_> = named_hosts(parts).collect();
        if named.is_empty() || !named.into_iter().all(is_loopback) {
            return Err(Failure::Foreign { header: "host" });
        }
        let ours = |origin: &http::HeaderValue| {
            let host = origin.to_str().ok().and_then(|origin| {
                origin
                    .strip_prefix("http://")
                    .or_else(|| origin.strip_prefix("https://"))
            });
            host.is_some_and(is_loopback)
        };
        // A page can make a browser GET without an `Origin`; browsers say so here.
        let cross = parts
            .headers
            .get_all(FETCH_SITE)
            .iter()
            .any(|site| site == "cross-site");
        if cross || !parts.headers.get_all(ORIGIN).iter().all(ours) {
            return Err(Failure::Foreign { header: "origin" });
        }
        Ok(())
    }

    /// Who sent this.
    ///
    /// # Errors
    /// Keys are set, and the request has none or another.
    pub fn recognise_client(&self, headers: &HeaderMap) -> Result<Client, Failure> {
        if !self.have_keys() {
            return Ok(self.anonymous.clone());
        }
        let key = find_client_key(headers)?;
        let digest: [u8; 32] = Sha256::digest(key).into();
        // Every key is looked at, so that time tells nothing of which one came close.
        let mut found = u32::MAX;
        for (index, client) in (0u32..).zip(&self.with_keys) {
            let same: Choice = client.config.key_sha256.ct_eq(&digest);
            found.conditional_assign(&index, same);
        }
        let client = self.with_keys.get(found as usize);
        client.cloned().ok_or(Failure::KeyWrong)
    }
}

/// Refuses what a page of another origin asks of `/plimsoll/`, the API and the pages of our own.
///
/// SECURITY: with or without keys. A page on another port of this machine is another origin too, which
/// may not read what was said in a conversation; neither may what a browser loads into another page.
///
/// # Errors
/// `Origin` is not that of `Host`, or a browser says that another site asks.
pub fn check_admin_origin(parts: &Parts) -> Result<(), Failure> {
    let path = parts.uri.path();
    if path != "/plimsoll" && !path.starts_with("/plimsoll/") {
        return Ok(());
    }
    let sites = parts.headers.get_all(FETCH_SITE);
    let ours = |site: &http::HeaderValue| site == "same-origin" || site == "none";
    let hosts: Vec<&str> = named_hosts(parts).collect();
    let same = |origin: &http::HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        !hosts.is_empty() && hosts.iter().all(|host| is_origin_of(origin, host))
    };
    match sites.iter().all(ours) && parts.headers.get_all(ORIGIN).iter().all(same) {
        true => Ok(()),
        false => Err(Failure::ForeignPage),
    }
}

/// Who a request says that it is for.
fn named_hosts(parts: &Parts) -> impl Iterator<Item = &str> {
    let named = parts.headers.get_all(HOST).iter();
    named
        .map(|host| host.to_str().unwrap_or_default())
        .chain(parts.uri.authority().map(http::uri::Authority::as_str))
}

/// Whether a page of this origin was loaded from that host. Which of the two schemes it was is not
/// known here, where another proxy may have taken the TLS away.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let same = |scheme: &str, port: &str| {
        let own = origin.strip_prefix(scheme);
        own.is_some_and(|own| {
            let own = own.strip_suffix(port).unwrap_or(own);
            let host = host.strip_suffix(port).unwrap_or(host);
            !own.is_empty() && own.eq_ignore_ascii_case(host)
        })
    };
    same("http://", ":80") || same("https://", ":443")
}

/// Whether a client may use a model, by its full name or by its own.
///
/// SECURITY: a name of its own that begins with a provider's is that provider's business: what
/// opens `local/*` must not open a model of another provider that is called `local/x` there.
pub fn allows_model(registry: &Registry, client: &Client, provider: &str, model: &str) -> bool {
    let of_another = model
        .split_once('/')
        .is_some_and(|(name, _)| registry.find_provider(name).is_ok());
    client.may_use(&[&format!("{provider}/{model}")]) || (!of_another && client.may_use(&[model]))
}

/// Whether a client that asked for `asked` may use what it stands for. `made`: the name is one of the
/// settings' own, an alias or a model of several places; such a name may be allowed as it is, since
/// whoever allows it knows what it stands for.
pub fn allows_target(
    registry: &Registry,
    client: &Client,
    asked: &str,
    made: bool,
    target: &Target,
) -> bool {
    (made && client.may_use(&[asked]))
        || allows_model(registry, client, &target.provider.name, &target.model)
}

/// As OpenAI does: what one may not use does not exist.
pub fn no_such_model(model: &str) -> Failure {
    Failure::ModelNotFound(format!(
        "The model `{model}` does not exist or you do not have access to it."
    ))
}

/// Whether a client may reach a provider with a request that names no model: one whose key is for
/// models of other providers only may not.
pub fn allows_provider(registry: &Registry, client: &Client, provider: &str) -> bool {
    let opens = |pattern: &String| match pattern.split_once('/') {
        Some((name, _)) if registry.find_provider(name).is_ok() => name == provider,
        _ => true,
    };
    client.config.models.iter().any(opens)
}

/// The key that a request carries; of several the first in the order of this function counts.
fn find_client_key(headers: &HeaderMap) -> Result<&[u8], Failure> {
    if let Some(sent) = headers.get(AUTHORIZATION) {
        return parse_bearer(sent.as_bytes()).ok_or(Failure::KeyWrong);
    }
    if let Some(key) = KEY_HEADERS.iter().find_map(|name| headers.get(*name)) {
        return Ok(key.as_bytes().trim_ascii());
    }
    offered_protocols(headers)
        .find_map(|protocol| protocol.strip_prefix(KEY_PROTOCOL))
        .map(str::as_bytes)
        .ok_or(Failure::KeyMissing)
}

fn offered_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|value| value.to_str().ok());
    offered.flat_map(|value| value.split(',')).map(str::trim)
}

/// Takes the keys out of the protocols that a websocket is offered.
pub fn strip_protocol_keys(headers: &mut HeaderMap) {
    let carries = |value: &http::HeaderValue| {
        // What cannot be read may hide one.
        value.to_str().map_or(true, |value| {
            value.to_ascii_lowercase().contains(KEY_PROTOCOL)
        })
    };
    if !headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().any(carries) {
        return;
    }
    let offered: Vec<_> = offered_protocols(headers)
        .filter(|protocol| !protocol.to_ascii_lowercase().starts_with(KEY_PROTOCOL))
        .collect();
    match http::HeaderValue::try_from(offered.join(", ")) {
        Ok(left) if !left.is_empty() => {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, left);
        }
        _ => {
            headers.remove(SEC_WEBSOCKET_PROTOCOL);
        }
    }
}

/// The key of a `Bearer` credential.
pub fn parse_bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| key.trim_ascii())
}

/// `localhost`, `127.0.0.0/8` or `[::1]`, with or without a port.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) => (address, port),
            None => return false,
        },
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port_is_sound = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.parse::<u16>().is_ok());
    let is_address = || {
        name.parse::<IpAddr>().is_ok_and(|address| {
            address.is_loopback() && (address.is_ipv6() == host.starts_with('['))
        })
    };
    port_is_sound && (name.eq_ignore_ascii_case("localhost") || is_address())
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
        let offered = "realtime, openai-insecure-api-key.k, openai-beta.realtime-v1";
        check(&[("sec-websocket-protocol", offered)], Ok("k"));
        check(
            &[("sec-websocket-protocol", "realtime")],
            Err(Failure::KeyMissing),
        );
        check(&[], Err(Failure::KeyMissing));
    }

    #[test]
    fn keys_are_taken_out_from_among_the_protocols() {
        let check = |offered: &[&'static str], expected: &[&'static str]| {
            let lines = |values: &[&'static str]| {
                let line = |value: &&'static str| ("sec-websocket-protocol", *value);
                headers(&values.iter().map(line).collect::<Vec<_>>())
            };
            let mut left = lines(offered);
            strip_protocol_keys(&mut left);
            assert_eq!(left, lines(expected), "{offered:?}");
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
    fn an_origin_is_that_of_its_host_or_another() {
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
        for ours in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.9.9.9:1876",
            "[::1]",
            "[::1]:1876",
        ] {
            assert!(is_loopback(ours), "{ours}");
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
