//! How other servers are reached: through which proxy, and whose certificates are trusted.
//!
//! SECURITY: a proxy of the environment is used unasked. So it gets no address of a private network, and credentials only
//! inside TLS, which it cannot read. A proxy that a provider's settings name gets what they say.
//! Nothing is resolved: private is what an address says of itself.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::{
    Config,
    loading::{
        environment::Environment,
        problem::Problem,
        section::{Section, Visibility},
        setting::redact_address,
    },
    secret::Secret,
};

/// The variables that name proxies, in capitals or small letters: for `https://`, `http://` and both.
const VARIABLES: [&str; 3] = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"];

const NO_PROXY: &str = "NO_PROXY";

/// What `providers.NAME.proxy` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProxySetting {
    /// The proxy of the environment, if any.
    #[default]
    Environment,
    /// No proxy.
    Direct,
    /// This one, whatever the address.
    Through(Secret),
}

/// The certificates of `server.ca_file`, and the proxies of the environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outgoing {
    /// Trusted beside those of the system.
    pub certificates: Vec<CertificateDer<'static>>,
    /// For `https://`: the variable, and its value.
    https: Option<(String, Secret)>,
    /// For `http://`.
    http: Option<(String, Secret)>,
    /// The value of `NO_PROXY`.
    exceptions: String,
}

/// The way to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address of the proxy, which may contain a password; `None`: directly.
    pub proxy: Option<Secret>,
    /// What decided; empty where nothing had to.
    pub reason: String,
}

impl Route {
    /// The way in words, without user and password of the proxy.
    pub fn describe(&self) -> String {
        let way = match &self.proxy {
            Some(proxy) => format!("through {}", redact_address(proxy.reveal())),
            None => "directly".to_owned(),
        };
        match &*self.reason {
            "" => way,
            reason => format!("{way} ({reason})"),
        }
    }
}

impl Outgoing {
    /// Reads `ca_file` of the section, and the environment.
    pub(super) fn read(s: &mut Section) -> Self {
        let find = |name| {
            find_variable(s.environment, name).filter(|(_, it)| is_proxy_address(it.reveal()))
        };
        let [https, http, all] = VARIABLES.map(find);
        let exceptions = find_variable(s.environment, NO_PROXY);
        Self {
            https: https.or_else(|| all.clone()),
            http: http.or(all),
            exceptions: exceptions.map_or_else(String::new, |(_, it)| it.reveal().to_owned()),
            certificates: read_certificates(s),
        }
    }

    /// The way to an address. Without TLS, one with credentials gets no proxy of the environment.
    pub fn find_route(
        &self,
        address: &Url,
        has_credentials: bool,
        setting: &ProxySetting,
    ) -> Route {
        let direct = |reason: &str| Route {
            proxy: None,
            reason: reason.to_owned(),
        };
        match setting {
            ProxySetting::Direct => return direct("providers.NAME.proxy"),
            ProxySetting::Through(proxy) => {
                return Route {
                    proxy: Some(proxy.clone()),
                    reason: "providers.NAME.proxy".to_owned(),
                };
            }
            ProxySetting::Environment => {}
        }
        let is_tls = address.scheme() == "https";
        let Some((variable, proxy)) = (if is_tls { &self.https } else { &self.http }) else {
            return direct("");
        };
        if address.host_str().is_none_or(is_private_host) {
            direct("its address is private")
        } else if self.is_excepted(address) {
            direct(NO_PROXY)
        } else if has_credentials && !is_tls {
            direct("credentials without TLS")
        } else {
            Route {
                proxy: Some(proxy.clone()),
                reason: variable.clone(),
            }
        }
    }

    /// The variable by which clients of this environment send what is for `address`, an `http://` one of this machine,
    /// to a proxy; `None`: they reach it directly. This proxy never asks another one for a private address.
    pub fn find_catching_variable(&self, address: &Url) -> Option<&str> {
        let (variable, _) = self.http.as_ref()?;
        (!self.is_excepted(address)).then_some(variable)
    }

