mod documented;

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
