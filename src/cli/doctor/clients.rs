//! Where the clients of this user point: by their variables, and by the base URLs in their files.

use std::{collections::BTreeSet, fs, net::SocketAddr, path::Path, sync::LazyLock};

use regex::Regex;
use reqwest::Url;

use super::{
    Finding,
    machine::{Listener, find_listener},
};
use crate::{
    cli::{clients::list_clients, find_reachable},
    config::{Config, Environment},
};

const MAX_FILE_BYTES: u64 = 1 << 20;

const VARIABLES: [&str; 3] = ["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE"];

static BASE_URL: LazyLock<Regex> = LazyLock::new(|| {
    let key =
        r#"(?i)(?:base_?url|api[_-]?base|api_url|_host)["']?\s*[:=]\s*["']?(https?://[^\s"',}]+)"#;
    Regex::new(key).expect("a test looks with it")
});

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
fn find_base_urls(environment: &Environment) -> BTreeSet<(&'static str, String, String)> {
    let variables = VARIABLES.into_iter().filter_map(|name| {
        let url = environment.get_variable(name)?.to_owned();
        Some(("environment", name.to_owned(), url))
    });
    let files = list_clients().flat_map(|client| {
        let found = client
            .files
            .iter()
            .filter_map(|file| file.find(environment));
        found.map(|path| (client.title, path))
    });
    let in_files = files.flat_map(|(client, path)| {
        let shown = path.display().to_string();
        read_base_urls(&path)
            .into_iter()
            .map(move |url| (client, shown.clone(), url))
    });
    variables.chain(in_files).collect()
}

/// None where the file is absent, too large or no text.
fn read_base_urls(path: &Path) -> Vec<String> {
    let is_fit = fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() <= MAX_FILE_BYTES);
    let text = is_fit
        .then(|| fs::read_to_string(path).ok())
        .flatten()
        .unwrap_or_default();
    let urls = BASE_URL
        .captures_iter(&text)
        .filter_map(|it| Some(it.get(1)?.as_str().to_owned()));
    urls.collect()
}

/// The address of a URL that leads to this machine.
fn find_local_address(url: &str) -> Option<SocketAddr> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?.trim_matches(['[', ']']);
    let host = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    let address = SocketAddr::new(host.parse().ok()?, url.port_or_known_default()?);
    address.ip().is_loopback().then_some(address)
}
