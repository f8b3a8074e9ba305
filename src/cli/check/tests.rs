use std::fs;

use serde_json::Value;

use super::{CheckArgs, run};
use crate::{
    cli::CommandError,
    config::{Environment, Flags},
};

fn checked(text: &str) -> Result<String, CommandError> {
    let args = CheckArgs {
        all: true,
        json: false,
    };
    checked_with(args, text)
}

fn checked_with(args: CheckArgs, text: &str) -> Result<String, CommandError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    fs::write(&path, text).unwrap();
    let flags = Flags {
        config: Some(path),
        listen: None,
    };
    let environment = Environment::from_iter([
        ("KEY", "sk-secret"),
        ("HEADERS", "authorization=sk-secret"),
        ("HTTPS_PROXY", "http://me:sk-secret@proxy.example:3128"),
        ("NO_PROXY", "models.dev"),
    ]);
    let mut out = Vec::new();
    run(args, &flags, &environment, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

const DIGEST: &str = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";

/// Asserts that each line is shown, whatever spaces align its words, and that no secret is.
#[track_caller]
fn has_lines(shown: &str, lines: &[&str]) {
    for line in lines {
        let fits = |shown: &str| shown.split_whitespace().eq(line.split(' '));
        assert!(shown.lines().any(fits), "no {line:?} in\n{shown}");
    }
    for secret in ["sk-secret", DIGEST] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn check_shows_values_and_sources_and_no_key() {
    let shown = checked(&format!(
        "[admin]\nkey_sha256 = \"{DIGEST}\"\n\
         [clients.alice]\nkey_sha256 = \"{DIGEST}\"\nmodels = [\"openai/*\"]\nmax_in_flight = 3\n\
         [providers.openai]\nbase_url = \"https://api.openai.com/v1\"\nquery = \"key=sk-secret\"\n\
         headers = {{ \"x-team\" = \"sk-secret\" }}\napi_key_env = \"KEY\"\nmodels = [\"gpt-4o\"]\n\
         [models.\"openai/mine\"]\nrecovery = false\n\
         [aliases]\n\"router-*\" = \"openai/*\"\n\
         [guard]\npreset = \"standard\"\n\
         [guard.caps]\nschema = 5000\nmine = 900\n\
         [catalogue]\nurl = \"https://models.example/api.json?token=sk-secret\"\n\
         [traces]\nheaders_env = \"HEADERS\"\nendpoint = \"https://otlp.example/sk-secret/v1/traces\"\n"
    ))
    .unwrap();
    has_lines(
        &shown,
        &[
            "server.listen 127.0.0.1:1876 default",
            "default_provider openai default",
            "openai/gpt-4o 128000 catalogue - 9450 10631",
            "openai/mine 96000 assumed - 100000 unknown",
            "openai/mine never by itself, since its window is not known",
            "guard.caps mine 900, schema 5000, static_context 16000",
            "guard.system_share 1.000 guard.preset",
            "guard.max_prompt_tokens 12000 guard.preset",
            "guard.low_water by guard.keep default",
            "store.max_bytes 4294967296 default",
            "compaction.threshold 0.6 (cost) default",
            "compaction.model the conversation's own model default",
            "providers.openai through http://***@proxy.example:3128 (HTTPS_PROXY)",
            "traces.endpoint through http://***@proxy.example:3128 (HTTPS_PROXY)",
        ],
    );
    for part in [
        "a key of the settings",
        "catalogue: built in, of 2026-",
        "https://otlp.example ",
        "set, not shown",
        "clients.alice.max_in_flight",
        "aliases.\"router-*\"",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    assert!(
        shown.starts_with("The settings are valid, with 1 warning:\n"),
        "{shown}"
    );
}

#[test]
fn check_without_settings_shows_every_default() {
    let shown = checked("").unwrap();
    has_lines(
        &shown,
        &[
            "clients anyone on this machine, without a key",
            "providers.anthropic with the client's own key, for claude-* server.known_providers",
            "providers.anthropic through http://***@proxy.example:3128 (HTTPS_PROXY)",
            "traces.endpoint none: no traces are made default",
            "server.secret_env data_dir/secret, made on the first start default",
            "store.url file default",
            "recovery.caution_cadence 10 default",
            "catalogue.url directly (NO_PROXY)",
        ],
    );
}

#[test]
fn a_body_may_be_as_large_as_the_largest_window_needs() {
    let limit = |settings: &str| {
        let shown = checked(settings).unwrap();
        let row = shown.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("server.max_body_bytes"))
                .then(|| words.next().unwrap().to_owned())
        });
        row.unwrap().parse::<u64>().unwrap()
    };
    let provider = |models: &str| {
        format!(
            "[providers.openai]\nbase_url = \"https://api.openai.com/v1\"\nauth = \"none\"\n{models}\n"
        )
    };
    assert_eq!(limit(&provider("")), 32 << 20);
    // The catalogue has gpt-4.1 with 1,047,576 tokens.
    let known = provider("models = [\"gpt-4o\", \"gpt-4.1\"]");
    assert_eq!(limit(&known), 64 * 1_047_576);
    let set = provider("[models.\"openai/mine\"]\ncontext_length = 2000000");
    assert_eq!(limit(&set), 128_000_000);
    let pattern = provider("[models.\"openai/mine-*\"]\ncontext_length = 2000000");
    assert_eq!(limit(&pattern), 128_000_000);
    let large = provider("[models.\"openai/mine\"]\ncontext_length = 10000000");
    assert_eq!(limit(&large), 128 << 20);
    let room = format!("[server]\nmax_bytes_in_flight = 4294967296\n{large}");
    assert_eq!(limit(&room), 640_000_000);
    let little = format!("[server]\nmax_bytes_in_flight = 50000000\n{large}");
    assert_eq!(limit(&little), 32 << 20);
    let explicit = format!("[server]\nmax_body_bytes = 1048576\n{large}");
    assert_eq!(limit(&explicit), 1 << 20);
}

