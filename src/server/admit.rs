//! Who may come: client keys, and without them, this machine only.
//!
//! SECURITY: without client keys anybody who reaches the port spends the user's money. A web page
//! can: by a name that resolves to 127.0.0.1 (its `Host` tells), or by a plain cross-site request
//! (its `Origin` tells). So both must be loopback, on every path.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use http::{
    HeaderMap, HeaderName,
    header::{AUTHORIZATION, HOST, ORIGIN},
    request::Parts,
};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::{config::ClientConfig, error::Failure, provider};

/// What a browser says of the page that makes a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The name of its key; `None` where no keys are set.
    pub name: Option<Arc<str>>,
    models: Arc<[String]>,
    recovers: bool,
}

/// All client keys.
#[derive(Clone, Debug)]
pub struct Clients {
    keys: Vec<([u8; 32], Client)>,
}

impl Client {
    /// Whether the client may use one of these names of a model.
    pub fn may_use(&self, names: &[&str]) -> bool {
        let allows = |name: &&str| self.models.iter().any(|p| provider::matches(p, name));
        names.iter().any(allows)
    }

    /// Whether its conversations have recovery.
    pub const fn recovers(&self) -> bool {
        self.recovers
    }

    /// Whether the client may use every model.
    pub fn unlimited(&self) -> bool {
        self.models.iter().any(|pattern| pattern == "*")
    }
}

impl Clients {
    pub fn new(config: &BTreeMap<String, ClientConfig>) -> Self {
        let keys = config.iter().map(|(name, client)| {
            let known = Client {
                name: Some(name.as_str().into()),
                models: client.models.clone().into(),
                recovers: client.recovery,
            };
            (client.key_sha256, known)
        });
        Self {
            keys: keys.collect(),
        }
    }

    /// Whether clients need keys.
    pub fn have_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Refuses what may come from a web page elsewhere.
    ///
    /// # Errors
    /// No keys are set, and `Host` or `Origin` is not this machine.
    pub fn check_origin(&self, parts: &Parts) -> Result<(), Failure> {
        if self.have_keys() {
            return Ok(());
        }
        let mut hosts: Vec<_> = parts.headers.get_all(HOST).iter().collect::<Vec<_>>();
        let named: Vec<_> = hosts
            .drain(..)
            .map(|host| host.to_str().unwrap_or_default())
            .chain(parts.uri.authority().map(http::uri::Authority::as_str))
            .collect();
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
    pub fn recognise(&self, headers: &HeaderMap) -> Result<Client, Failure> {
        if !self.have_keys() {
            return Ok(Client {
                name: None,
                models: Arc::from(["*".to_owned()]),
                recovers: true,
            });
        }
        let sent = headers.get(AUTHORIZATION).ok_or(Failure::KeyMissing)?;
        let key = bearer(sent.as_bytes()).ok_or(Failure::KeyWrong)?;
        let digest: [u8; 32] = Sha256::digest(key).into();
        // Every key is looked at, so that time tells nothing of which one came close.
        let mut found = u32::MAX;
        for (index, (key, _)) in (0u32..).zip(&self.keys) {
            let same: Choice = key.ct_eq(&digest);
            found.conditional_assign(&index, same);
        }
        let (_, client) = self.keys.get(found as usize).ok_or(Failure::KeyWrong)?;
        Ok(client.clone())
    }
}

/// The key of a `Bearer` credential.
pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
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
    use super::is_loopback;

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
