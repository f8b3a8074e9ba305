use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use super::{FILE, FetchedCatalogue, to_unix_seconds};
use crate::{
    config::CatalogueConfig,
    provider::{
        Window, WindowSource,
        catalogue::{
            look_up_window,
            table::{built_in_table, parse_table},
        },
    },
};

const LIST: &str = r#"{
    "openai": {"id": "openai", "name": "OpenAI", "models": {
        "gpt-4o": {"id": "gpt-4o", "limit": {"context": 222222, "output": 16384}},
        "GPT-New": {"limit": {"context": 400000, "input": 272000, "output": 128000}},
        "tiny": {"limit": {"context": 512}},
        "huge": {"limit": {"context": 100000001}},
        "vast": {"limit": {"context": 99999999999}},
        "negative": {"limit": {"context": -1}},
        "worded": {"limit": {"context": "128000"}},
        "without": {"limit": null},
        "bare": {}
    }},
    "Mine": {"models": {"m": {"limit": {"context": 5000, "input": 5000}}}},
    "empty": {"models": {}}
}"#;

const fn entry(tokens: u32, input: Option<u32>) -> Option<Window> {
    Some(Window {
        tokens,
        input,
        source: WindowSource::Catalogue,
    })
}

fn config(url: Option<&str>) -> CatalogueConfig {
    CatalogueConfig {
        url: url.map(str::to_owned),
        max_age: Duration::from_secs(1_000),
        learnt_max_age: Duration::from_secs(60),
    }
}

fn open(folder: &Path) -> Arc<FetchedCatalogue> {
    let config = config(Some("https://list.example/api.json?key=k"));
    FetchedCatalogue::open(&config, folder).unwrap()
}

/// The file after a fetch at that second.
fn write_fetched(folder: &Path, fetched_at: u64) -> String {
    let now = UNIX_EPOCH + Duration::from_secs(fetched_at);
    assert_eq!(open(folder).store_list(LIST.as_bytes(), now).unwrap(), 3);
    fs::read_to_string(folder.join(FILE)).unwrap()
}

#[test]
fn impossible_rows_are_left_out() {
    let table = parse_table(LIST.as_bytes()).unwrap();
    let found = |provider: &str, model: &str| table.find_exact(provider, model);
    assert_eq!(found("openai", "gpt-4o"), entry(222_222, None));
    assert_eq!(found("openai", "gpt-new"), entry(400_000, Some(272_000)));
    assert_eq!(found("mine", "m"), entry(5_000, None));
    assert_eq!(table.len(), 3);
    assert!(!table.has_provider("empty"));
}

#[test]
fn an_answer_that_is_no_list_is_refused() {
    for none in [
        "",
        "<html>",
        "[]",
        "{}",
        "null",
        r#"{"error":"x"}"#,
        r#"{"openai":{"models":[]}}"#,
        r#"{"openai":{"models":{"m":{"limit":{"context":1}}}}}"#,
    ] {
        assert_eq!(parse_table(none.as_bytes()), None, "{none}");
    }
}

#[test]
fn fetched_rows_replace_the_built_in_ones() {
    let newer = parse_table(LIST.as_bytes()).unwrap();
    let found = |provider, model| look_up_window(&newer, provider, model);
    let shipped = |provider, model| look_up_window(built_in_table(), provider, model);
    assert_eq!(found("openai", "gpt-4o").unwrap().tokens, 222_222);
    let dated = found("openai", "gpt-4o-2031-01-01");
    assert_eq!(dated.unwrap().tokens, 222_222);
    // A longer built-in name goes before a shorter one of the list.
    for model in ["gpt-4o-mini", "gpt-4"] {
        assert_eq!(found("openai", model), shipped("openai", model));
    }
    assert_eq!(found("mine", "M").unwrap().tokens, 5_000);
    assert_eq!(found("other", "m"), None);
    assert_eq!(found("openai", "m"), None);
}

#[test]
fn the_fetched_catalogue_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let text = write_fetched(&data, 500);
    assert!(!text.contains("key=k"), "the address may hold a key");
    let again = open(&data);
    let expected = parse_table(LIST.as_bytes()).unwrap();
    assert_eq!(*again.table().unwrap(), expected);
    let fresh_at = |second| again.time_until_stale(UNIX_EPOCH + Duration::from_secs(second));
    assert_eq!(fresh_at(500), Duration::from_secs(1_000));
    assert_eq!(fresh_at(1_400), Duration::from_secs(100));
    assert_eq!(fresh_at(1_500), Duration::ZERO);
    assert_eq!(fresh_at(499), Duration::ZERO, "fetched in the future");
    let files = fs::read_dir(&data).unwrap().count();
    assert_eq!(files, 1, "no temporary file is left");
}

#[test]
fn a_damaged_or_foreign_file_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let sound = write_fetched(folder.path(), 500);
    let path = folder.path().join(FILE);
    let check = |text: &str, problem: Option<&str>| {
        fs::write(&path, text).unwrap();
        let fetched = open(folder.path());
        assert_eq!(fetched.read_file().err(), problem, "{text}");
        assert_eq!(fetched.table().is_none(), problem.is_some(), "{text}");
    };
    check(&sound, None);
    check(&sound[..sound.len() / 2], Some("it is damaged"));
    check("", Some("it is damaged"));
    check(LIST, Some("it is damaged"));
    let foreign = Some("it was fetched from another address");
    check(&sound.replace("catalogue-2", "catalogue-3"), foreign);
    let digest = "source_sha256\":\"";
    check(&sound.replace(digest, &format!("{digest}0")), foreign);
    let emptied = sound.split("\"list\"").next().unwrap();
    check(&format!("{emptied}\"list\":{{}}}}"), Some("it is damaged"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let unreadable = open(folder.path());
    assert_eq!(unreadable.read_file().err(), Some("it cannot be read"));
}

#[test]
fn without_an_address_the_file_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    write_fetched(folder.path(), to_unix_seconds(std::time::SystemTime::now()));
    assert!(FetchedCatalogue::open(&config(None), folder.path()).is_none());
}
