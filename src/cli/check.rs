//! `plimsoll check`: whether the settings can be used, what they come to, and what is doubtful.
//!
//! Never shows a key: neither ours, nor a client's, nor its digest.

use std::io::Write;

use super::{Failed, models, table};
use crate::{
    config::{
        AddTools, Auth, CatalogueConfig, Config, Environment, Flags, GuardConfig, RetryConfig,
        StorePlace, load, unknown_windows, warnings,
    },
    provider::Registry,
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
    writeln!(out, "\nstore")?;
    table::write(out, &store(config))?;
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
    rows.push(row("encrypted", encrypted));
    rows
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::run;
    use crate::{
        cli::Failed,
        config::{Environment, Flags},
    };

    fn checked(text: &str) -> Result<String, Failed> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, text).unwrap();
        let flags = Flags {
            config: Some(path),
            listen: None,
        };
        let environment = Environment::from_iter([("KEY", "sk-secret")]);
        let mut out = Vec::new();
        run(&flags, &environment, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn it_shows_what_the_settings_come_to_and_no_key() {
        let digest = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
        let shown = checked(&format!(
            "[clients.alice]\nkey_sha256 = \"{digest}\"\n\
             [providers.openai]\nbase_url = \"https://api.openai.com/v1\"\n\
             api_key_env = \"KEY\"\nmodels = [\"gpt-4o\"]\n\
             [models.\"openai/mine\"]\n"
        ))
        .unwrap();
        let found = |words: &[&str]| {
            let fits = |line: &str| line.split_whitespace().eq(words.iter().copied());
            assert!(shown.lines().any(fits), "no {words:?} in\n{shown}");
        };
        found(&["listen", "127.0.0.1:1876"]);
        found(&["clients", "alice"]);
        found(&[
            "openai/gpt-4o",
            "128000",
            "catalogue",
            "-",
            "100000",
            "106142",
        ]);
        found(&["openai/mine", "96000", "assumed", "-", "51861", "unknown"]);
        assert!(shown.contains("simulated/plimsoll-8k"), "{shown}");
        assert!(shown.contains("a key of ours"), "{shown}");
        assert!(
            shown.ends_with("The settings are valid, with 1 warning.\n"),
            "{shown}"
        );
        for secret in ["sk-secret", digest] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn it_shows_where_recovery_acts() {
        let digest = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
        let shown = checked(&format!(
            "[clients.alice]\nkey_sha256 = \"{digest}\"\nrecovery = false\n\
             [models.\"simulated/plimsoll-8k\"]\nrecovery = false\n\
             [guard]\nenabled = false\n[recovery]\nlanguage = \"zh\"\n"
        ))
        .unwrap();
        for line in [
            "language Chinese",
            "tools from the first prompt on",
            "caution_cadence 10",
            "off for models simulated/plimsoll-8k",
            "off for clients alice",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let fits = |line: &str| line.split_whitespace().eq(words.iter().copied());
            assert!(shown.lines().any(fits), "no {line:?} in\n{shown}");
        }
        assert!(
            shown.contains("recovery.enabled: recovery cannot act without the guard"),
            "{shown}"
        );
    }

    #[test]
    fn it_shows_who_may_ask_whom_and_how_often() {
        let digest = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
        let shown = checked(&format!(
            "[clients.alice]\nkey_sha256 = \"{digest}\"\nmodels = [\"a/*\"]\n\
             paths = [\"files*\"]\nmax_in_flight = 3\n\
             [providers.a]\nbase_url = \"https://a.example/v1\"\napi_key_env = \"KEY\"\n\
             [aliases]\n\"router-*\" = \"a/*\"\n\
             [catalogue]\nurl = \"https://models.example/api.json?token=sk-secret\"\n"
        ))
        .unwrap();
        for line in [
            "alice a/* files* 3",
            "router-* a/*",
            "max_retries 0",
            "max_attempts 6",
            "from models.example, and the one built in",
            "learnt_max_age_s 86400",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let fits = |line: &str| line.split_whitespace().eq(words.iter().copied());
            assert!(shown.lines().any(fits), "no {line:?} in\n{shown}");
        }
        assert!(!shown.contains("sk-secret"), "{shown}");
    }

    #[test]
    fn it_shows_where_sessions_are_kept_and_no_password() {
        let shown = checked(
            "[store]\nurl = \"rediss-cluster://me:sk-secret@a.example:7000?node=b.example:7001\"\n\
             password_env = \"KEY\"\nprefix = \"mine:\"\n",
        )
        .unwrap();
        for line in [
            "place a cluster, with TLS: a.example:7000, b.example:7001",
            "prefix mine:",
            "max_age_s 604800",
            "encrypted no",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let fits = |line: &str| line.split_whitespace().eq(words.iter().copied());
            assert!(shown.lines().any(fits), "no {line:?} in\n{shown}");
        }
        assert!(
            !shown.contains("sk-secret") && !shown.contains("max_bytes "),
            "{shown}"
        );
    }

    /// However many models there are, it is one line, and only where it is true.
    #[test]
    fn unknown_windows_are_told_once() {
        let provider = "[providers.a]\nbase_url = \"https://a.example/v1\"\nauth = \"none\"\n";
        let names: Vec<String> = (10..35).map(|n| format!("\"m{n}\"")).collect();
        let shown = checked(&format!("{provider}models = [{}]\n", names.join(", "))).unwrap();
        let (_, warnings) = shown.split_once("\nwarnings\n").unwrap();
        let told = warnings.lines().next().unwrap();
        assert!(
            told.contains("a/m10, ") && told.contains(", 5 more,"),
            "{told}"
        );
        assert!(shown.ends_with("with 1 warning.\n"), "{shown}");
        let known = checked(&format!(
            "{provider}[models.\"a/m\"]\ncontext_length = 8192\n"
        ));
        assert!(known.unwrap().ends_with("The settings are valid.\n"));
    }

    #[test]
    fn settings_that_cannot_be_used_are_a_failure_of_their_own() {
        let failed = checked("[server]\nmax_connections = 0").unwrap_err();
        assert!(matches!(failed, Failed::Settings(_)), "{failed}");
        let message = failed.to_string();
        assert!(
            message.contains("server.max_connections = 0: must be"),
            "{message}"
        );
    }
}
