//! Files that were changed after they were written: what is taken out is what was written, and nothing else.

use super::*;

#[test]
fn what_was_added_beside_the_values_stays_and_is_named() {
    let (format, leaves) = values_of("codex");
    let set = set_leaves(format, None, &leaves).unwrap();
    let changed = set.replace(
        "wire_api =",
        "# Theirs.\nstream_max_retries = 3\n# For me.\nwire_api =",
    ) + "\n[[model_providers.plimsoll.rules]]\nname = \"a\"\n\n[model_providers.plimsoll.query_params]\nv = \"1\"\n";
    let removed = remove_leaves(format, &changed, None, &leaves).unwrap();
    assert_eq!(
        removed.text.trim_start(),
        "[model_providers.plimsoll]\n# Theirs.\nstream_max_retries = 3\n# For me.\n\
         \n[[model_providers.plimsoll.rules]]\nname = \"a\"\n\n[model_providers.plimsoll.query_params]\nv = \"1\"\n"
    );
    assert_eq!(
        removed.added,
        [
            "model_providers.plimsoll.stream_max_retries",
            "model_providers.plimsoll.query_params.v"
        ]
    );
    assert_eq!(removed.changed, [""; 0]);
}

#[test]
fn a_section_that_was_written_anew_in_another_form_is_found() {
    let (format, leaves) = values_of("codex");
    let inline = "model_provider = \"plimsoll\"\nmodel_providers = { plimsoll = { wire_api = \"responses\", mine = 1 } }\n";
    let dotted =
        "model_providers.plimsoll.wire_api = \"responses\"\nmodel_providers.plimsoll.mine = 1\n";
    for text in [inline, dotted] {
        let removed = remove_leaves(format, text, None, &leaves).unwrap();
        let left = toml::Toml::parse(&removed.text).unwrap().list_leaves();
        let paths: Vec<_> = left.iter().map(|leaf| leaf.path.join(".")).collect();
        assert_eq!(paths, ["model_providers.plimsoll.mine"], "{text}");
    }
}

#[test]
fn comments_above_what_was_written_stay() {
    let (format, leaves) = values_of("claude-code");
    let before = "{\n  \"model\": \"opus\"\n}\n";
    let set = set_leaves(format, Some(before), &leaves).unwrap();
    let changed = set.replace(
        "    \"ANTHROPIC_MODEL\"",
        "    // Mine.\n    \"ANTHROPIC_MODEL\"",
    );
    let removed = remove_leaves(format, &changed, Some(before), &leaves).unwrap();
    assert!(removed.text.contains("// Mine."), "{}", removed.text);
}

/// A line that a user puts into a file.
fn toml_line() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("# theirs"),
        Just("  # theirs, indented"),
        Just(""),
        Just("t1 = 1"),
        Just("t2 = { a = 1 } # theirs"),
        Just("t3 = \"\"\"\n# text\n\"\"\""),
        Just("[t4]"),
        Just("[[t5]]"),
        Just("[[t5]]\nt6 = 1"),
        Just("[model_providers.theirs]\nt7 = 1"),
        Just("[model_providers.plimsoll.t8]"),
        Just("[[model_providers.plimsoll.t9]]"),
    ]
}

fn json_line() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("// theirs"),
        Just("\"t1\": 1,"),
        Just("\"t2\": { \"a\": [] },"),
        Just("\"t3\": [ // theirs\n1],"),
        Just(""),
    ]
}

/// Lines put into a text, each behind the line of that number.
fn put_lines(text: &str, lines: &[(usize, &str)]) -> String {
    let mut all: Vec<&str> = text.lines().collect();
    for (at, line) in lines {
        all.insert(at % (all.len() + 1), line);
    }
    all.join("\n") + "\n"
}

/// All values that were not written are there, and what was written is not.
fn check_removed<D: Document>(
    format: FileFormat,
    before: &str,
    changed: &str,
    leaves: &[Leaf],
) -> Result<(), TestCaseError> {
    let Ok(present) = D::parse(changed).map(|it| it.list_leaves()) else {
        return Ok(());
    };
    let removed = remove_leaves(format, changed, Some(before), leaves).unwrap();
    let left = D::parse(&removed.text);
    prop_assert!(left.is_ok(), "{}\n---\n{}", changed, removed.text);
    let left = left.unwrap().list_leaves();
    let past = D::parse(before).unwrap().list_leaves();
    for leaf in &present {
        let is_own = leaves.contains(leaf);
        prop_assert!(
            is_own || left.contains(leaf),
            "{:?} is gone from\n{}\n---\n{}",
            leaf,
            changed,
            removed.text
        );
    }
    for leaf in &left {
        prop_assert!(
            present.contains(leaf) && !leaves.contains(leaf) || past.contains(leaf),
            "{:?} in\n{}\n---\n{}",
            leaf,
            changed,
            removed.text
        );
    }
    // Whole lines that are comments or headings of the user's.
    for line in changed.lines().filter(|it| it.contains("theirs")) {
        prop_assert!(
            removed.text.contains(line),
            "{} is gone from\n{}\n---\n{}",
            line,
            changed,
            removed.text
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn changed_toml_loses_only_what_was_written(
        before in toml_text(),
        lines in prop::collection::vec((any::<usize>(), toml_line()), 0..5),
    ) {
        let before = to_line_feeds(&before);
        let (format, leaves) = values_of("codex");
        if let Ok(set) = set_leaves(format, Some(&before), &leaves) {
            check_removed::<toml::Toml>(format, &before, &put_lines(&set, &lines), &leaves)?;
        }
    }

    #[test]
    fn changed_json_loses_only_what_was_written(
        before in json_text(),
        lines in prop::collection::vec((any::<usize>(), json_line()), 0..5),
    ) {
        let before = to_line_feeds(&before);
        for client in ["claude-code", "pi"] {
            let (format, leaves) = values_of(client);
            if let Ok(set) = set_leaves(format, Some(&before), &leaves) {
                check_removed::<json::Json>(format, &before, &put_lines(&set, &lines), &leaves)?;
            }
        }
    }
}
