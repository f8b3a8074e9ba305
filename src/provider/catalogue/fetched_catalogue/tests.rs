use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{DAY_S, FetchedCatalogue, PAUSE, read_kept, stored_list::StoredList};
use crate::{
    config::Config,
    provider::{
        Window, WindowSource,
        catalogue::{
            look_up_window, look_up_window_by_name,
            table::{built_in_date, built_in_since, built_in_table, parse_table},
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
        "bare": {},
        "nothing": null,
        "text": "gpt"
    }},
    "odd": {"id": "odd", "name": "Without models"},
    "list": {"models": [{"id": "m"}]},
    "none": {"models": null},
    "number": 7,
    "Mine": {"models": {"m": {"limit": {"context": 5000, "input": 5000}}}},
    "empty": {"models": {}}
}"#;

const fn entry(tokens: u32, input: Option<u32>) -> Option<Window> {
    Some(Window {
        tokens,
        input,
        taught: None,
        source: WindowSource::Catalogue,
    })
}

#[test]
fn impossible_rows_are_left_out() {
    let table = parse_table(LIST.as_bytes()).unwrap();
    let found = |provider: &str, model: &str| table.find_exact(provider, model);
    assert_eq!(found("openai", "gpt-4o"), entry(222_222, None));
    assert_eq!(found("openai", "gpt-new"), entry(400_000, Some(272_000)));
    assert_eq!(found("mine", "m"), entry(5_000, None));
    assert_eq!(table.rows, 3);
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

/// A catalogue with this list, fetched now, and what it says of its age after so many hours.
#[test]
fn a_list_is_due_after_a_day_and_old_after_a_week() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Config::default();
    settings.server.data_dir = folder.path().into();
    let (mut config, server) = (settings.catalogue, settings.server);
    config.url = Some("http://127.0.0.1:9/".to_owned());
    let catalogue = FetchedCatalogue::open(&config, &server).unwrap();
    let now = SystemTime::now();
    assert_eq!(catalogue.describe_age(now), None);
    assert_eq!(catalogue.time_until_due(0, now), Duration::ZERO);
    assert_eq!(catalogue.take_list(LIST.as_bytes(), now), Some(3));
    let after = |hours: u64| now + Duration::from_secs(hours * 3_600);
    for (hours, told, due) in [
        (0, "fetched 0 hours ago", 24),
        (1, "fetched 1 hour ago", 23),
        (30, "fetched 30 hours ago", 0),
        (7 * 24, "fetched 7 days ago", 0),
        (7 * 24 + 1, "fetched 7 days ago, which is old", 0),
    ] {
        assert_eq!(catalogue.describe_age(after(hours)).as_deref(), Some(told));
        let due = Duration::from_secs(due * 3_600);
        assert_eq!(catalogue.time_until_due(0, after(hours)), due, "{hours}");
    }
    // A clock was wrong.
    let before = now - Duration::from_secs(60);
    assert_eq!(catalogue.time_until_due(0, before), Duration::ZERO);
    // Failures are retried ever more seldom.
    assert_eq!(catalogue.time_until_due(1, now), PAUSE);
    assert_eq!(catalogue.time_until_due(3, now), 4 * PAUSE);
    assert_eq!(
        catalogue.time_until_due(u32::MAX, now),
        Duration::from_secs(DAY_S)
    );
    // It is kept: a restart finds it.
    let again = FetchedCatalogue::open(&config, &server).unwrap();
    assert_eq!(again.table().unwrap().rows, 3);
    assert_eq!(catalogue.take_list(b"{}", now), None);
}

#[test]
fn a_kept_list_that_is_older_than_the_binary_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let stored = StoredList::new(folder.path(), &"http://a/".parse().unwrap());
    let fetched = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    stored.write(LIST.as_bytes(), fetched).unwrap();
    assert!(read_kept(&stored, fetched).is_some());
    assert!(read_kept(&stored, fetched + Duration::from_secs(1)).is_none());
    stored.write(b"<html>", fetched).unwrap();
    assert!(read_kept(&stored, UNIX_EPOCH).is_none());
}

#[test]
fn the_date_of_the_built_in_table_is_a_time() {
    let midnight = httpdate::fmt_http_date(built_in_since());
    let (year, day) = (&built_in_date()[..4], &built_in_date()[8..]);
    assert!(
        midnight.ends_with(&format!(" {year} 00:00:00 GMT"))
            && midnight.contains(&format!(", {day} ")),
        "{midnight}"
    );
    assert!(built_in_since() > UNIX_EPOCH + Duration::from_secs(1_795_000_000));
}

/// Resellers of a fetched list do not make a well-known model unknown.
#[test]
fn only_providers_of_the_built_in_table_have_a_say_by_name() {
    let text = r#"{"reseller":{"models":{"gpt-4o":{"limit":{"context":64000}},
        "mine-only":{"limit":{"context":7000}}}}}"#;
    let table = parse_table(text.as_bytes()).unwrap();
    let context = |model: &str| look_up_window_by_name(&table, model).map(|found| found.tokens);
    assert_eq!(context("gpt-4o"), Some(128_000));
    assert_eq!(context("mine-only"), Some(7_000));
    let own = look_up_window(&table, "reseller", "gpt-4o");
    assert_eq!(own.unwrap().tokens, 64_000);
}
