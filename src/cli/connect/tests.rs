use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    thread,
};

use clap::Parser;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::cli::{CliArguments, Command};

mod files;

/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:1";

/// A user's home, with settings.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.put(
            "settings.toml",
            "catalogue.url = \"\"\nserver.known_providers = false\n[providers.local]\n\
             base_url = \"http://127.0.0.1:2/v1\"\nauth = \"none\"\n\
             [models.\"local/small\"]\ncontext_length = 32000\n\
             [models.\"local/large\"]\ncontext_length = 300000\n",
        );
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The output of a command, and its error.
    fn run(&self, line: &str) -> (String, Option<String>) {
        self.run_at(NOWHERE, line)
    }

    /// The same before a proxy at an address.
    fn run_at(&self, url: &str, line: &str) -> (String, Option<String>) {
        let environment = Environment::from_iter([
            ("HOME", self.0.path().to_str().unwrap().to_owned()),
            ("PLIMSOLL_KEY", "sk-secret".to_owned()),
        ]);
        let flags = Flags {
            config: Some(self.path("settings.toml")),
            listen: None,
        };
        let line = format!("plimsoll {line}");
        let parsed = CliArguments::try_parse_from(line.split(' ')).unwrap();
        let mut out = Vec::new();
        let result = match parsed.command.unwrap() {
            Command::Connect(mut args) => {
                args.proxy.url = Some(url.to_owned());
                run(&args, &flags, &environment, &mut out)
            }
            Command::Disconnect(args) => run_disconnect(&args, &flags, &environment, &mut out),
            other => panic!("{other:?}"),
        };
        let out = String::from_utf8(out).unwrap();
        assert!(!out.contains("sk-secret"), "{out}");
        (out, result.err().map(|error| error.to_string()))
    }

    fn succeed(&self, line: &str) -> String {
        let (out, error) = self.run(line);
        assert_eq!(error, None, "{out}");
        out
    }

    /// All files outside the data directory, and all folders.
    fn list(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut all = BTreeMap::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.starts_with(self.path(".local")) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path.clone());
                    all.insert(path, None);
                } else {
                    let bytes = fs::read(&path).unwrap();
                    all.insert(path, Some(bytes));
                }
            }
        }
        all
    }
}

#[test]
fn a_client_is_told_address_models_windows_and_trap() {
    let home = Home::new();
    let shown = home.succeed("connect opencode");
    for part in [
        "opencode asks for /v1/chat/completions; its base URL:\n  http://127.0.0.1:1/v1\n",
        ".config/opencode/opencode.json:\n{\n",
        "\"context\": 32000",
        "plimsoll/local/small  window 32,000 tokens   told 32,000 tokens\n",
        "models, of the settings (no proxy runs at http://127.0.0.1:1)\n",
        "window: limit.context of the model\n",
        "mind: Without limit",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!home.path(".config").exists());
    // The first model that is named is the one to begin with; a larger window leaves it to the proxy.
    let named = "connect opencode --model local/large --model local/small --window 1000000";
    let shown = home.succeed(named);
    assert!(
        shown.contains("\"model\": \"plimsoll/local/large\""),
        "{shown}"
    );
    assert!(shown.contains("\"context\": 1000000"), "{shown}");
    // Only the built-in provider, which serves no other names.
    home.put("settings.toml", "[server]\nknown_providers = false\n");
    let (_, error) = home.run("connect opencode --model gpt-4o");
    assert!(error.unwrap().starts_with("gpt-4o: "));
    let (_, error) = home.run("connect emacs");
    assert!(
        error
            .unwrap()
            .starts_with("no client emacs; there are claude-code, codex, ")
    );
}

/// The address of a server that answers its first request with a list of models.
fn list_at(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        assert_eq!(head[0], "GET /v1/models HTTP/1.1");
        assert!(
            head.iter()
                .any(|line| line == "authorization: Bearer sk-secret")
        );
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        (&stream).write_all((head + body).as_bytes()).unwrap();
    });
    format!("http://{address}")
}

