use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use clap::Parser;

use super::run;
use crate::{
    cli::{CliArguments, Command, CommandError},
    config::{Environment, Flags},
};

/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:1";

/// The output of the command with these settings.
fn listed(text: &str, ask: bool) -> String {
    let (shown, result) = named(text, ask, &[]);
    result.unwrap();
    shown
}

/// The output for these names, and how the command ended.
fn named(text: &str, ask: bool, names: &[&str]) -> (String, Result<(), CommandError>) {
    named_at(NOWHERE, text, ask, names)
}

/// The same before a proxy at an address.
fn named_at(
    url: &str,
    text: &str,
    ask: bool,
    names: &[&str],
) -> (String, Result<(), CommandError>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    // Tests ask nobody outside.
    fs::write(&path, format!("catalogue.url = \"\"\n{text}")).unwrap();
    let flags = Flags {
        config: Some(path),
        listen: None,
    };
    let environment = Environment::from_iter([("KEY", "sk-secret")]);
    let mut line = vec!["plimsoll", "models", "--url", url];
    line.extend(ask.then_some("--ask"));
    line.extend(names);
    let parsed = CliArguments::try_parse_from(line).unwrap();
    let Some(Command::Models(args)) = parsed.command else {
        panic!("another command");
    };
    let mut out = Vec::new();
    let result = run(&args, &flags, &environment, &mut out);
    (String::from_utf8(out).unwrap(), result)
}

/// The cells of a model's row, one space between words.
fn row(shown: &str, model: &str) -> String {
    let lines = shown
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut rows = lines.filter(|words| words.first() == Some(&model));
    let row = rows
        .next()
        .unwrap_or_else(|| panic!("no {model} in {shown}"));
    row.join(" ")
}

#[test]
fn the_last_column_lists_deployments_and_fallbacks() {
    let shown = listed(
        "[providers.a]\nbase_url = \"https://a.example/v1\"\napi_key_env = \"KEY\"\n\
         [providers.b]\nbase_url = \"https://b.example/v1\"\nauth = \"none\"\n\
         [aliases]\nfast = \"a/m\"\nfaster = \"fast\"\n\
         [models.\"a/m\"]\ncontext_length = 8192\nfallback = [\"b/x\", \"b/y\"]\nlarger = \"b/l\"\n\
         [models.\"b/l\"]\ncontext_length = 65536\n\
         [models.\"b/s\"]\ncontext_length = 65536\nlarger = \"a/m\"\n\
         [models.both]\nfallback = [\"b/l\"]\n\
         deployments = [{ model = \"a/m\", weight = 3 }, { model = \"b/x\" }]\n",
        false,
    );
    for (model, expected) in [
        (
            "a/m",
            "a/m 8192 settings - 5644 6350 else b/x, b/y; larger b/l",
        ),
        (
            "faster",
            "faster 8192 settings - 5644 6350 a/m; else b/x, b/y; larger b/l",
        ),
        ("b/l", "b/l 65536 settings - 49460 58982"),
        // A smaller model is never used as the larger one.
        ("b/s", "b/s 65536 settings - 49460 58982"),
        ("b/x", "b/x 96000 assumed - 100000 unknown"),
    ] {
        assert_eq!(row(&shown, model), expected, "{shown}");
    }
    let catalogue = "\ncatalogue: built in, of 2026-11-24, ";
    assert!(shown.contains(catalogue), "{shown}");
    let both = row(&shown, "both");
    assert!(both.ends_with("a/m 75%, b/x 25%; else b/l"), "{both}");
    let at = |line: &str| line.find("leads to").or_else(|| line.find("else b/x, b/y"));
    let heading = at(shown.lines().next().unwrap());
    let aligned = shown
        .lines()
        .find(|line| line.starts_with("  a/m "))
        .and_then(at);
    assert!(heading.is_some() && heading == aligned, "{shown}");
}

const OPENAI: &str = "[providers.openai]\nbase_url = \"https://api.openai.com/v1\"\n\
     api_key_env = \"KEY\"\nmodels = [\"gpt-*\"]\n";

