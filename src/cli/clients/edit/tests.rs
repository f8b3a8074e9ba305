use proptest::prelude::*;

use super::{super::find_client, *};

mod changed;

const BASE: &str = "http://127.0.0.1:1876";

/// The values of a client's first file for two models, the second one of an unknown window.
fn values_of(client: &str) -> (FileFormat, Vec<Leaf>) {
    let model = |name: &str, window| Values {
        base: BASE.into(),
        model: Some(name.into()),
        window,
        ..Values::default()
    };
    let file = &find_client(client).unwrap().files[0];
    let models = [model("local/a", Some(32_000)), model("local/b", None)];
    (file.format, list_leaves(file, &models))
}

fn assert_returns(client: &str, text: &str, with: &str) {
    let (format, leaves) = values_of(client);
    let set = set_leaves(format, Some(text), &leaves).unwrap();
    assert_eq!(set, with);
    let removed = remove_leaves(format, &set, Some(text), &leaves).unwrap();
    assert_eq!(removed.text, text);
    assert_eq!(removed.changed, [""; 0]);
}

#[test]
fn json_keeps_comments_commas_and_indents() {
    assert_returns(
        "claude-code",
        "{\n\t// Mine.\n\t\"model\": \"opus\", // for now\n\t\"env\": {\n\t\t\"A\": \"b\",\n\t},\n}",
        "{\n\t// Mine.\n\t\"model\": \"opus\", // for now\n\t\"env\": {\n\t\t\"A\": \"b\",\n\
         \t\t\"ANTHROPIC_BASE_URL\": \"http://127.0.0.1:1876\",\n\t\t\"ANTHROPIC_MODEL\": \"local/a\",\n\
         \t\t\"ANTHROPIC_DEFAULT_HAIKU_MODEL\": \"local/a\",\n\
         \t\t\"CLAUDE_CODE_MAX_CONTEXT_TOKENS\": \"32000\",\n\
         \t\t\"CLAUDE_CODE_AUTO_COMPACT_WINDOW\": \"32000\",\n\
         \t\t\"CLAUDE_CODE_GATEWAY_HINT_HEADERS\": \"1\",\n\t},\n}",
    );
}

#[test]
fn toml_keeps_comments_and_other_tables() {
    assert_returns(
        "codex",
        "model = \"x\" # mine\nprofile = 'z'\n\n# Other.\n[model_providers.own]\nname = \"own\"\n",
        "model = \"local/a\" # mine\nprofile = 'z'\nmodel_provider = \"plimsoll\"\n\
         model_context_window = 32000\n\n# Other.\n[model_providers.own]\nname = \"own\"\n\n\
         [model_providers.plimsoll]\nname = \"plimsoll\"\nbase_url = \"http://127.0.0.1:1876/v1\"\n\
         wire_api = \"responses\"\nrequires_openai_auth = true\n\n\
         [model_providers.plimsoll.env_http_headers]\nx-plimsoll-key = \"PLIMSOLL_KEY\"\n",
    );
}

#[test]
fn an_unknown_window_is_left_out_and_models_stand_side_by_side() {
    let (format, leaves) = values_of("pi");
    let text = set_leaves(format, None, &leaves).unwrap();
    let written: Value = serde_json::from_str(&text).unwrap();
    let models = &written["providers"]["plimsoll"]["models"];
    assert_eq!(
        *models,
        serde_json::json!([{"id": "local/a", "contextWindow": 32000, "maxTokens": 8000},
            {"id": "local/b", "maxTokens": 8192}])
    );
    let (_, leaves) = values_of("opencode");
    let first = leaves.iter().find(|leaf| leaf.path == ["model"]).unwrap();
    assert_eq!(first.value, "plimsoll/local/a");
}

#[test]
fn what_the_user_changed_since_stays() {
    let (format, leaves) = values_of("codex");
    let before = "model = \"x\"\n";
    let set = set_leaves(format, Some(before), &leaves).unwrap();
    let changed = set
        .replace("http://127.0.0.1:1876/v1", "http://other/v1")
        .replace("model_provider =", "# Theirs.\nnew = 1\nmodel_provider =");
    let removed = remove_leaves(format, &changed, Some(before), &leaves).unwrap();
    assert_eq!(removed.changed, ["model_providers.plimsoll.base_url"]);
    let text = removed.text;
    assert!(
        text.starts_with("model = \"x\"\n# Theirs.\nnew = 1\n"),
        "{text}"
    );
    assert!(text.contains("base_url = \"http://other/v1\""), "{text}");
    assert!(
        !text.contains("wire_api") && !text.contains("model_provider ="),
        "{text}"
    );
}

