//! Who asks, who is asked, and how often.

use super::{is_set, list, or, row};
use crate::{
    config::{AdminConfig, Auth, CatalogueConfig, Config, ModelConfig, RetryConfig},
    provider::Registry,
};

pub(super) fn server(config: &Config, registry: &Registry, source: String) -> Vec<[String; 2]> {
    let server = &config.server;
    let clients: Vec<_> = config.clients.keys().map(String::as_str).collect();
    let clients = match clients.is_empty() {
        true => "anyone on this machine, without a key".to_owned(),
        false => clients.join(", "),
    };
    let default = match registry.fallback() {
        Ok(provider) => provider.name.to_string(),
        Err(_) => "none: a name that no provider claims is refused".to_owned(),
    };
    let secret = match server.secret {
        Some(_) => "of an environment variable, not shown",
        None => "of data_dir/secret, made on the first start",
    };
    vec![
        row("settings", source),
        row("listen", server.listen),
        row("clients", clients),
        row("default_provider", default),
        row("max_body_bytes", server.max_body_bytes),
        row("max_bytes_in_flight", server.max_bytes_in_flight),
        row("max_connections", server.max_connections),
        row("max_header_bytes", server.max_header_bytes),
        row("header_timeout_ms", server.header_timeout.as_millis()),
        row("body_timeout_ms", server.body_timeout.as_millis()),
        row("drain_timeout_ms", server.drain_timeout.as_millis()),
        row("data_dir", server.data_dir.display()),
        row("secret", secret),
    ]
}

pub(super) fn admin(admin: &AdminConfig) -> Vec<[String; 2]> {
    vec![
        row("key", is_set(admin.key_sha256.is_some())),
        row("show_content", admin.show_content),
        row("local", admin.local),
    ]
}

pub(super) fn providers(config: &Config) -> Vec<[String; 5]> {
    let heading = ["provider", "base_url", "credentials", "profile", "models"];
    let mut rows = vec![heading.map(str::to_owned)];
    for (name, provider) in &config.providers {
        let credentials = match provider.auth {
            Auth::Client => "the client's own",
            Auth::Key(_) => "a key of ours",
            Auth::None => "none",
        };
        rows.push([
            name.clone(),
            provider.base_url.clone().unwrap_or("built in".to_owned()),
            credentials.to_owned(),
            provider.profile.name.to_owned(),
            match provider.models.is_empty() {
                true => format!("{name}/…"),
                false => format!("{name}/…, {}", provider.models.join(", ")),
            },
        ]);
    }
    rows
}

/// How each provider is called; the built-in one is not, since it needs no network.
pub(super) fn calls(config: &Config) -> Vec<[String; 10]> {
    let heading = [
        "provider",
        "key_header",
        "headers",
        "query",
        "connect_timeout_ms",
        "first_byte_timeout_ms",
        "idle_timeout_ms",
        "ask_models",
        "breaker_failures",
        "breaker_open_ms",
    ];
    let remote = config.providers.iter();
    let remote = remote.filter(|(_, provider)| provider.base_url.is_some());
    let rows = remote.map(|(name, provider)| {
        let failures = match provider.breaker_failures {
            0 => "never opens".to_owned(),
            failures => failures.to_string(),
        };
        [
            name.clone(),
            match provider.auth {
                Auth::None => "none".to_owned(),
                _ => or(provider.key_header.as_ref(), "authorization"),
            },
            // A value may be a key.
            list(provider.headers.keys().map(http::HeaderName::as_str)),
            is_set(provider.query.is_some()).to_owned(),
            provider.connect_timeout.as_millis().to_string(),
            provider.first_byte_timeout.as_millis().to_string(),
            provider.idle_timeout.as_millis().to_string(),
            or(provider.ask_models, "if not in the catalogue"),
            failures,
            provider.breaker_open.as_millis().to_string(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    match rows.is_empty() {
        true => rows,
        false => [vec![heading.map(str::to_owned)], rows].concat(),
    }
}

/// What is told of all models of a pattern, since the list of models has none of them by name.
pub(super) fn patterns(config: &Config) -> Vec<[String; 2]> {
    let patterns = config.models.iter().filter(|(name, _)| name.ends_with('*'));
    patterns
        .map(|(name, told)| row(name, settings(told)))
        .collect()
}

/// What is told of a model, with a comma between two settings.
fn settings(told: &ModelConfig) -> String {
    let set = |name: &str, value: Option<String>| Some(format!("{name} {}", value?));
    let tokens = |tokens: Option<u32>| tokens.map(|tokens| tokens.to_string());
    let names = |names: &[String]| (!names.is_empty()).then(|| names.join(" "));
    let places = told.deployments.iter();
    let places: Vec<_> = places
        .map(|one| format!("{}:{}", one.model, one.weight))
        .collect();
    let all = [
        set("provider", told.provider.clone()),
        set("context_length", tokens(told.context_length)),
        set("input_length", tokens(told.input_length)),
        set("optimal_max_tokens", tokens(told.optimal_max_tokens)),
        set("critical_max_tokens", tokens(told.critical_max_tokens)),
        set("caution_cadence", tokens(told.caution_cadence)),
        set("recovery", told.recovery.map(|acts| acts.to_string())),
        set("deployments", names(&places)),
        set("fallback", names(&told.fallback)),
        set("larger", told.larger.clone()),
    ];
    let all: Vec<_> = all.into_iter().flatten().collect();
    list(all.iter().map(String::as_str))
}

pub(super) fn aliases(config: &Config) -> Vec<[String; 2]> {
    let rows = config.aliases.iter();
    rows.map(|(name, stands_for)| row(name, stands_for))
        .collect()
}

pub(super) fn clients(config: &Config) -> Vec<[String; 4]> {
    let heading = ["client", "models", "paths", "in flight"];
    if config.clients.is_empty() {
        return Vec::new();
    }
    let mut rows = vec![heading.map(str::to_owned)];
    for (name, client) in &config.clients {
        let most = client.max_in_flight;
        rows.push([
            name.clone(),
            client.models.join(", "),
            client.paths.join(", "),
            or(most, "any number"),
        ]);
    }
    rows
}

pub(super) fn retry(retry: &RetryConfig) -> Vec<[String; 2]> {
    vec![
        row("max_retries", retry.max_retries),
        row("max_attempts", retry.max_attempts),
        row("max_time_ms", retry.max_time.as_millis()),
        row("base_delay_ms", retry.base_delay.as_millis()),
        row("max_delay_ms", retry.max_delay.as_millis()),
    ]
}

/// The host alone of its address: a query can hold a key.
pub(super) fn catalogue(catalogue: &CatalogueConfig) -> Vec<[String; 2]> {
    let url = catalogue.url.as_deref();
    let host = url.map(|url| {
        let uri = url.parse::<http::Uri>().ok();
        let host = uri.as_ref().and_then(http::Uri::host);
        format!("{}, and the one built in", host.unwrap_or("fetched"))
    });
    vec![
        row("from", host.unwrap_or("the one built in".to_owned())),
        row("max_age_s", catalogue.max_age.as_secs()),
        row("learnt_max_age_s", catalogue.learnt_max_age.as_secs()),
    ]
}
