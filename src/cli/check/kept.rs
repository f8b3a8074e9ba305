//! What is kept of sessions, and what is told to a collector of traces.

use super::{is_set, or, row};
use crate::config::{Config, StorePlace};

/// The origin alone of its address: what follows it can hold a key.
pub(super) fn traces(config: &Config) -> Vec<[String; 2]> {
    let traces = &config.traces;
    let endpoint = traces.endpoint.as_ref().map(|endpoint| {
        let origin = reqwest::Url::parse(endpoint).map(|url| url.origin().ascii_serialization());
        origin.unwrap_or_default()
    });
    vec![
        row("endpoint", or(endpoint, "none: no traces are made")),
        row("headers", is_set(traces.headers.is_some())),
        row("service_name", &traces.service_name),
        row("sample", traces.sample),
    ]
}

/// Hosts and ports alone of its address: it can hold a password.
pub(super) fn store(config: &Config) -> Vec<[String; 2]> {
    let store = &config.store;
    let encrypted = match store.encrypt_key {
        Some(_) => "yes",
        None => "no",
    };
    let mut rows = match &store.place {
        StorePlace::Memory => vec![row("place", "memory, until the proxy ends")],
        StorePlace::File => vec![row("place", "a file in data_dir")],
        StorePlace::Redis(server) => {
            let kind = match (server.is_tls(), server.cluster) {
                (false, false) => "a server",
                (true, false) => "a server, with TLS",
                (false, true) => "a cluster",
                (true, true) => "a cluster, with TLS",
            };
            vec![
                row("place", format!("{kind}: {}", server.hosts().join(", "))),
                row("prefix", &server.prefix),
                row("password", is_set(server.has_password())),
                row(
                    "ca_file",
                    or(
                        server.ca_file.as_ref().map(|path| path.display()),
                        "those of the system",
                    ),
                ),
            ]
        }
    };
    // A server bounds what it holds itself.
    if !matches!(store.place, StorePlace::Redis(_)) {
        rows.push(row("max_bytes", store.max_bytes));
    }
    rows.push(row("max_sessions", store.max_sessions));
    rows.push(row("max_age_s", store.max_age.as_secs()));
    rows.push(row("timeout_ms", store.timeout.as_millis()));
    rows.push(row("encrypted", encrypted));
    rows
}
