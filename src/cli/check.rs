//! `plimsoll check`: whether the settings can be used, what they come to, where each comes from, and what
//! is doubtful.
//!
//! SECURITY: never shows a key. What may be one was taken out of [`Config::settings`] when the settings were
//! read (`config/setting.rs`).

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde_json::Value;

use super::{Failed, models, table};
use crate::{
    compaction,
    config::{Auth, Config, Environment, Flags, Setting, StorePlace, load},
    guard::budget,
    provider::{Registry, Target, fit_body_to_windows, unknown_windows, warnings},
};

/// What settings that the user left open, or that depend on others, come to; by key.
type Effective = BTreeMap<String, String>;

pub(super) fn run(
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> Result<(), Failed> {
    let mut loaded = load(flags, environment)?;
    fit_body_to_windows(&mut loaded.config);
    let config = &loaded.config;
    let registry = Registry::new(config).map_err(Failed::Start)?;
    match &loaded.file {
        Some(path) => writeln!(out, "settings of {}", path.display())?,
        None => writeln!(out, "settings, without a file")?,
    }
    table::write(out, &setting_rows(config, effective(config, &registry)))?;
    writeln!(out, "\nmodels")?;
    table::write(out, &models::rows(config, &registry))?;
    write_thresholds(out, config, &registry)?;
    let mut doubts = loaded.warnings;
    doubts.extend(warnings(config, &registry));
    doubts.extend(unknown_windows(&registry));
    if !doubts.is_empty() {
        writeln!(out, "\nwarnings")?;
    }
    for doubt in &doubts {
        writeln!(out, "  {doubt}")?;
    }
    let number = match doubts.len() {
        0 => String::new(),
        1 => ", with 1 warning".to_owned(),
        more => format!(", with {more} warnings"),
    };
    writeln!(out, "\nThe settings are valid{number}.")?;
    out.flush()?;
    Ok(())
}

/// Key, value and origin of each setting, by key.
fn setting_rows(config: &Config, mut effective: Effective) -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    for setting in &*config.settings {
        let value = effective
            .remove(&setting.key)
            .unwrap_or_else(|| format_value(setting));
        let origin = setting.origin.as_deref().unwrap_or("default");
        rows.push([setting.key.clone(), value, origin.to_owned()]);
    }
    // What is set in no file, and still holds.
    let rest = effective.into_iter();
    rows.extend(rest.map(|(key, value)| [key, value, String::new()]));
    rows.sort();
    rows.insert(0, ["setting", "value", "from"].map(str::to_owned));
    rows
}

fn format_value(setting: &Setting) -> String {
    match &setting.value {
        _ if setting.hidden => "set, not shown".to_owned(),
        Value::Null => "not set".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => {
            let values = values.iter().map(|value| match value {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            });
            values.collect::<Vec<_>>().join(", ")
        }
        value => value.to_string(),
    }
}

fn effective(config: &Config, registry: &Registry) -> Effective {
    let (guard, compaction) = (&config.guard, &config.compaction);
    let mut all = Effective::new();
    let mut set = |key: &str, value: &dyn ToString| all.insert(key.to_owned(), value.to_string());
    match registry.fallback() {
        Ok(provider) => set("default_provider", &provider.name),
        Err(_) => set(
            "default_provider",
            &"none: a name that no provider claims is refused",
        ),
    };
    set("server.max_body_bytes", &config.server.max_body_bytes);
    set("guard.system_share", &format!("{:.3}", guard.system_share));
    match guard.max_prompt_tokens {
        Some(tokens) => set("guard.max_prompt_tokens", &tokens),
        None => set("guard.max_prompt_tokens", &"no cap"),
    };
    let caps = guard.caps.iter();
    let caps: Vec<_> = caps
        .map(|(name, tokens)| format!("{name} {tokens}"))
        .collect();
    if !caps.is_empty() {
        set("guard.caps", &caps.join(", "));
    }
    let [english, chinese] = compaction.strategy().names();
    let threshold = format!("{} ({english}, {chinese})", compaction.threshold);
    set("compaction.threshold", &threshold);
    set("store.max_sessions", &config.store.max_sessions);
    match &config.store.place {
        StorePlace::Redis(server) => {
            let cluster = if server.cluster { ", a cluster" } else { "" };
            let tls = if server.is_tls() { ", with TLS" } else { "" };
            let hosts = server.hosts().join(", ");
            set("store.url", &format!("{hosts}{cluster}{tls}"))
        }
        // A Redis server bounds its bytes itself.
        _ => set("store.max_bytes", &config.store.max_bytes),
    };
    // What follows the origin of an address can hold a key.
    let origin = |url: &String| reqwest::Url::parse(url).ok().map(|url| url.origin());
    match config.traces.endpoint.as_ref().and_then(origin) {
        Some(origin) => set("traces.endpoint", &origin.ascii_serialization()),
        None => set("traces.endpoint", &"none: no traces are made"),
    };
    if config.clients.is_empty() {
        set("clients", &"anyone on this machine, without a key");
    }
    let mut unset = vec![
        (
            "server.secret_env".to_owned(),
            "data_dir/secret, made on the first start",
        ),
        (
            "guard.low_water".to_owned(),
            "0.5 for windows of up to 64k, else 0.7",
        ),
        (
            "guard.clear_at_least".to_owned(),
            "0.2 for windows of up to 64k, else 0.1",
        ),
        ("recovery.prompts_dir".to_owned(), "built in"),
        (
            "compaction.model".to_owned(),
            "the conversation's own model",
        ),
        ("catalogue.url".to_owned(), "the one built in"),
        ("store.ca_file".to_owned(), "those of the system"),
    ];
    for (name, provider) in &config.providers {
        let credentials = match provider.auth {
            Auth::Client => "the client's own key",
            Auth::Key(_) => "a key of the settings",
            Auth::None => "none",
        };
        for (setting, value) in [
            ("auth", credentials),
            ("base_url", "built in"),
            ("profile", provider.profile.name),
            ("key_header", "authorization"),
            ("ask_models", "if not in the catalogue"),
        ] {
            unset.push((format!("providers.{name}.{setting}"), value));
        }
    }
    for (key, value) in unset {
        let mut settings = config.settings.iter();
        if settings.any(|setting| setting.key == key && setting.value.is_null()) {
            set(&key, &value);
        }
    }
    all
}

/// From how many tokens on the conversations of models that the settings name are summarised.
fn write_thresholds(out: &mut impl Write, config: &Config, registry: &Registry) -> io::Result<()> {
    let names = config.models.keys().filter(|name| !name.ends_with('*'));
    let rows = names.filter_map(|name| {
        let target = registry.resolve(name, None).ok()?;
        let from = match target.window.known() {
            None => "never by itself, since nobody knows its window".to_owned(),
            Some(_) => format!("from {} tokens on", threshold(&target, config)),
        };
        Some([name.clone(), from])
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nsummaries")?;
    table::write(out, &rows)
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

#[cfg(test)]
mod tests;
