//! What becomes of files that are special, lost, or written by two at once.

use super::*;

const SETTINGS: &str = ".claude/settings.json";

#[cfg(unix)]
#[test]
fn copies_are_their_owners_and_permissions_and_links_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let home = Home::new();
    home.put(
        "dotfiles/claude.json",
        "{\"env\": {\"KEY\": \"sk-of-another\"}}",
    );
    let target = home.path("dotfiles/claude.json");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(home.path(".claude")).unwrap();
    symlink(&target, home.path(".claude/settings.json")).unwrap();
    home.succeed("connect claude-code --write");
    assert!(home.path(".claude/settings.json").is_symlink());
    assert_eq!(mode(&target), 0o640);
    let data = home.path(".local/state/plimsoll/clients");
    assert_eq!(mode(&data.join("claude-code.json")), 0o600);
    assert_eq!(mode(&data.join("claude-code/settings.json")), 0o600);
    home.succeed("disconnect");
    assert_eq!(
        home.read("dotfiles/claude.json"),
        "{\"env\": {\"KEY\": \"sk-of-another\"}}"
    );
    assert_eq!(fs::read_dir(data).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_stays() {
    let home = Home::new();
    fs::create_dir(home.path(".claude")).unwrap();
    let link = home.path(SETTINGS);
    std::os::unix::fs::symlink(home.path("gone.json"), &link).unwrap();
    let (_, error) = home.run("connect claude-code --write");
    assert!(error.unwrap().contains("cannot be written"));
    assert!(link.is_symlink());
    // Nothing was written, so that there is nothing to undo.
    assert_eq!(
        home.succeed("disconnect"),
        "nothing was written by connect --write\n"
    );
    assert!(link.is_symlink());
}

/// Its folder can be written, so that it could be replaced all the same.
#[cfg(unix)]
#[test]
fn a_read_only_file_stays_and_the_error_says_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    home.put(SETTINGS, "{\"a\":1}");
    let file = home.path(SETTINGS);
    let set_mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    let refused = |line: &str| {
        let error = home.run(line).1.unwrap();
        let remedy = format!(
            "{0}: it is read-only; make it writable (chmod u+w {0})",
            file.display()
        );
        assert!(error.contains(&remedy), "{error}");
    };
    set_mode(0o444);
    let before = home.list();
    for line in [
        "connect claude-code --write",
        "connect claude-code --dry-run",
    ] {
        refused(line);
        assert_eq!(home.list(), before);
    }
    assert_eq!(
        home.succeed("disconnect"),
        "nothing was written by connect --write\n"
    );
    set_mode(0o644);
    home.succeed("connect claude-code --write");
    let written = home.list();
    set_mode(0o444);
    // Nothing is to be written, so the mode is no hindrance.
    home.succeed("connect claude-code --write");
    refused("disconnect");
    assert_eq!(home.list(), written);
    set_mode(0o644);
    home.succeed("disconnect");
    assert_eq!(home.list(), before);
}

#[test]
fn what_points_elsewhere_is_listed_apart() {
    let home = Home::new();
    let other = "http://127.0.0.1:3";
    home.run_at(other, "connect aider --write --model local/small");
    home.succeed("connect codex --write");
    home.put(
        ".pi/agent/models.json",
        "{\"baseUrl\": \"http://localhost:1/v1\"}",
    );
    home.put(
        ".config/zed/settings.json",
        "{\"api_url\": \"http://localhost:2/v1\"}",
    );
    let listed = home.succeed("connect --list");
    let (here, elsewhere) = listed.split_once("\n\n").unwrap();
    assert!(
        here.starts_with("what points to http://127.0.0.1:1\n"),
        "{listed}"
    );
    assert!(here.contains("codex") && here.contains("pi "), "{listed}");
    assert!(
        !here.contains("aider") && !listed.contains("zed"),
        "{listed}"
    );
    assert!(
        elsewhere.starts_with("written by connect --write, but with another address now\n"),
        "{listed}"
    );
    assert!(elsewhere.contains(".aider.conf.yml"), "{listed}");
    assert!(
        elsewhere.contains("connect --write, http://127.0.0.1:3\n"),
        "{listed}"
    );
    assert_eq!(elsewhere.matches("aider ").count(), 2, "{listed}");
    // As the user has it since.
    let codex = ".codex/config.toml";
    let text = home.read(codex);
    home.put(codex, &text.replace("127.0.0.1:1/", "proxy.example:4/"));
    let listed = home.succeed("connect --list");
    assert!(
        listed.contains("connect --write, changed since, http://proxy.example:4\n"),
        "{listed}"
    );
}