    /// Whether `NO_PROXY` names the address: by domain, network, `*`, `*.domain`, or with its port; commas or white space
    /// stand between two.
    fn is_excepted(&self, address: &Url) -> bool {
        let named = self.exceptions.split([',', ' ', '\t']).filter_map(|entry| {
            let rest = entry.strip_prefix('*').filter(|rest| rest.starts_with('.'));
            let entry = rest.unwrap_or(entry);
            match entry.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => {
                    (port.parse().ok() == address.port_or_known_default()).then_some(host)
                }
                _ => Some(entry.trim_matches(['[', ']'])),
            }
        });
        let named = named.collect::<Vec<_>>().join(",");
        let matcher = Matcher::builder().all("http://proxy").no(named).build();
        let address = address.origin().ascii_serialization().parse::<Uri>();
        address.is_ok_and(|address| matcher.intercept(&address).is_none())
    }
}

impl Config {
    /// How each provider, the catalogue and the collector of traces are reached.
    pub fn list_routes(&self) -> Vec<(String, Route)> {
        let outgoing = &self.server.outgoing;
        let providers = self.providers.iter();
        let mut routes: Vec<_> = providers
            .filter_map(|(name, it)| Some((format!("providers.{name}"), it.find_route(outgoing)?)))
            .collect();
        let others = [
            ("catalogue.url", self.catalogue.find_route(outgoing)),
            ("traces.endpoint", self.traces.find_route(outgoing)),
        ];
        routes.extend(
            others
                .into_iter()
                .filter_map(|(key, route)| Some((key.to_owned(), route?))),
        );
        routes
    }
}

/// Reads `providers.NAME.proxy`.
pub(super) fn read_proxy(s: &mut Section) -> ProxySetting {
    let key = "proxy";
    s.explain_unset("that of the environment, if any");
    let written: Option<String> = s.read_option(key, Visibility::Address);
    match written.as_deref() {
        None => ProxySetting::Environment,
        Some("none") => ProxySetting::Direct,
        Some(written) => {
            if !is_proxy_address(written) {
                let message = "must be \"none\" or the address of a proxy (the value is not shown, it may hold a \
                               password): http://[USER:PASSWORD@]HOST:PORT, https:// or socks5h://";
                s.refuse_value(key, None, message);
            }
            ProxySetting::Through(Secret::new(written))
        }
    }
}

/// Warns of variables with an address that cannot be that of a proxy.
pub(super) fn find_unusable_proxies(environment: &Environment) -> Vec<Problem> {
    let found = VARIABLES
        .into_iter()
        .filter_map(|name| find_variable(environment, name));
    let unusable = found.filter(|(_, it)| !is_proxy_address(it.reveal()));
    let message = "is not used: it is no address of a proxy (the value is not shown, it may hold a password), such as \
                   http://proxy.example:3128";
    unusable
        .map(|(name, _)| Problem::for_key(&[name], message))
        .collect()
}

/// A variable in capitals, else in small letters, and its value; `None` where it is empty.
fn find_variable(environment: &Environment, name: &str) -> Option<(String, Secret)> {
    let names = [name.to_owned(), name.to_ascii_lowercase()];
    names.into_iter().find_map(|name| {
        let value = environment.get_variable(&name)?.trim();
        (!value.is_empty()).then(|| (name.clone(), Secret::new(value)))
    })
}

fn is_proxy_address(written: &str) -> bool {
    let matcher = Matcher::builder().all(written.to_owned()).build();
    matcher
        .intercept(&Uri::from_static("https://provider.example"))
        .is_some()
}

/// The certificates of `ca_file`; none where it is not set.
fn read_certificates(s: &mut Section) -> Vec<CertificateDer<'static>> {
    let key = "ca_file";
    s.explain_unset("those of the system alone");
    let Some(path) = s.read_option::<String>(key, Visibility::Plain) else {
        return Vec::new();
    };
    let read =
        CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let message = match read {
        Err(error) => format!("cannot be read: {error}"),
        Ok(found) => {
            let mut roots = RootCertStore::empty();
            if !found.is_empty() && found.iter().all(|it| roots.add(it.clone()).is_ok()) {
                return found;
            }
            "must be a file of certificates in PEM".to_owned()
        }
    };
    s.refuse_text(key, &path, message);
    Vec::new()
}

/// Whether a host is `localhost`, a name without a dot, or an address of this machine or of a private network.
fn is_private_host(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.');
    match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V4(ip)) => {
            let is_shared = matches!(ip.octets(), [100, 64..=127, ..]);
            let is_local = ip.is_loopback() || ip.is_link_local() || ip.is_unspecified();
            is_local || is_shared || ip.is_private()
        }
        Ok(IpAddr::V6(ip)) => {
            let is_local = ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified();
            is_local || ip.is_unique_local()
        }
        Err(_) => !host.contains('.') || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests;
