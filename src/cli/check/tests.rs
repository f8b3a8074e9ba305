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
    let environment =
        Environment::from_iter([("KEY", "sk-secret"), ("HEADERS", "authorization=sk-secret")]);
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
    found(&["openai/mine", "96000", "assumed", "-", "100000", "unknown"]);
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
fn a_body_may_be_as_large_as_the_largest_window_needs() {
    let most = |settings: &str| {
        let shown = checked(settings).unwrap();
        let row = shown.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("max_body_bytes")).then(|| words.next().unwrap().to_owned())
        });
        row.unwrap().parse::<u64>().unwrap()
    };
    let provider = |models: &str| {
        format!(
            "[providers.openai]\nbase_url = \"https://api.openai.com/v1\"\nauth = \"none\"\n{models}\n"
        )
    };
    assert_eq!(most(&provider("")), 32 << 20);
    // 1,047,576 tokens, as the catalogue says.
    let known = provider("models = [\"gpt-4o\", \"gpt-4.1\"]");
    assert_eq!(most(&known), 64 * 1_047_576);
    let told = provider("[models.\"openai/mine\"]\ncontext_length = 2000000");
    assert_eq!(most(&told), 128_000_000);
    let pattern = provider("[models.\"openai/mine-*\"]\ncontext_length = 2000000");
    assert_eq!(most(&pattern), 128_000_000);
    let large = provider("[models.\"openai/mine\"]\ncontext_length = 10000000");
    assert_eq!(most(&large), 128 << 20);
    let room = format!("[server]\nmax_bytes_in_flight = 4294967296\n{large}");
    assert_eq!(most(&room), 640_000_000);
    let little = format!("[server]\nmax_bytes_in_flight = 50000000\n{large}");
    assert_eq!(most(&little), 32 << 20);
    let said = format!("[server]\nmax_body_bytes = 1048576\n{large}");
    assert_eq!(most(&said), 1 << 20);
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
fn it_shows_when_a_conversation_is_summarised_and_by_whom() {
    let shown = checked(
        "[models.\"simulated/plimsoll-8k\"]\n[models.\"simulated/unheard-of\"]\n\
         [compaction]\nauto = true\nthreshold = 0.75\nmodel = \"simulated/plimsoll-8k\"\n",
    )
    .unwrap();
    for line in [
        "auto on, unless a session or a request says otherwise",
        "threshold 0.75 (balanced, 平衡模式)",
        "simulated/plimsoll-8k from 4608 tokens on",
        "simulated/unheard-of never by itself, since nobody knows its window",
        "summarised by simulated/plimsoll-8k",
        "wait_ms no request waits for one",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let fits = |line: &str| line.split_whitespace().eq(words.iter().copied());
        assert!(shown.lines().any(fits), "no {line:?} in\n{shown}");
    }
    let shown = checked("").unwrap();
    assert!(shown.contains("0.6 (cost first, 成本优先)"), "{shown}");
    assert!(shown.contains("the conversation's own model"), "{shown}");
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
        "timeout_ms 250",
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

#[test]
fn it_shows_where_traces_go_and_no_key() {
    let shown =
        checked("[traces]\nendpoint = \"https://otlp.example/sk-secret/v1/traces\"\n").unwrap();
    assert!(shown.contains("https://otlp.example"), "{shown}");
    assert!(!shown.contains("sk-secret"), "{shown}");
    assert!(checked("").unwrap().contains("no traces are made"));
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

/// Settings that are shown under another name, or in another part, than `config.toml` has them:
/// its section and key, then the part of the output and the word there.
const SHOWN_ELSEWHERE: &[(&str, &str, &str, &str)] = &[
    ("", "default_provider", "", "default_provider"),
    ("server", "secret_env", "", "secret"),
    ("admin", "key_sha256", "admin", "key"),
    ("clients", "key_sha256", "clients", "client"),
    ("clients", "max_in_flight", "clients", "in flight"),
    ("clients", "recovery", "recovery", "off for clients"),
    ("providers", "api_key_env", "providers", "credentials"),
    ("providers", "auth", "providers", "credentials"),
    ("aliases", "fast", "aliases", "fast"),
    ("aliases", "router-*", "aliases", "router-*"),
    ("models", "provider", "models", "leads to"),
    ("models", "context_length", "models", "window"),
    ("models", "input_length", "models", "input"),
    ("models", "optimal_max_tokens", "models", "optimal"),
    ("models", "critical_max_tokens", "models", "critical"),
    ("models", "caution_cadence", "recovery", "openai/gpt-4o"),
    ("models", "recovery", "recovery", "off for models"),
    ("models", "deployments", "models", "openai/gpt-4o 75%"),
    ("models", "fallback", "models", "else openai/gpt-4o-mini"),
    ("models", "larger", "models", "larger openai/gpt-4.1"),
    ("catalogue", "url", "catalogue", "from"),
    ("guard.caps", "schema", "guard", "caps"),
    ("recovery", "prompts_dir", "recovery", "prompts"),
    ("compaction", "model", "compaction", "summarised by"),
    ("store", "url", "store", "place"),
    ("store", "password_env", "store", "password"),
    ("store", "encrypt_key_env", "store", "encrypted"),
    ("traces", "headers_env", "traces", "headers"),
];

/// Sections and keys of the shipped file, of its examples too.
fn documented() -> Vec<(String, String)> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for line in include_str!("../../../config.toml").lines() {
        let line = line.strip_prefix('#').unwrap_or(line);
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            // Of a client, a provider or a model the name is left out.
            let whole = name == "guard.caps";
            let kind = name.split('.').next().unwrap_or(name);
            section = if whole { name } else { kind }.to_owned();
        } else if let Some((key, _)) = line.split_once(" = ")
            && !key.contains(' ')
        {
            keys.push((section.clone(), key.trim_matches('"').to_owned()));
        }
    }
    keys
}