#[test]
fn each_client_has_its_own_way_to_send_the_key() {
    let home = Home::new();
    for (client, way) in [
        (
            "codex",
            "key: Its login goes out as it is. Beside it goes what PLIMSOLL_KEY holds",
        ),
        (
            "codex",
            "[model_providers.plimsoll.env_http_headers]\nx-plimsoll-key = \"PLIMSOLL_KEY\"\n",
        ),
        (
            "claude-code",
            "ANTHROPIC_CUSTOM_HEADERS=\"x-plimsoll-key: KEY\"",
        ),
        (
            "open-webui",
            "export OPENAI_API_CONFIGS='{\"0\": {\"enable\": true, \"headers\": {\"x-plimsoll-task\": \"{{TASK}}\"}}}'\n",
        ),
    ] {
        let shown = home.succeed(&format!("connect {client}"));
        assert!(shown.contains(way), "{way} in {shown}");
        assert!(shown.ends_with("KEY is a client key of the proxy; without client keys, the provider's where the proxy has none, else any text\n"));
    }
}

#[test]
fn a_file_that_the_client_lost_is_there_again() {
    let home = Home::new();
    home.put(SETTINGS, "{\"a\":1}");
    home.succeed("connect claude-code --write");
    fs::remove_file(home.path(SETTINGS)).unwrap();
    let told = home.succeed("disconnect");
    assert!(told.contains("the file was missing"), "{told}");
    assert_eq!(home.read(SETTINGS), "{\"a\":1}");
    // Without a file before, there is nothing to bring back.
    fs::remove_file(home.path(SETTINGS)).unwrap();
    home.succeed("connect claude-code --write");
    fs::remove_file(home.path(SETTINGS)).unwrap();
    let told = home.succeed("disconnect");
    assert!(told.contains("nothing to undo"), "{told}");
    assert!(!home.path(SETTINGS).exists());
}

/// The record has what stands in the file, whoever wrote it last.
#[test]
fn two_at_once_can_be_undone() {
    for _ in 0..20 {
        let home = Home::new();
        home.put(SETTINGS, "{\"a\":1}");
        thread::scope(|scope| {
            for url in [NOWHERE, "http://127.0.0.1:3"] {
                let home = &home;
                scope.spawn(move || home.run_at(url, "connect claude-code --write"));
            }
        });
        home.succeed("disconnect");
        assert_eq!(home.read(SETTINGS), "{\"a\":1}");
    }
}

#[test]
fn a_trial_shows_no_secret() {
    let home = Home::new();
    let secrets = "{\n  \"env\": {\n    \"ANTHROPIC_AUTH_TOKEN\": \"sk-of-another\",\n    \"LANG\": \"of-the-user\"\n  }\n}\n";
    home.put(SETTINGS, secrets);
    home.put(
        ".codex/config.toml",
        "[mcp_servers.a.http_headers]\nx = \"Bearer of-another\"\n",
    );
    let shown = home.succeed("connect claude-code --dry-run");
    assert!(!shown.contains("sk-of-another") && shown.contains("of-the-user"));
    let shown = home.succeed("connect codex --dry-run");
    assert!(!shown.contains("of-another") && shown.contains("+model_provider"));
}

/// It is for a first try, and would stand in front of real work.
#[test]
fn the_simulated_provider_is_chosen_by_its_name_only() {
    let home = Home::new();
    home.put(
        "settings.toml",
        "catalogue.url = \"\"\nserver.known_providers = false\n",
    );
    let (_, error) = home.run("connect opencode --write");
    let error = error.unwrap();
    assert!(
        error.contains("needs a model") && error.contains("--model"),
        "{error}"
    );
    assert!(!home.path(".config").exists());
    home.succeed("connect opencode --write --model simulated/plimsoll-8k");
    let written = home.read(".config/opencode/opencode.json");
    assert!(written.contains("simulated/plimsoll-8k"), "{written}");
    // A client that compacts a whole answer before the end of its window has to have something left.
    assert!(written.contains("\"output\": 2048"), "{written}");
}