#[test]
fn any_name_is_told_with_its_provider() {
    let names = ["gpt-4o", "openai/gpt-4.1", "openai/of-tomorrow"];
    let (shown, result) = named(OPENAI, false, &names);
    result.unwrap();
    for (name, expected) in [
        (
            "gpt-4o",
            "gpt-4o 128000 catalogue - 100000 115200 openai/gpt-4o",
        ),
        (
            "openai/of-tomorrow",
            "openai/of-tomorrow 96000 assumed - 100000 unknown openai/of-tomorrow",
        ),
    ] {
        assert_eq!(row(&shown, name), expected);
    }
    assert!(row(&shown, "openai/gpt-4.1").starts_with("openai/gpt-4.1 1047576 catalogue"));
    assert!(!shown.contains("simulated"), "{shown}");
    let alone = "[server]\nknown_providers = false\n";
    let (_, refused) = named(alone, false, &["gpt-4o", "simulated/plimsoll-8k", "nix*"]);
    let refused = refused.unwrap_err().to_string();
    for part in [
        "gpt-4o: The model `gpt-4o` does not exist",
        "The catalogue has it with a window of 128000 tokens.",
        "nix*: no known name begins so",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn a_name_of_a_known_provider_is_told_without_settings() {
    let (shown, result) = named("", false, &["claude-opus-4-5", "gpt-4o"]);
    result.unwrap();
    assert!(
        row(&shown, "claude-opus-4-5").ends_with("anthropic/claude-opus-4-5"),
        "{shown}"
    );
    assert!(row(&shown, "gpt-4o").ends_with("openai/gpt-4o"), "{shown}");
}

#[test]
fn a_pattern_is_told_with_the_names_that_it_covers() {
    let (shown, result) = named(OPENAI, false, &["gpt-4o*"]);
    result.unwrap();
    let covered = row(&shown, "gpt-4o-mini");
    assert!(covered.ends_with("openai/gpt-4o-mini"), "{covered}");
    assert!(shown.contains("\ngpt-4o* covers "), "{shown}");
    for other in ["gpt-5", "openai/gpt-4o"] {
        let is_other = |line: &str| line.split_whitespace().next() == Some(other);
        assert!(!shown.lines().any(is_other), "{shown}");
    }
    let (own, _) = named(OPENAI, false, &["openai/gpt-4o*"]);
    assert!(row(&own, "openai/gpt-4o-mini").starts_with("openai/gpt-4o-mini 128000"));
}

#[test]
fn simulated_models_are_listed_until_there_is_a_provider() {
    assert!(listed("", false).contains("simulated/plimsoll-8k"));
    assert!(!listed(OPENAI, false).contains("simulated"));
    let wanted = format!("{OPENAI}[providers.simulated]\nlisted = true\n");
    assert!(listed(&wanted, false).contains("simulated/plimsoll-8k"));
    let unwanted = "[providers.simulated]\nlisted = false\n";
    assert!(!listed(unwanted, false).contains("simulated/plimsoll-8k"));
    // They are served all the same.
    let (shown, _) = named(OPENAI, false, &["simulated/plimsoll-8k"]);
    assert!(row(&shown, "simulated/plimsoll-8k").starts_with("simulated/plimsoll-8k 8192"));
}

/// The address of a server that answers its first request with a list of models.
fn listing(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines();
        let asked = lines
            .map_while(Result::ok)
            .take_while(|line| !line.is_empty());
        assert!(asked.count() > 0);
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        (&stream).write_all((head + body).as_bytes()).unwrap();
    });
    format!("http://{address}/v1")
}

#[test]
fn ask_writes_the_result_of_each_provider_above_the_list() {
    let local = listing(r#"{"data":[{"id":"one.gguf","meta":{"n_ctx":4096}}]}"#);
    // No server listens on a port that was released.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let shown = listed(
        &format!(
            "[providers.local]\nbase_url = \"{local}\"\nauth = \"none\"\nmodels = [\"mine\"]\n\
             [providers.gone]\nbase_url = \"http://{gone}/v1\"\nauth = \"none\"\n\
             [providers.lent]\nbase_url = \"https://lent.example/v1\"\nauth = \"client\"\n\
             [providers.path]\nbase_url = \"https://a.example/{{model}}\"\nauth = \"none\"\n\
             [providers.quiet]\nbase_url = \"https://q.example/v1\"\nauth = \"none\"\n\
             ask_models = false\n"
        ),
        true,
    );
    let (asked, list) = shown.split_once("\n\n").unwrap();
    let expected = [
        "gone could not be reached",
        "lent: not asked, since its credentials are the client's",
        "local: lists 1 model",
        "path: not asked, since its address has a model in it",
        "quiet: not asked, since ask_models is false",
    ];
    assert_eq!(asked.lines().collect::<Vec<_>>(), expected);
    for model in ["local/one.gguf", "local/mine"] {
        let row = row(list, model);
        assert_eq!(row, format!("{model} 4096 the provider - 2419 2721"));
    }
}
