//! `plimsoll check`: validates the settings, and shows each value with its source, the models, and warnings.
//!
//! SECURITY: it never shows a key. [`Config::settings`] has no values that may be one (`config/setting.rs`).

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{CommandError, CommandResult, models, table::write_table};
use crate::{
    compaction,
    config::{
        Config, Environment, Flags, LoadedConfig, Problem, Problems, Setting, StorePlace,
        load_config,
    },
    guard::{Policy, budget::default_budget},
    provider::{Registry, collect_warnings, find_unknown_windows, fit_body_to_windows},
};

/// Settings whose defaults come from `guard.preset`.
const OF_PRESET: [&str; 2] = ["guard.max_prompt_tokens", "guard.system_share"];

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(super) struct CheckArgs {
    /// Show every setting, also those at their defaults
    #[arg(long)]
    all: bool,
    /// Print JSON; settings that cannot be used are listed in it, with the exit code 2
    #[arg(long)]
    json: bool,
}

pub(super) fn run(
    args: CheckArgs,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let mut loaded = match load_config(flags, environment) {
        Err(problems) if args.json => {
            writeln!(out, "{}", json!({"valid": false, "problems": problems.0}))?;
            return Err(CommandError::Settings(Problems(Vec::new())));
        }
        loaded => loaded?,
    };
    fit_body_to_windows(&mut loaded.config);
    let config = &loaded.config;
    let registry = Registry::new(config).map_err(CommandError::Start)?;
    let mut warnings = loaded.unset_variables.clone();
    warnings.extend(list_warnings(&loaded, &registry));
    let is_shown = |setting: &&Setting| args.all || setting.origin.is_some();
    let shown: Vec<&Setting> = config.settings.iter().filter(is_shown).collect();
    if args.json {
        let text = json!({
            "valid": true,
            "file": loaded.file,
            "settings": shown,
            "warnings": warnings,
        });
        return Ok(writeln!(out, "{text}")?);
    }
    match warnings.len() {
        0 => writeln!(out, "The settings are valid.\n")?,
        1 => writeln!(out, "The settings are valid, with 1 warning:\n")?,
        more => writeln!(out, "The settings are valid, with {more} warnings:\n")?,
    }
    for warning in &warnings {
        writeln!(out, "  {warning}")?;
    }
    if !warnings.is_empty() {
        writeln!(out)?;
    }
    match &loaded.file {
        Some(path) => writeln!(out, "settings of {}", path.display())?,
        None => writeln!(out, "settings, without a file")?,
    }
    write_table(out, &format_setting_rows(args, &shown, config, &registry))?;
    if !args.all {
        writeln!(out, "\nAll others are at their defaults; --all shows them.")?;
    }
    writeln!(out, "\nmodels")?;
    write_table(out, &models::format_model_rows(config, &registry))?;
    writeln!(out, "\n{}", registry.describe_catalogue())?;
    write_thresholds(out, config, &registry)?;
    let routes = config.list_routes();
    let routes = routes.iter().filter(|(_, route)| !route.reason.is_empty());
    let routes: Vec<_> = routes
        .map(|(key, route)| [key.clone(), route.describe()])
        .collect();
    if !routes.is_empty() {
        writeln!(out, "\nproxies")?;
        write_table(out, &routes)?;
    }
    Ok(out.flush()?)
}

/// What is doubtful in valid settings, but for variables that are not set.
pub(super) fn list_warnings(loaded: &LoadedConfig, registry: &Registry) -> Vec<Problem> {
    let mut warnings = loaded.warnings.clone();
    warnings.extend(collect_warnings(&loaded.config, registry));
    warnings.extend(find_unknown_windows(registry));
    warnings
}

/// Patterns of names that are shown of a provider of the proxy's own choice.
const MAX_PATTERNS: usize = 3;