#[test]
fn what_cannot_be_edited_is_refused() {
    for (client, text) in [
        ("claude-code", "{"),
        ("claude-code", "[]"),
        ("claude-code", "{\"env\": 1}"),
        ("claude-code", "{'env': {}}"),
        ("claude-code", "{\"env\": {}, \"env\": {}}"),
        ("claude-code", "{\r\n\"a\": 1\n}"),
        ("pi", "{\"providers\": {\"plimsoll\": {\"models\": {}}}}"),
        ("codex", "a = "),
        ("codex", "model_providers = { a = { b = 1 } }\n"),
        ("codex", "[[model_providers]]\na = 1\n"),
        ("continue", "name: mine\n"),
    ] {
        let (format, leaves) = values_of(client);
        set_leaves(format, Some(text), &leaves).expect_err(text);
    }
}

/// JSON of a few members, with comments, in one of three layouts.
fn json_text() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("[1, /* one */ 2]".to_owned()),
        Just("{}".to_owned()),
        Just("{ \"B\": \"c\" }".to_owned()),
        "\"[a-zäß{}/ ]{0,9}\"",
    ];
    let member = (
        prop_oneof![Just("a"), Just("b"), Just("env"), Just("provider")],
        value,
    );
    let comment = prop_oneof![Just(""), Just(" // note"), Just(" /* é */")];
    let members = prop::collection::vec((member, comment), 0..4);
    let end = prop_oneof![Just(""), Just("\n"), Just("\n\n// end\n")];
    (members, any::<bool>(), any::<bool>(), any::<bool>(), end).prop_map(
        |(members, is_compact, trailing, returns, end)| {
            let mut names = Vec::new();
            let mut lines = Vec::new();
            for ((name, value), comment) in members {
                if names.contains(&name) || name == "env" && !value.starts_with('{') {
                    continue;
                }
                names.push(name);
                lines.push((format!("\"{name}\": {value}"), comment));
            }
            let count = lines.len();
            let mut text = "{".to_owned();
            for (at, (line, comment)) in lines.into_iter().enumerate() {
                let comma = if at + 1 < count || trailing { "," } else { "" };
                if is_compact {
                    text.push_str(&format!(" {line}{comma} "));
                } else {
                    text.push_str(&format!("\n  {line}{comma}{comment}"));
                }
            }
            text.push_str(if is_compact { "}" } else { "\n}" });
            text.push_str(end);
            if returns {
                text.replace('\n', "\r\n")
            } else {
                text
            }
        },
    )
}

fn toml_text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("# note"),
        Just(""),
        Just("a = 1 # one"),
        Just("model = 'x'"),
        Just("t = \"\"\"\nlong\n\"\"\""),
        Just("[table]"),
        Just("[model_providers.own]"),
        Just("b = [ 1,\n  2 ]"),
    ];
    let lines = prop::collection::hash_set(line, 0..6);
    (lines, any::<bool>(), any::<bool>()).prop_map(|(lines, returns, ends)| {
        let mut text = lines.into_iter().collect::<Vec<_>>().join("\n");
        if ends {
            text.push('\n');
        }
        if returns {
            text.replace('\n', "\r\n")
        } else {
            text
        }
    })
}

proptest! {
    /// All other values, comments and line ends are there while the values are set and after they went.
    #[test]
    fn json_keeps_everything_else(text in json_text()) {
        let (format, leaves) = values_of("claude-code");
        let set = set_leaves(format, Some(&text), &leaves).unwrap();
        let content = |text: &str| json::Json::parse(&to_line_feeds(text)).unwrap().list_leaves();
        let mut expected = content(&text);
        let is_other = |leaf: &Leaf| !leaves.iter().any(|own| own.path == leaf.path);
        expected.retain(is_other);
        let mut others = content(&set);
        others.retain(is_other);
        prop_assert_eq!(&others, &expected);
        let removed = remove_leaves(format, &set, Some(&text), &leaves).unwrap().text;
        prop_assert_eq!(content(&removed), content(&text));
        for (mark, at) in [("// note", &set), ("/* é */", &set), ("// end", &set), ("// note", &removed)] {
            prop_assert_eq!(text.matches(mark).count(), at.matches(mark).count(), "{}", at);
        }
        prop_assert_eq!(text.contains("\r\n"), removed.contains("\r\n") || !removed.contains('\n') && text.contains("\r\n"));
    }

    #[test]
    fn toml_returns_but_for_a_final_line_end(text in toml_text()) {
        let (format, leaves) = values_of("codex");
        let parses = toml::Toml::parse(&to_line_feeds(&text)).is_ok();
        let set = set_leaves(format, Some(&text), &leaves);
        prop_assert_eq!(set.is_ok(), parses, "{:?}", set);
        if let Ok(set) = set {
            let removed = remove_leaves(format, &set, Some(&text), &leaves).unwrap();
            prop_assert_eq!(removed.text.trim_end(), text.trim_end());
        }
    }

    #[test]
    fn nothing_panics(text in ".{0,60}", json in any::<bool>()) {
        let (format, leaves) = values_of(if json { "opencode" } else { "codex" });
        if let Ok(set) = set_leaves(format, Some(&text), &leaves) {
            remove_leaves(format, &set, Some(&text), &leaves).unwrap();
        }
    }
}
