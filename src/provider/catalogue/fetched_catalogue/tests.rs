use crate::provider::{
    Window, WindowSource,
    catalogue::{
        look_up_window,
        table::{built_in_table, parse_table},
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