#[test]
fn a_running_proxy_says_which_models_there_are() {
    let home = Home::new();
    let url = list_at(
        r#"{"data": [{"id": "up/m", "context_length": 8192}, {"id": "m", "context_length": 8192},
            {"id": "up/n", "context_length": null}]}"#,
    );
    let (shown, error) = home.run_at(&url, "connect pi");
    assert_eq!(error, None);
    for part in [
        &format!("models, of the proxy at {url}\n"),
        "  plimsoll/up/m  window 8,192 tokens  told 8,192 tokens\n",
        "  plimsoll/up/n  window not known     told nothing\n",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("plimsoll/m "), "{shown}");
}

#[test]
fn claude_code_is_told_no_window_in_which_it_would_stop() {
    let home = Home::new();
    let own = home.succeed("connect claude");
    assert!(
        !own.contains("ANTHROPIC_MODEL") && !own.contains("_TOKENS\""),
        "{own}"
    );
    let small = home.succeed("connect claude-code --model local/small");
    assert!(
        small.contains("\"ANTHROPIC_MODEL\": \"local/small\""),
        "{small}"
    );
    assert!(!small.contains("_TOKENS\""), "{small}");
    assert!(
        small.contains("window 32,000 tokens  told nothing"),
        "{small}"
    );
    let large = home.succeed("connect claude-code --model local/large");
    assert!(
        large.contains("\"CLAUDE_CODE_MAX_CONTEXT_TOKENS\": \"300000\""),
        "{large}"
    );
}

#[test]
fn every_client_is_shown_and_written_where_it_has_a_file() {
    for client in list_clients() {
        let home = Home::new();
        let shown = home.succeed(&format!("connect {}", client.name));
        assert!(
            !shown.contains("{base") && !shown.contains("{model}"),
            "{shown}"
        );
        let before = home.list();
        let line = format!("connect {} --write", client.name);
        let (_, error) = home.run(&line);
        assert_eq!(error.is_some(), client.files.is_empty(), "{error:?}");
        if client.files.is_empty() {
            continue;
        }
        assert_ne!(home.list(), before);
        let listed = home.succeed("connect --list");
        let rows = listed.lines().filter(|line| line.contains(client.name));
        assert_eq!(rows.count(), client.files.len(), "{listed}");
        let again = home.succeed(&line);
        assert!(again.contains(" has these settings already"), "{again}");
        home.succeed(&format!("disconnect {}", client.name));
        assert_eq!(home.list(), before, "{}", client.name);
        assert!(
            home.succeed("connect --list")
                .starts_with("nothing points to")
        );
        assert_eq!(home.list(), before);
    }
}

