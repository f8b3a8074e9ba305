//! Where the clients of this user point, and whether a proxy answers there.

use std::{collections::BTreeSet, net::SocketAddr};

use reqwest::Url;

use super::{
    Finding,
    machine::{Listener, find_listener},
};
use crate::{
    cli::{
        clients::addresses::{find_files, find_variables},
        find_reachable,
    },
    config::{Config, Environment},
};

/// What points to an address of this machine, and whether a proxy answers there.
pub(super) async fn check_clients(
    config: &Config,
    environment: &Environment,
    listener: &Listener,
) -> Vec<Finding> {
    let own = find_reachable(config.server.listen);
    let mut found = Vec::new();
    for (client, place, url) in find_base_urls(environment) {
        let Some(address) = find_local_address(&url) else {
            continue;
        };
        let is_own = address.port() == own.port();
        let other = if is_own {
            None
        } else {
            Some(find_listener(address).await)
        };
        let told = format!("{place} points to http://{address}");
        found.push(match other.as_ref().unwrap_or(listener) {
            Listener::Plimsoll => Finding::ok(client, format!("{told}, where a proxy runs")),
            Listener::Another => Finding::warning(
                client,
                format!("{told}, which is another program than this proxy"),
                format!("write http://{own} there if the proxy is meant"),
            ),
            _ if is_own => Finding::fault(
                client,
                format!("{told}, and no proxy runs there"),
                "start it with plimsoll; or take the address out, and the client asks its provider directly",
            ),
            _ => Finding::fault(
                client,
                format!("{told}, where nothing listens"),
                format!("write http://{own}, where this proxy listens, or start one with --listen {address}"),
            ),
        });
    }
    found
}

/// Who has a base URL, where it stands, and the URL.
fn find_base_urls(environment: &Environment) -> BTreeSet<(&'static str, String, Url)> {
    let variables = find_variables(environment).into_iter();
    let mut found: BTreeSet<_> = variables
        .map(|(name, url)| ("environment", format!("the variable {name}"), url))
        .collect();
    for file in find_files(environment) {
        let place = file.path.display().to_string();
        let urls = file.urls.into_iter();
        found.extend(urls.map(|url| (file.client.title, place.clone(), url)));
    }
    found
}

/// The address of a URL that leads to this machine.
fn find_local_address(url: &Url) -> Option<SocketAddr> {
    let host = url.host_str()?.trim_matches(['[', ']']);
    let host = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    let address = SocketAddr::new(host.parse().ok()?, url.port_or_known_default()?);
    address.ip().is_loopback().then_some(address)
}
