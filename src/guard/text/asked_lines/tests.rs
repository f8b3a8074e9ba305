use super::*;

fn words(pattern: &str) -> Vec<String> {
    split_words(pattern)
}

/// The stretches that are chosen of a whole text, with markers of 50 characters.
fn chosen(arguments: &str, text: &str) -> Vec<String> {
    let asked = AskedLines::from_arguments(arguments);
    let chars: Vec<char> = text.chars().collect();
    let stretches = asked.choose_stretches(text, &(0..chars.len()), 10_000, 50);
    let stretches = stretches.into_iter();
    stretches
        .map(|stretch| chars[stretch].iter().collect())
        .collect()
}

#[test]
fn a_pattern_counts_by_its_words() {
    assert_eq!(words(r"fn \w+_handler\("), ["_handler"]);
    assert_eq!(words(r"colou?r"), ["colo"]);
    assert_eq!(words("[a-z]+_total{3}x"), ["_total"]);
    assert_eq!(words("retry the upstream"), ["retry", "the", "upstream"]);
    assert_eq!(words("错误"), ["错误"]);
    for none in ["", ".*", "a|b", r"\d\d\", "[", "{", "????"] {
        assert!(words(none).is_empty(), "{none}");
    }
}

#[test]
fn errors_and_what_is_indented_behind_them_are_chosen() {
    let text = "ok\nTraceback (most recent call last):\n  File \"a.py\", line 3\n    x()\nValueError: no\n  ok\n\nok\n";
    assert_eq!(
        chosen("", text),
        [
            "Traceback (most recent call last):",
            "  File \"a.py\", line 3",
            "    x()",
            "ValueError: no",
            "  ok"
        ]
    );
    assert_eq!(
        chosen("{}", "0 errors\nall is well\n编译失败：z\n"),
        ["编译失败：z"]
    );
}

#[test]
fn what_few_lines_are_comes_first() {
    let errors = "an error of many\n".repeat(1_000);
    let text = format!("{errors}Needle in a Haystack\nhaystack\n{errors}");
    let query = r#"{"query": "NEEDLE haystack"}"#;
    let lines = chosen(query, &text);
    assert!(lines.contains(&"Needle in a Haystack".to_owned()));
    assert!(lines.len() > 100 && lines.iter().map(|it| it.len() + 1).sum::<usize>() <= MAX_CHARS);
    let any = chosen(
        r#"{"pattern": "needle|hay(stack)"}"#,
        "needle\nhaystack\nno\n",
    );
    assert_eq!(any, ["needle", "haystack"]);
}

#[test]
fn a_range_is_found_by_printed_numbers_or_by_place() {
    let plain: String = (1..=50)
        .map(|nth| format!("line of text {nth}\n"))
        .collect();
    let numbered: String = (1..=50)
        .map(|nth| format!("  {:>4}→text\n", nth + 10))
        .collect();
    for arguments in [
        r#"{"start_line": 21, "end_line": 22}"#,
        r#"{"view_range": [21, 22]}"#,
        r#"{"lines": "21-22"}"#,
        r#"{"offset": 21, "limit": 1}"#,
    ] {
        assert_eq!(
            chosen(arguments, &plain),
            ["line of text 21", "line of text 22"]
        );
        assert_eq!(chosen(arguments, &numbered), ["    21→text", "    22→text"]);
    }
    assert_eq!(chosen(r#"{"offset": 21}"#, &plain), [""; 0]);
}

#[test]
fn of_a_long_line_the_part_around_what_was_found_is_chosen() {
    let text = format!("{} error {}\n", "字".repeat(5_000), "x".repeat(5_000));
    let lines = chosen("", &text);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].chars().count(), MAX_LINE_CHARS);
    assert!(lines[0].contains(" error "), "{lines:?}");
}
