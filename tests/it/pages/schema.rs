//! `config.schema.json`, by which editors check settings files: that it is the one of the program, and what it accepts.

use std::{fs, process::Command};

use figment::providers::{Format, Toml};
use jsonschema::{Draft, Validator};
use serde_json::Value;

use super::{documents, read, root};

const FILE: &str = "config.schema.json";

fn printed() -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("schema")
        .output();
    String::from_utf8(done.unwrap().stdout).unwrap()
}

/// The schema, which is valid itself.
struct Checker(Validator);

impl Checker {
    fn new() -> Self {
        let schema = serde_json::from_str(&printed()).unwrap();
        let options = jsonschema::options().with_draft(Draft::Draft202012);
        Self(options.build(&schema).expect("a schema"))
    }

    /// What is wrong with a settings file: each fault with its place.
    fn check(&self, text: &str) -> Result<(), String> {
        let settings: Value =
            Toml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let faults = self.0.iter_errors(&settings);
        let faults: Vec<String> = faults
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults.join("\n"))
        }
    }
}

/// `UPDATE_GOLDEN=1` writes the file anew.
#[test]
fn the_file_beside_the_settings_is_what_the_program_prints() {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(root().join(FILE), printed()).unwrap();
    }
    assert!(
        read(FILE) == printed(),
        "UPDATE_GOLDEN=1 writes {FILE} anew"
    );
    assert!(read("config.toml").starts_with(&format!("#:schema ./{FILE}\n")));
}

#[test]
fn the_shipped_settings_and_all_examples_fit_the_schema() {
    let checker = Checker::new();
    let shipped = read("config.toml");
    assert_eq!(checker.check(&shipped), Ok(()));
    let is_example = |line: &&str| !line.is_empty() && !line.starts_with([' ', ':']);
    let lines = shipped.lines();
    let lines = lines.map(|line| line.strip_prefix('#').filter(is_example).unwrap_or(line));
    let with_examples = lines.collect::<Vec<_>>().join("\n");
    assert!(with_examples.contains("\n[providers.openai]\n"));
    assert_eq!(checker.check(&with_examples), Ok(()));
    for page in documents() {
        for block in page.blocks("toml") {
            assert_eq!(checker.check(block), Ok(()), "{}", page.path);
        }
    }
}

#[test]
fn what_the_program_refuses_the_schema_refuses() {
    let checker = Checker::new();
    for (wrong, why) in [
        ("[servre]\n", "a misspelt section"),
        ("[server]\nlisen = \"127.0.0.1:1\"", "a misspelt key"),
        ("[server]\nmax_connections = \"7\"", "text for a number"),
        ("[server]\nmax_connections = 0", "a number out of range"),
        (
            "[server]\nmax_connections = 1.5",
            "a part for a whole number",
        ),
        ("[guard]\nenabled = 1", "a number for a switch"),
        ("[guard]\nkeep = \"least\"", "no choice"),
        ("[guard]\nlow_water = 2.0", "a share out of range"),
        (
            "[guard.caps]\nschema = \"4000\"",
            "text for the number of a name",
        ),
        ("[recovery]\nlanguage = \"English\"", "another spelling"),
        (
            "[providers.a]\nbase_ulr = \"http://a/v1\"",
            "a misspelt key of a name",
        ),
        ("[providers.a]\nformats = [\"chats\"]", "no entry of a list"),
        ("[providers.a]\nprofile = \"open-ai\"", "no profile"),
        (
            "[providers.a]\nheaders = { \"x-a\" = 1 }",
            "a number for a header",
        ),
        (
            "[models.a]\ndeployments = [{ modle = \"a/b\" }]",
            "a misspelt key in a list",
        ),
        ("[aliases]\na = [\"b\"]", "a list for a name"),
        ("providers = \"openai\"", "text for a section"),
    ] {
        assert!(checker.check(wrong).is_err(), "{why}: {wrong}");
    }
    // Bounds that follow from other settings are left to the program.
    let small =
        "[guard]\ntruncate_head_chars = 0\ntruncate_tail_chars = 0\nmax_tool_result_chars = 100";
    assert_eq!(checker.check(small), Ok(()));
}

/// Calls `see` with each key that is no section, and its schema.
fn walk(path: &str, schema: &Value, see: &mut impl FnMut(&str, &Value)) {
    let named = Some(("NAME", &schema["additionalProperties"])).filter(|it| it.1.is_object());
    let keys = schema["properties"].as_object().into_iter().flatten();
    let mut count = 0;
    for (key, inner) in keys.map(|(key, it)| (key.as_str(), it)).chain(named) {
        walk(format!("{path}.{key}").trim_start_matches('.'), inner, see);
        count += 1;
    }
    if count == 0 {
        see(path, schema);
    }
}

#[test]
fn every_key_has_a_type_a_description_and_its_default() {
    let schema: Value = serde_json::from_str(&printed()).unwrap();
    let mut seen = 0;
    walk("", &schema, &mut |key, it| {
        seen += 1;
        assert!(it["type"].is_string(), "no type of {key}");
        let is_named = key.ends_with(".NAME");
        assert!(
            is_named || it["description"].is_string(),
            "no description of {key}"
        );
    });
    assert!(seen > 110, "{seen}");
    let at = |place: &str| schema.pointer(place).unwrap_or_else(|| panic!("{place}"));
    let drain = at("/properties/server/properties/drain_timeout_ms");
    assert_eq!(drain["default"], 30_000);
    assert_eq!(drain["maximum"], 86_400_000);
    assert!(
        drain["description"]
            .as_str()
            .unwrap()
            .starts_with("Milliseconds")
    );
    assert_eq!(
        at("/properties/guard/properties/keep/enum")
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let provider = "/properties/providers/additionalProperties/properties";
    assert_eq!(
        at(provider)["auth"]["enum"],
        serde_json::json!(["client", "none"])
    );
}
