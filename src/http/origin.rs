//! Where a request comes from. Without client keys, only this machine is admitted.
//!
//! SECURITY: without client keys anybody who reaches the port spends the user's money. A web page can reach it:
//! by a name that resolves to 127.0.0.1 (`Host` shows it), or by a plain cross-site request (`Origin` shows it).
//! So both headers must name a loopback address, on every path, or what `server.allowed_hosts` and
//! `server.allowed_origins` name.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{HOST, ORIGIN},
    request::Parts,
};

use super::{
    admission::Clients,
    cors::{PageAccess, is_page_path},
};
use crate::{config::ServerConfig, error::Failure, provider::headers::tells_of_forwarding};

/// A browser states here how the page that makes the request relates to this host.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a request is from this machine: without client keys the proxy listens there only, no reverse proxy has
/// forwarded the request, and it names this machine by a loopback address (a container does not).
pub fn is_local_client(clients: &Clients, parts: &Parts) -> bool {
    !clients.have_keys() && !is_forwarded(&parts.headers) && named_hosts(parts).all(is_loopback)
}

/// Whether a reverse proxy forwarded the request. A request through a proxy that adds no header looks like one of a
/// local client.
fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().any(tells_of_forwarding)
}

/// Refuses a request that may come from a web page of another machine. Where clients need keys, nothing is refused here.
///
/// # Errors
/// `Host` or `Origin` is not this machine, and not allowed.
pub fn check_local_origin(
    clients: &Clients,
    server: &ServerConfig,
    access: &PageAccess,
    parts: &Parts,
) -> Result<(), Failure> {
    if clients.have_keys() {
        return Ok(());
    }
    let mut hosts = named_hosts(parts).peekable();
    let is_allowed = |host: &str| is_loopback(host) || names_host(&server.allowed_hosts, host);
    if hosts.peek().is_none() || !hosts.all(is_allowed) {
        return Err(Failure::ForeignHost);
    }
    if access.is_allowed() {
        return Ok(());
    }
    let is_local = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        let host = origin.strip_prefix("http://");
        host.or_else(|| origin.strip_prefix("https://"))
            .is_some_and(is_loopback)
    };
    // A page can make a browser GET without an `Origin`; browsers report it in this header.
    let mut sites = parts.headers.get_all(FETCH_SITE).iter();
    if sites.any(|site| site == "cross-site") || !parts.headers.get_all(ORIGIN).iter().all(is_local)
    {
        return Err(if is_page_path(parts.uri.path()) {
            Failure::ForeignOrigin
        } else {
            Failure::ForeignPage
        });
    }
    Ok(())
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
    if sites.iter().all(is_same_site) && parts.headers.get_all(ORIGIN).iter().all(is_same_origin) {
        Ok(())
    } else {
        Err(Failure::ForeignPage)
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

/// Whether a host with or without a port has one of these names.
fn names_host(names: &[String], host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
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
    use super::{is_loopback, is_origin_of};

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