/// Key, value and origin of each setting, by key.
fn format_setting_rows(
    args: CheckArgs,
    settings: &[&Setting],
    config: &Config,
    registry: &Registry,
) -> Vec<[String; 3]> {
    let row = |setting: &&Setting| {
        let key = setting.key.as_str();
        let origin = match &setting.origin {
            Some(origin) => origin,
            None if config.guard.preset.is_some() && OF_PRESET.contains(&key) => "guard.preset",
            None => "default",
        };
        [key, &describe_setting(setting, config, registry), origin].map(str::to_owned)
    };
    let mut rows: Vec<_> = settings.iter().map(row).collect();
    // These have no setting of their own, or none is written.
    if !config.guard.caps.is_empty() {
        let caps = config.guard.caps.iter();
        let caps: Vec<_> = caps.map(|(name, cap)| format!("{name} {cap}")).collect();
        rows.push(["guard.caps", &caps.join(", "), ""].map(str::to_owned));
    }
    if config.clients.is_empty() && args.all {
        let anyone = "anyone on this machine, without a key";
        rows.push(["clients", anyone, ""].map(str::to_owned));
    }
    for (name, provider) in config.providers.iter().filter(|(_, it)| it.is_known) {
        let (key, from) = (
            format!("providers.{name}"),
            "server.known_providers".to_owned(),
        );
        let (shown, more) = provider
            .models
            .split_at(provider.models.len().min(MAX_PATTERNS));
        let mut value = match shown {
            [] => "with the client's own login, for requests with a ChatGPT login".to_owned(),
            _ => format!("with the client's own key, for {}", shown.join(", ")),
        };
        if !more.is_empty() {
            value.push_str(&format!(" and {} more patterns", more.len()));
        }
        rows.push([key, value, from]);
    }
    rows.sort();
    rows.insert(0, ["setting", "value", "from"].map(str::to_owned));
    rows
}

/// The value of a setting, with what follows from other settings.
fn describe_setting(setting: &Setting, config: &Config, registry: &Registry) -> String {
    let (guard, compaction) = (&config.guard, &config.compaction);
    match (setting.key.as_str(), &config.store.place) {
        ("default_provider", _) => match registry.find_default_provider() {
            Ok(provider) => provider.name.to_string(),
            Err(_) => "none: a name that no provider claims is refused".to_owned(),
        },
        ("server.data_dir", _) => match config.server.data_dir.path() {
            Some(path) => path.display().to_string(),
            None => "memory: no folder can be written".to_owned(),
        },
        ("server.max_body_bytes", _) => config.server.max_body_bytes.to_string(),
        ("guard.system_share", _) => format!("{:.3}", guard.system_share),
        ("guard.max_prompt_tokens", _) => guard
            .max_prompt_tokens
            .map_or("no cap".to_owned(), |tokens| tokens.to_string()),
        ("compaction.threshold", _) => {
            format!("{} ({})", compaction.threshold, compaction.strategy_name())
        }
        ("traces.endpoint", _) if config.traces.endpoint.is_none() => {
            "none: no traces are made".to_owned()
        }
        ("store.url", StorePlace::Redis(server)) => {
            let cluster = if server.cluster { ", a cluster" } else { "" };
            let tls = if server.is_tls() { ", with TLS" } else { "" };
            format!("{}{cluster}{tls}", server.list_hosts().join(", "))
        }
        _ => format_value(setting),
    }
}

fn format_value(setting: &Setting) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    match &setting.value {
        _ if setting.hidden => "set, not shown".to_owned(),
        Value::Null => setting.unset.to_owned(),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        value => plain(value),
    }
}

/// Writes the thresholds of compaction, in tokens, for the models in the settings. They apply to requests without
/// an answer cap.
fn write_thresholds(out: &mut impl Write, config: &Config, registry: &Registry) -> io::Result<()> {
    let names = config.models.keys().filter(|name| !name.ends_with('*'));
    let rows = names.filter_map(|name| {
        let target = registry.resolve_target(name, None).ok()?;
        let Some(window) = target.window.known_tokens() else {
            let never = "never by itself, since its window is not known";
            return Some([name.clone(), never.to_owned()]);
        };
        let budget = default_budget(&Policy {
            window_is_guessed: false,
            input_limit: target.window.input,
            ..Policy::new(target.profile(), window, target.token_rule(), &config.guard)
        });
        let threshold = compaction::compute_threshold(&budget, &config.compaction);
        Some([name.clone(), format!("from {threshold} tokens on")])
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    let heading = if config.compaction.auto {
        "summaries"
    } else {
        "summaries (compaction.auto is off: where a session or a request asks for one)"
    };
    writeln!(out, "\n{heading}")?;
    write_table(out, &rows)
}

#[cfg(test)]
mod tests;