#[test]
fn check_shows_the_threshold_and_the_model_of_summaries() {
    let shown = checked(
        "[models.\"simulated/plimsoll-8k\"]\n\
         [recovery]\nenabled = true\n[guard]\nenabled = false\n\
         [compaction]\nauto = true\nthreshold = 0.75\nmodel = \"simulated/plimsoll-8k\"\n",
    )
    .unwrap();
    has_lines(&shown, &["simulated/plimsoll-8k from 5376 tokens on"]);
    for part in [
        "0.75 (balanced)",
        "recovery.enabled: recovery cannot act without the guard",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
}

#[test]
fn check_shows_the_server_of_the_store_and_no_password() {
    let shown = checked(
        "[store]\nurl = \"rediss-cluster://me:sk-secret@a.example:7000?node=b.example:7001\"\n\
         password_env = \"KEY\"\nprefix = \"mine:\"\n",
    )
    .unwrap();
    has_lines(
        &shown,
        &[
            "store.max_age_s 604800 default",
            "store.max_bytes 4294967296 default",
            "store.ca_file those of the system default",
        ],
    );
    let servers = "a.example:7000, b.example:7001, a cluster, with TLS";
    assert!(shown.contains(servers), "{shown}");
}

#[test]
fn models_with_unknown_windows_share_one_warning() {
    let provider = "[providers.a]\nbase_url = \"https://a.example/v1\"\nauth = \"none\"\n";
    let names: Vec<String> = (10..35).map(|n| format!("\"m{n}\"")).collect();
    let shown = checked(&format!("{provider}models = [{}]\n", names.join(", "))).unwrap();
    let (verdict, warnings) = shown.split_once("\n\n").unwrap();
    assert_eq!(verdict, "The settings are valid, with 1 warning:");
    let warning = warnings.lines().next().unwrap();
    assert!(
        warning.contains("a/m10, ") && warning.contains(", 5 more,"),
        "{warning}"
    );
    let known = checked(&format!(
        "{provider}[models.\"a/m\"]\ncontext_length = 8192\n"
    ));
    assert!(known.unwrap().starts_with("The settings are valid.\n"));
}

#[test]
fn invalid_settings_are_refused_with_their_message() {
    let failed = checked("[server]\nmax_connections = 0").unwrap_err();
    assert!(matches!(failed, CommandError::Settings(_)), "{failed}");
    let message = failed.to_string();
    assert!(
        message.contains("server.max_connections = 0: must be"),
        "{message}"
    );
}

#[test]
fn the_verdict_is_first_and_changed_settings_are_shown_alone() {
    let args = CheckArgs::default();
    let own = "providers.openai with the client's own key, for gpt-*, chatgpt-*, chat-latest* and 16 more \
               patterns server.known_providers";
    has_lines(
        &checked_with(args, "").unwrap(),
        &[own, "All others are at their defaults; --all shows them."],
    );
    let shown = checked_with(args, "[guard]\nreserve_tokens = 5000\n").unwrap();
    assert!(shown.starts_with("The settings are valid.\n"), "{shown}");
    let (settings, _) = shown.split_once("\nmodels\n").unwrap();
    let mut rows = settings.lines().filter(|line| line.contains("config.toml"));
    let row = rows.next_back().unwrap();
    assert!(row.starts_with("  guard.reserve_tokens  5000 "), "{row}");
    assert!(!settings.contains("server.listen"), "{settings}");
}

#[test]
fn json_has_settings_and_warnings_and_no_key() {
    let args = CheckArgs {
        all: false,
        json: true,
    };
    let text = "[providers.a]\nbase_url = \"https://a.example/v1\"\napi_key_env = \"UNSET\"\n";
    let shown = checked_with(args, text).unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["valid"], true);
    let keys: Vec<&str> = shown["settings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["providers.a.api_key_env", "providers.a.base_url"]);
    let warning = &shown["warnings"][0];
    assert_eq!(warning["key"], "providers.a.api_key_env");
    assert_eq!(warning["value"], "\"UNSET\"");
    let refused = checked_with(args, "[server]\nmax_connections = 0").unwrap_err();
    assert!(matches!(refused, CommandError::Settings(problems) if problems.0.is_empty()));
}
