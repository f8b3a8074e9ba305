//! `server.allowed_origins` and `server.allowed_hosts`.

use super::*;

const KEYED: &str = "[clients.a]\nkey_sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";

#[test]
fn origins_are_whole_unless_clients_have_keys() {
    let written = |origin: &str| format!("[server]\nallowed_origins = [{origin:?}]\n");
    for origin in [
        "https://a.example",
        "http://localhost:3000",
        "app://obsidian.md",
        "http://[::1]:5173",
    ] {
        assert_eq!(warned(&written(origin), &[]), "", "{origin}");
    }
    for (origin, reason) in [
        ("*", "needs client keys"),
        ("app://*", "needs client keys"),
        ("null", "cannot be allowed"),
        ("https://*", "write each origin"),
        ("https://a.example/", "without a path"),
        ("https://*.example", "must be an origin"),
        ("https://a.example:443", "leave it out"),
        ("http://a.example:80", "leave it out"),
        ("a.example", "must be an origin"),
        ("", "must be an origin"),
        ("https://", "must be an origin"),
    ] {
        let message = refused(&written(origin), &[]);
        assert!(message.contains(reason), "{origin}: {message}");
    }
    for origin in ["*", "app://*", "vscode-webview://*"] {
        assert_eq!(
            warned(&format!("{}{KEYED}", written(origin)), &[]),
            "",
            "{origin}"
        );
    }
    for origin in ["null", "https://*", "http://*"] {
        refused(&format!("{}{KEYED}", written(origin)), &[]);
    }
}

#[test]
fn an_allowed_host_allows_no_other_address() {
    let hosts = "[server]\nallowed_hosts = [\"host.docker.internal\"]\n";
    assert_eq!(warned(hosts, &[]), "");
    let message = refused(&format!("{hosts}listen = \"0.0.0.0:1876\"\n"), &[]);
    assert!(message.contains("there are no client keys"), "{message}");
    for host in ["", "*", "*.internal", "a:1876", "http://a", "a/b"] {
        refused(&format!("[server]\nallowed_hosts = [{host:?}]\n"), &[]);
    }
}

#[test]
fn a_key_that_opens_nothing_is_warned_of() {
    let watcher = format!("{KEYED}paths = []\n");
    let message = warned(&watcher, &[]);
    assert!(
        message.starts_with("clients.a.paths: is empty"),
        "{message}"
    );
    assert_eq!(warned(&format!("{watcher}metrics = true\n"), &[]), "");
}
