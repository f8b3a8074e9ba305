//! Golden pairs in `tests/data/inspect`, and messages about input that cannot be inspected.
//! Large conversations are generated in `tests/it/inspect.rs`.

use std::{fs, path::PathBuf};

use clap::Parser as _;

use super::{InspectArgs, run};
use crate::config::{Environment, Flags};

#[derive(clap::Parser)]
struct InspectLine {
    #[command(flatten)]
    args: InspectArgs,
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", "inspect"]
        .iter()
        .collect()
}

fn inspect(line: &[&str], settings: &str, input: &[u8]) -> Result<String, String> {
    let words = ["inspect"].iter().chain(line);
    let args = InspectLine::try_parse_from(words).map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    fs::write(&config, settings).unwrap();
    let flags = Flags {
        config: Some(config),
        listen: None,
    };
    let mut out = Vec::new();
    let environment = Environment::default();
    run(&args.args, &flags, &environment, &mut &*input, &mut out)
        .map_err(|failed| failed.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

/// `UPDATE_GOLDEN=1` writes the files again.
#[test]
fn reports_equal_the_golden_files() {
    let check = |name: &str, options: &[&str], golden: &str| {
        let file = folder().join(format!("{name}.json"));
        let line = [&[file.to_str().unwrap()], options].concat();
        let report = inspect(&line, "", b"").unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(folder().join(golden), &report).unwrap();
        }
        let expected = fs::read_to_string(folder().join(golden)).unwrap();
        assert_eq!(report, expected, "{golden}:\n{report}");
        for line in report.lines().filter(|_| golden.ends_with(".txt")) {
            assert!(line.chars().count() <= 80, "{golden}: {line}");
        }
    };
    check("fits", &[], "fits.txt");
    check("image", &[], "image.txt");
    check("orphan", &[], "orphan.txt");
    check("managed", &[], "managed.txt");
    let small = ["--window", "1024"];
    check("truncated", &small, "truncated.txt");
    check("folded", &small, "folded.txt");
    check("system-later", &small, "system-later.txt");
    check("../tools/chat", &small, "tools.txt");
    let strict = ["--window", "1100", "--profile", "mistral"];
    check("folded", &strict, "folded-strict.txt");
    let json = ["--window", "1024", "--json"];
    check("folded", &json, "folded.report.json");
}

#[test]
fn options_override_the_window_and_profile_of_the_model() {
    let settings = "[providers.garden]\nbase_url = \"http://127.0.0.1:9/v1\"\nauth = \"none\"\n\
         [models.\"garden/almanac\"]\ncontext_length = 20000\ninput_length = 15000\n";
    let report = |line: &[&str]| {
        let words = [&["-", "--json"], line].concat();
        let body = br#"{"model":"garden/almanac","messages":[]}"#;
        let text = inspect(&words, settings, body).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let plain = report(&[]);
    assert_eq!(plain["provider"], "garden");
    assert_eq!(plain["profile"], "template");
    assert_eq!(plain["window"]["tokens"], 20_000);
    assert_eq!(plain["window"]["input_limit"], 15_000);
    assert_eq!(plain["window"]["source"], "settings");
    let given = report(&["--window", "4096", "--profile", "openai"]);
    assert_eq!(given["window"]["tokens"], 4_096);
    assert!(given["window"]["input_limit"].is_null());
    assert_eq!(given["profile"], "openai");
    let other = report(&["--model", "simulated/plimsoll-32k"]);
    assert_eq!(other["model"], "simulated/plimsoll-32k");
    assert_eq!(other["window"]["source"], "catalogue");
    let unknown = report(&["--model", "garden/x"]);
    assert_eq!(unknown["window"]["source"], "assumed");
    assert!(unknown["budget_tokens"].is_null(), "{unknown}");
    assert!(unknown["uncut_because"].is_string(), "{unknown}");
    let ollama = report(&["--model", "garden/x", "--profile", "ollama"]);
    assert!(ollama["budget_tokens"].is_u64(), "{ollama}");
    assert!(ollama["uncut_because"].is_null(), "{ollama}");
}

#[test]
fn an_assumed_window_is_said_to_cut_nothing() {
    let settings = "[providers.garden]\nbase_url = \"http://127.0.0.1:9/v1\"\nauth = \"none\"\n";
    let said = "word ".repeat(400_000);
    let body = serde_json::json!({"model": "garden/x", "messages": [
        {"role": "user", "content": "Go on."}, {"role": "assistant", "content": said},
        {"role": "user", "content": "And now?"}]});
    let text = inspect(&["-"], settings, body.to_string().as_bytes()).unwrap();
    for part in [
        "96,000 tokens (assumed)",
        "open: nothing is cut before the provider refuses it",
        "the window is only guessed, so nothing is cut by it",
        "nothing: it goes on byte for byte",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("still over"), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(82), "{text}");
}

#[test]
fn the_format_is_guessed_or_named() {
    let result = "let leak = 1;\n".repeat(300);
    let body = serde_json::json!({"max_tokens": 64, "messages": [
        {"role": "user", "content": "Mend it"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": result}]}]});
    let report = |more: &[&str]| {
        let words = [&["-", "--window", "1024", "--profile", "anthropic"], more].concat();
        inspect(&words, "", body.to_string().as_bytes()).unwrap()
    };
    let guessed = report(&[]);
    assert!(guessed.contains("truncate message 2"), "{guessed}");
    assert_eq!(guessed, report(&["--format", "messages"]));
    let as_chat = report(&["--format", "chat"]);
    assert!(!as_chat.contains("truncate message"), "{as_chat}");
    let error = inspect(&["-", "--format", "x"], "", b"{}").unwrap_err();
    assert!(error.contains("possible values: chat, messages"), "{error}");
}

#[test]
fn a_guard_that_is_off_does_nothing() {
    let file = folder().join("folded.json");
    let words = [file.to_str().unwrap(), "--window", "1024"];
    let report = inspect(&words, "[guard]\nenabled = false\n", b"").unwrap();
    assert!(report.contains("guard-off"), "{report}");
    assert!(report.contains("guard.enabled = false"), "{report}");
}

#[test]
fn effects_of_caps_and_shares_are_shown() {
    let settings = "[guard]\nsystem_share = 0.05\n[guard.caps]\nschema = 100\n";
    let text = "column ".repeat(200);
    let body = format!(
        r#"{{"messages":[{{"role":"system","content":"{text}","plimsoll":{{"name":"schema","priority":"critical"}}}},
        {{"role":"system","content":[{{"type":"text","text":"{text}","plimsoll":{{"name":"\u001b[2Jx"}}}}]}},{{"role":"user","content":"u"}}]}}"#
    );
    let folder = tempfile::tempdir().unwrap();
    let fitted = folder.path().join("fitted.json");
    let words = [
        "-",
        "--window",
        "4096",
        "--output",
        fitted.to_str().unwrap(),
    ];
    let report = inspect(&words, settings, body.as_bytes()).unwrap();
    assert!(
        report.contains("  capped message 0  schema  202 -> "),
        "{report}"
    );
    assert!(report.contains("  left out message 1, part 0"), "{report}");
    assert!(!report.contains('\u{1b}'), "{report:?}");
    let fitted = fs::read_to_string(&fitted).unwrap();
    assert!(!fitted.contains("plimsoll"), "{fitted}");
    let json = inspect(
        &[&words[..3], &["--json"]].concat(),
        settings,
        body.as_bytes(),
    )
    .unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["actions"], "capped=1, left-out=1");
    assert_eq!(json["shortened"][1]["how"], "left out");
    assert_eq!(json["shortened"][0]["tokens_before"], 202);
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let body = br#"{"model":"\u001b[2Jgone","messages":[]}"#;
    let report = inspect(&["-", "--window", "2000"], "", body).unwrap();
    assert!(report.contains("?[2Jgone"), "{report:?}");
    assert!(!report.contains('\u{1b}'), "{report:?}");
}

#[test]
fn input_that_cannot_be_inspected_is_refused_with_its_reason() {
    let check = |line: &[&str], settings: &str, input: &str, expected: &str| {
        let failed = inspect(line, settings, input.as_bytes()).unwrap_err();
        assert!(failed.contains(expected), "{failed}");
    };
    check(&["no/such/file"], "", "", "no/such/file: cannot be read: ");
    let syntax = "standard input: the body is not JSON: expected value at line 2 column 13";
    check(&["-"], "", "{\n\"messages\":[}", syntax);
    let shape = "standard input: not a conversation that can be guarded: no array of messages";
    check(&["-"], "", r#"{"messages":1}"#, shape);
    check(
        &["-"],
        "",
        r#"{"messages":[]}"#,
        "the request names no model",
    );
    let unserved = r#"{"model":"nobody-has-it","messages":[]}"#;
    check(
        &["-"],
        "",
        unserved,
        "The model `nobody-has-it` does not exist",
    );
    check(
        &["-"],
        "",
        unserved,
        "Name another with --model, or give its --window.",
    );
    check(
        &["-", "--window", "100"],
        "",
        unserved,
        "100 is not in 1024..=",
    );
    check(
        &["-", "--profile", "x"],
        "",
        unserved,
        "possible values: openai",
    );
    let small = "[server]\nmax_body_bytes = 1024\n";
    let large = format!("{{\"messages\":[]{}}}", " ".repeat(2_000));
    check(&["-"], small, &large, "larger than 1024 bytes");
    let there = ["-", "--window", "2000", "--output", "no/such/folder/out"];
    check(
        &there,
        "",
        unserved,
        "no/such/folder/out: cannot be written: ",
    );
}
