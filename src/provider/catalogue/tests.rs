use proptest::prelude::*;
use serde_json::Value;

use super::{ALIASES, Entry, HOSTS, TABLE, by_name, lookup, provider_of, rows};

fn context(provider: &str, model: &str) -> Option<u32> {
    lookup(provider, model).map(|entry| entry.context)
}

#[test]
fn every_line_of_the_table_is_a_row_and_none_comes_twice() {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
    assert!(lines > 1_000);
    assert_eq!(rows().len(), lines);
    for pair in rows().windows(2) {
        let names = |n: usize| (pair[n].provider, pair[n].model);
        assert!(names(0) < names(1), "{:?} comes twice", names(1));
    }
    for row in rows() {
        assert!(row.entry.context >= 1024, "{}/{}", row.provider, row.model);
        assert!(
            row.entry
                .input
                .is_none_or(|input| input < row.entry.context)
        );
        assert_eq!(row.model, row.model.to_ascii_lowercase());
    }
}

/// The table against the facts it was made of, where these are at hand.
#[test]
fn no_known_model_is_missing() {
    let Some(folder) = std::env::var_os("PLIMSOLL_DATA") else {
        println!("PLIMSOLL_DATA is not set: the table is not compared with its facts");
        return;
    };
    let path = std::path::Path::new(&folder).join("models.json");
    let facts: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut models = 0;
    for (provider, listed) in facts["providers"].as_object().unwrap() {
        for (model, facts) in listed.as_object().unwrap() {
            let tokens = |key: &str| u32::try_from(facts.get(key)?.as_u64()?).ok();
            let context = tokens("context").unwrap();
            // A window under 1,024 tokens is no chat model's.
            let expected = (context >= 1_024).then_some(Entry {
                context,
                input: tokens("input").filter(|input| *input < context),
                output: tokens("output"),
            });
            assert_eq!(lookup(provider, model), expected, "{provider}/{model}");
            models += 1;
        }
    }
    assert!(models > 1_000, "{models}");
}

#[test]
fn every_alias_and_host_leads_into_the_table() {
    for (name, provider) in ALIASES.iter().chain(HOSTS) {
        assert_eq!(by_name(provider), Some(*provider), "{name}");
    }
}

#[test]
fn a_model_is_found_by_its_exact_name() {
    assert_eq!(context("openai", "gpt-4o"), Some(128_000));
    assert_eq!(context("openai", "gpt-4"), Some(8_192));
    assert_eq!(context("OpenAI", "GPT-4o"), Some(128_000));
    assert_eq!(context("openrouter", "openai/gpt-4o"), Some(128_000));
}

#[test]
fn a_dated_name_continues_the_plain_one() {
    assert_eq!(
        lookup("openai", "gpt-4o-2019-01-01"),
        lookup("openai", "gpt-4o")
    );
    assert_eq!(
        lookup("openrouter", "openai/gpt-4o:nitro"),
        lookup("openrouter", "openai/gpt-4o")
    );
    assert_eq!(
        lookup("openai", "gpt-4-turbo-x"),
        lookup("openai", "gpt-4-turbo")
    );
    assert_ne!(lookup("openai", "gpt-4-turbo-x"), lookup("openai", "gpt-4"));
}

#[test]
fn a_name_is_not_cut_inside_a_word() {
    assert_eq!(lookup("openai", "gpt-4x"), None);
    assert_eq!(lookup("openai", "gpt-4.25"), None);
    assert_eq!(lookup("openai", ""), None);
    assert_eq!(lookup("openai", "-"), None);
    assert_eq!(lookup("openai", "mine"), None);
}

#[test]
fn a_model_of_another_provider_is_unknown() {
    assert_eq!(lookup("deepseek", "gpt-4o"), None);
    assert_eq!(lookup("nobody", "gpt-4o"), None);
    assert_eq!(lookup("openai", "openai/gpt-4o"), None);
}

#[test]
fn the_host_decides_before_the_name() {
    for (name, base_url, provider) in [
        ("openai", None, Some("openai")),
        ("kimi", None, Some("moonshotai")),
        ("mine", Some("https://api.openai.com/v1"), Some("openai")),
        (
            "openai",
            Some("https://openrouter.ai/api/v1"),
            Some("openrouter"),
        ),
        (
            "x",
            Some("https://eu.openai.azure.com/openai/v1"),
            Some("azure"),
        ),
        ("openai", Some("https://gateway.example/v1"), Some("openai")),
        ("mine", Some("http://127.0.0.1:8080/v1"), None),
        ("mine", Some("https://api.openai.com.example/v1"), None),
        ("mine", Some("not a url"), None),
        ("ollama", Some("http://127.0.0.1:11434/v1"), None),
        ("simulated", None, None),
        ("", None, None),
    ] {
        assert_eq!(provider_of(name, base_url), provider, "{name} {base_url:?}");
    }
}

proptest! {
    #[test]
    fn no_name_makes_it_panic(provider in ".*", model in ".*", url in ".*") {
        let _ = lookup(&provider, &model);
        let _ = lookup("openai", &model);
        let _ = provider_of(&provider, Some(&url));
    }

    #[test]
    fn every_continuation_finds_the_model_or_a_longer_one(
        n in 0usize..1_000, boundary in "[-:@_]", rest in "[a-z0-9]{1,8}",
    ) {
        let row = &rows()[n];
        let name = format!("{}{boundary}{rest}", row.model);
        prop_assert!(lookup(row.provider, &name).is_some());
        prop_assert_eq!(lookup(row.provider, row.model), Some(row.entry));
    }
}