#[test]
fn every_setting_is_shown_with_what_it_comes_to() {
    let digest = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    let shown = checked(&format!(
        "default_provider = \"openai\"\n\
         [admin]\nkey_sha256 = \"{digest}\"\nshow_content = true\n\
         [clients.alice]\nkey_sha256 = \"{digest}\"\nrecovery = false\n\
         [providers.openai]\nbase_url = \"https://api.openai.com/v1\"\napi_key_env = \"KEY\"\n\
         key_header = \"api-key\"\nheaders = {{ \"x-team\" = \"sk-secret\" }}\n\
         query = \"key=sk-secret\"\nbreaker_failures = 0\nconnect_timeout_ms = 1234\n\
         [aliases]\nfast = \"openai/gpt-4o-mini\"\n\"router-*\" = \"openai/*\"\n\
         [models.\"openai/gpt-4o\"]\ncaution_cadence = 7\nrecovery = false\n\
         fallback = [\"openai/gpt-4o-mini\"]\nlarger = \"openai/gpt-4.1\"\n\
         [models.\"openai/gpt-5*\"]\ncontext_length = 200000\ncaution_cadence = 3\n\
         [models.balanced]\n\
         deployments = [{{ model = \"openai/gpt-4o\", weight = 3 }}, {{ model = \"openai/gpt-4\" }}]\n\
         [guard]\npreset = \"standard\"\ntrim_system = true\nusage = \"as_received\"\n\
         [guard.caps]\nschema = 5000\nmine = 900\n\
         [store]\nurl = \"redis://a.example:7000\"\npassword_env = \"KEY\"\n\
         [traces]\nheaders_env = \"HEADERS\"\nendpoint = \"https://otlp.example/v1/traces\"\n"
    ))
    .unwrap();
    for secret in ["sk-secret", digest] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let parts = shown.split("\n\n").map(|part| match part.split_once('\n') {
        Some((title, rows)) if !title.starts_with(' ') => (title, rows),
        _ => ("", part),
    });
    let parts: std::collections::BTreeMap<_, _> = parts.collect();
    let keys = documented();
    assert!(keys.len() > 90, "{keys:?}");
    for (section, key) in keys {
        let elsewhere = SHOWN_ELSEWHERE
            .iter()
            .find(|(of, name, ..)| (*of, *name) == (&section, &key));
        let calls = parts["calls to providers"];
        let (part, word) = match elsewhere {
            Some((_, _, part, word)) => (parts[part], *word),
            None if section == "server" => (parts[""], key.as_str()),
            // Redis bounds its bytes itself.
            None if (&*section, &*key) == ("store", "max_bytes") => continue,
            None if section == "providers" && calls.contains(&key) => (calls, key.as_str()),
            None => (parts[section.as_str()], key.as_str()),
        };
        assert!(part.contains(word), "no {section}.{key} in\n{shown}");
    }
    for line in [
        "default_provider openai",
        "max_body_bytes 33554432",
        "drain_timeout_ms 30000",
        "show_content true",
        "openai api-key x-team set, not shown 1234 600000 300000 if not in the catalogue never opens 30000",
        "openai/gpt-5* context_length 200000, caution_cadence 3",
        "openai/gpt-4o 7",
        "usage as_received",
        "preset standard",
        "caps dynamic_context 12000, mine 900, schema 5000, static_context 16000",
        "system_share 0.333",
        "trim_system true",
        "password set, not shown",
        "ca_file those of the system",
        "headers set, not shown",
        "service_name plimsoll",
    ] {
        let fits = |shown: &str| shown.split_whitespace().eq(line.split(' '));
        assert!(shown.lines().any(fits), "no {line:?} in\n{shown}");
    }
    let file = checked("").unwrap();
    assert!(
        file.contains("max_bytes") && file.contains("4294967296"),
        "{file}"
    );
}