#[test]
fn a_trial_shows_the_difference_and_writes_nothing() {
    let home = Home::new();
    home.put(".codex/config.toml", "# Mine.\nmodel = \"x\"\n");
    let before = home.list();
    let shown = home.succeed("connect codex --dry-run");
    for line in [
        " model = \"x\"\n",
        "+model_provider = \"plimsoll\"\n",
        "+[model_providers.plimsoll]\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    assert_eq!(home.list(), before);
    assert!(!home.path(".local").exists());
}

#[test]
fn a_file_that_was_changed_since_loses_only_what_was_written() {
    let home = Home::new();
    let name = ".claude/settings.json";
    home.put(name, "{\n  // Mine.\n  \"model\": \"opus\"\n}\n");
    home.succeed("connect claude-code --write");
    let written = home.read(name);
    home.put(name, &written.replace("\"opus\"", "\"sonnet\""));
    let listed = home.succeed("connect --list");
    assert!(
        listed.contains("connect --write, changed since"),
        "{listed}"
    );
    assert!(!listed.contains("elsewhere"), "{listed}");
    let told = home.succeed("disconnect");
    assert!(
        told.contains("it was changed since: only what connect had written is gone"),
        "{told}"
    );
    assert_eq!(
        home.read(name),
        "{\n  // Mine.\n  \"model\": \"sonnet\"\n}\n"
    );
    assert_eq!(
        home.succeed("disconnect"),
        "nothing was written by connect --write\n"
    );
    let (_, error) = home.run("disconnect claude-code");
    assert!(
        error
            .unwrap()
            .starts_with("nothing of claude-code was written")
    );
}

#[test]
fn connecting_again_still_returns_to_the_first_file() {
    let home = Home::new();
    let name = ".config/opencode/opencode.json";
    let first = "{ \"theme\": \"x\", \"model\": \"own\" }";
    home.put(name, first);
    home.succeed("connect opencode --write --model local/small");
    home.succeed("connect opencode --write --model local/large");
    let written = home.read(name);
    assert!(!written.contains("local/small"), "{written}");
    home.succeed("disconnect opencode");
    assert_eq!(home.read(name), first);
}

#[test]
fn what_cannot_be_edited_stays_and_its_lines_are_printed() {
    let home = Home::new();
    home.put(".continue/config.yaml", "name: mine\n");
    home.put(".claude/settings.json", "{ broken");
    let before = home.list();
    for (client, why) in [
        ("continue", "YAML is not edited"),
        ("claude-code", "it is no JSON"),
    ] {
        let (shown, error) = home.run(&format!("connect {client} --write"));
        let error = error.unwrap();
        assert!(error.contains(why) && error.contains("by hand"), "{error}");
        assert!(shown.contains("http://127.0.0.1:1"), "{shown}");
    }
    assert_eq!(home.list(), before);
    let (_, error) = home.run("connect cline --write");
    let error = error.unwrap();
    assert!(error.starts_with("nothing was written: Cline"), "{error}");
}

/// Texts of a client's file: good ones, broken ones, and none.
fn any_file() -> impl Strategy<Value = Option<String>> {
    let json = prop_oneof![
        Just("{}"),
        Just("{ \"a\": 1 }"),
        Just("{\n  // c\n  \"env\": { \"X\": \"1\", },\n}\n"),
        Just("{\n\t\"env\": {}\n}"),
        Just("[]"),
        Just("{\"env\": 3}"),
    ];
    let toml = prop_oneof![
        Just("model = \"x\""),
        Just("# c\n\n[a]\nb = 1 # d\n"),
        Just("model_providers = { a = { b = 1 } }\n"),
        Just("model_provider = \"own\"\n[model_providers.plimsoll]\nname = 'p'\n"),
    ];
    let made = (
        prop_oneof![json, toml],
        "[ \n]{0,3}",
        any::<bool>(),
        any::<bool>(),
    );
    let made = made.prop_map(|(text, end, returns, mark)| {
        let text = format!("{}{text}{end}", if mark { "\u{feff}" } else { "" });
        if returns {
            text.replace('\n', "\r\n")
        } else {
            text
        }
    });
    prop_oneof![8 => made.prop_map(Some), 2 => ".{0,40}".prop_map(Some), 1 => Just(None)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is in a file, it is there again, byte for byte, and so is its absence.
    #[test]
    fn disconnect_brings_every_byte_back(text in any_file(), is_json in any::<bool>()) {
        let (client, name) = if is_json {
            ("claude-code", ".claude/settings.json")
        } else {
            ("codex", ".codex/config.toml")
        };
        let home = Home::new();
        if let Some(text) = &text {
            home.put(name, text);
        }
        let before = home.list();
        let (_, refused) = home.run(&format!("connect {client} --write"));
        if refused.is_none() {
            let written = home.read(name);
            prop_assert!(written.contains(NOWHERE));
            home.succeed("disconnect");
        }
        prop_assert_eq!(home.list(), before);
    }
}
