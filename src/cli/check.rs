//! `plimsoll check`: whether the settings can be used, what they come to, and what is doubtful.
//!
//! Never shows a key: neither ours, nor a client's, nor its digest.

use std::io::Write;

use super::{Failed, models, table};
use crate::{
    compaction,
    config::{
        AddTools, Auth, CatalogueConfig, Config, Environment, Flags, GuardConfig, RetryConfig,
        StorePlace, load, unknown_windows, warnings,
    },
    guard::budget,
    provider::{Registry, Source, Target},
    recovery::Language,
};

pub(super) fn run(
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> Result<(), Failed> {
    let loaded = load(flags, environment)?;
    let config = &loaded.config;
    let registry = Registry::new(config).map_err(Failed::Start)?;
    let file = loaded.file.as_ref();
    let source = file.map_or("built in".to_owned(), |path| path.display().to_string());
    table::write(out, &server(config, source))?;
    writeln!(out, "\nproviders")?;
    table::write(out, &providers(config))?;
    writeln!(out, "\nmodels")?;
    table::write(out, &models::rows(config, &registry))?;
    if !config.aliases.is_empty() {
        writeln!(out, "\naliases")?;
        table::write(out, &aliases(config))?;
    }
    if !config.clients.is_empty() {
        writeln!(out, "\nclients")?;
        table::write(out, &clients(config))?;
    }
    writeln!(out, "\nretry")?;
    table::write(out, &retry(&config.retry))?;
    writeln!(out, "\ncatalogue")?;
    table::write(out, &catalogue(&config.catalogue))?;
    writeln!(out, "\nguard")?;
    table::write(out, &guard(&config.guard))?;
    writeln!(out, "\nrecovery")?;
    table::write(out, &recovery(config))?;
    writeln!(out, "\ncompaction")?;
    table::write(out, &compaction(config, &registry))?;
    writeln!(out, "\nstore")?;
    table::write(out, &store(config))?;
    writeln!(out, "\ntraces")?;
    table::write(out, &traces(config))?;
    let mut doubts = loaded.warnings;
    doubts.extend(warnings(config, &registry));
    doubts.extend(unknown_windows(&registry));
    if !doubts.is_empty() {
        writeln!(out, "\nwarnings")?;
    }
    for doubt in &doubts {
        writeln!(out, "  {doubt}")?;
    }
    writeln!(out, "\n{}", verdict(doubts.len()))?;
    out.flush()?;
    Ok(())
}

fn verdict(warnings: usize) -> String {
    match warnings {
        0 => "The settings are valid.".to_owned(),
        1 => "The settings are valid, with 1 warning.".to_owned(),
        more => format!("The settings are valid, with {more} warnings."),
    }
}

fn row(name: &str, value: impl ToString) -> [String; 2] {
    [name.to_owned(), value.to_string()]
}

fn server(config: &Config, source: String) -> Vec<[String; 2]> {
    let server = &config.server;
    let clients: Vec<_> = config.clients.keys().map(String::as_str).collect();
    let clients = match clients.is_empty() {
        true => "anyone on this machine, without a key".to_owned(),
        false => clients.join(", "),
    };
    let mut rows = vec![
        row("settings", source),
        row("listen", server.listen),
        row("clients", clients),
        row("data_dir", server.data_dir.display()),
    ];
    if let Some(name) = &config.default_provider {
        rows.push(row("default_provider", name));
    }
    rows
}

fn providers(config: &Config) -> Vec<[String; 5]> {
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

fn aliases(config: &Config) -> Vec<[String; 2]> {
    let rows = config.aliases.iter();
    rows.map(|(name, stands_for)| row(name, stands_for))
        .collect()
}

fn clients(config: &Config) -> Vec<[String; 4]> {
    let heading = ["client", "models", "paths", "in flight"];
    let mut rows = vec![heading.map(str::to_owned)];
    for (name, client) in &config.clients {
        let most = client.max_in_flight;
        rows.push([
            name.clone(),
            client.models.join(", "),
            client.paths.join(", "),
            most.map_or("any number".to_owned(), |most| most.to_string()),
        ]);
    }
    rows
}

fn retry(retry: &RetryConfig) -> Vec<[String; 2]> {
    vec![
        row("max_retries", retry.max_retries),
        row("max_attempts", retry.max_attempts),
        row("max_time_ms", retry.max_time.as_millis()),
        row("base_delay_ms", retry.base_delay.as_millis()),
        row("max_delay_ms", retry.max_delay.as_millis()),
    ]
}

/// The host alone of its address: a query can hold a key.
fn catalogue(catalogue: &CatalogueConfig) -> Vec<[String; 2]> {
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

fn guard(guard: &GuardConfig) -> Vec<[String; 2]> {
    let low_water = guard.low_water.map_or(
        "0.5 for windows of up to 64k, else 0.7".to_owned(),
        |share| share.to_string(),
    );
    let cap = guard.max_prompt_tokens;
    let clear = &guard.clear;
    let at_least = clear.at_least.map_or(
        "0.2 for windows of up to 64k, else 0.1".to_owned(),
        |share| share.to_string(),
    );
    vec![
        row("enabled", guard.enabled),
        row("max_tool_result_chars", guard.max_tool_result_chars),
        row("truncate_head_chars", guard.truncate_head_chars),
        row("truncate_tail_chars", guard.truncate_tail_chars),
        row("reserve_tokens", guard.reserve_tokens),
        row("low_water", low_water),
        row("chars_per_token", guard.chars_per_token),
        row(
            "max_prompt_tokens",
            cap.map_or("no cap".to_owned(), |cap| cap.to_string()),
        ),
        row("clear_tools", clear.enabled),
        row("clear_tools_at", clear.at),
        row("clear_at_least", at_least),
        row("keep_tool_rounds", clear.keep_rounds),
        row("keep_tool_steps", clear.keep_steps),
        row("exclude_tools", clear.exclude.join(", ")),
        row("clear_tool_inputs", clear.inputs),
    ]
}

fn recovery(config: &Config) -> Vec<[String; 2]> {
    let recovery = &config.recovery;
    let language = match recovery.language {
        None => "each conversation's own",
        Some(Language::English) => "English",
        Some(Language::Chinese) => "Chinese",
    };
    let tools = match recovery.tools {
        AddTools::WhenDue => "from the first prompt on",
        AddTools::Always => "always",
        AddTools::Never => "never",
    };
    let folder = recovery.prompts_dir.as_ref();
    let prompts = folder.map_or("built in".to_owned(), |path| path.display().to_string());
    let mut rows = vec![
        row("enabled", recovery.enabled),
        row("language", language),
        row("tools", tools),
        row("caution_cadence", recovery.caution_cadence),
        row("critical_countdown", recovery.critical_countdown),
        row("max_rounds", recovery.max_rounds),
        row("max_tool_result_chars", recovery.max_tool_result_chars),
        row("prompts", prompts),
    ];
    let models = config.models.iter();
    let models = models.filter(|(_, model)| model.recovery == Some(false));
    let clients = config.clients.iter().filter(|(_, client)| !client.recovery);
    for (kind, names) in [
        (
            "off for models",
            models.map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ),
        (
            "off for clients",
            clients.map(|(name, _)| name.as_str()).collect(),
        ),
    ] {
        if !names.is_empty() {
            rows.push(row(kind, names.join(", ")));
        }
    }
    rows
}

/// What makes summaries, and from how many tokens on.
fn compaction(config: &Config, registry: &Registry) -> Vec<[String; 2]> {
    let compaction = &config.compaction;
    let auto = match compaction.auto {
        true => "on, unless a session or a request says otherwise",
        false => "off, unless a session or a request asks for it",
    };
    let [english, chinese] = compaction.strategy().names();
    let share = compaction.threshold;
    let model = compaction.model.as_deref();
    let mut rows = vec![
        row("auto", auto),
        row("threshold", format!("{share} ({english}, {chinese})")),
    ];
    for name in config.models.keys().filter(|name| !name.ends_with('*')) {
        let Ok(target) = registry.resolve(name, None) else {
            continue;
        };
        let from = match target.window.source {
            Source::Assumed => "never by itself, since nobody knows its window".to_owned(),
            _ => format!("from {} tokens on", threshold(&target, config)),
        };
        rows.push(row(&format!("  {name}"), from));
    }
    let wait = match compaction.wait.as_millis() {
        0 => "no request waits for one".to_owned(),
        ms => ms.to_string(),
    };
    rows.extend([
        row(
            "summarised by",
            model.unwrap_or("the conversation's own model"),
        ),
        row("max_summary_tokens", compaction.max_summary_tokens),
        row("timeout_ms", compaction.timeout.as_millis()),
        row("wait_ms", wait),
        row("max_running", compaction.max_running),
    ]);
    rows
}

/// Of a request that says nothing of its answer's length.
fn threshold(target: &Target, config: &Config) -> u32 {
    let window = target.window.tokens;
    let inside = target.provider.config.profile.answer_inside_window;
    let reserve = if inside {
        budget::default_reserve(window, &config.guard)
    } else {
        0
    };
    let budget = budget::Budget {
        window,
        reserve,
        tokens: window - reserve,
    };
    compaction::threshold(&budget, &config.compaction)
}

/// The origin alone of its address: what follows it can hold a key.
fn traces(config: &Config) -> Vec<[String; 2]> {
    let traces = &config.traces;
    let Some(endpoint) = &traces.endpoint else {
        return vec![row("endpoint", "none: no traces are made")];
    };
    let origin = reqwest::Url::parse(endpoint).map(|url| url.origin().ascii_serialization());
    vec![
        row("endpoint", origin.unwrap_or_default()),
        row("service_name", &traces.service_name),
        row("sample", traces.sample),
    ]
}

/// Hosts and ports alone of its address: it can hold a password.
fn store(config: &Config) -> Vec<[String; 2]> {
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

#[cfg(test)]
mod tests;
