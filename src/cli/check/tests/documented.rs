//! Every setting of the shipped file against what the command shows.

use super::checked;

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
    for line in include_str!("../../../../config.toml").lines() {
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
        "max_body_bytes 67044864",
        "drain_timeout_ms 30000",
        "show_content true",
        "openai api-key x-team set, not shown 1234 600000 300000 if not in the catalogue never opens 30000",
        "openai/gpt-5* context_length 200000, caution_cadence 3",
        "openai/gpt-4o 7",
        "usage as_received",
        "preset standard",
        "caps mine 900, schema 5000, static_context 16000",
        "system_share 1.000",
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
