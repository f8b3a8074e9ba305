//! The table of log messages, held to the sources.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    page,
    sources::{self, SourceFile},
};

const PAGE: &str = "docs/operations/logs.md";
const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// A call of a macro that logs.
#[derive(Debug, PartialEq)]
struct Message {
    level: &'static str,
    /// With `…` for each part that differs.
    text: String,
    fields: Vec<String>,
}

/// The text up to the parenthesis that closes the call, cut at its commas.
fn arguments(call: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let (mut depth, mut is_string, mut is_escaped) = (0, false, false);
    for it in call.chars() {
        match it {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_string = !is_string,
            _ if is_string => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        found.last_mut().unwrap().push(it);
    }
    found.iter().map(|it| it.trim().to_owned()).collect()
}

/// What a literal of a message says, without what is filled in.
fn text_of(literal: &str) -> String {
    let mut lines = literal.split("\\\n");
    let mut text = lines.next().unwrap_or_default().to_owned();
    text.extend(lines.map(str::trim_start));
    let text = text
        .trim_matches('"')
        .replace("\\n", " ")
        .replace("\\\"", "\"");
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        filled.push('…');
        filled.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    filled
}

fn field_of(argument: &str) -> String {
    let name = argument.split('=').next().unwrap_or_default();
    name.trim().trim_start_matches(['%', '?']).to_owned()
}

fn message(level: &'static str, call: &str) -> Option<Message> {
    let arguments = arguments(call);
    let at = arguments.iter().position(|it| it.starts_with('"'))?;
    Some(Message {
        level,
        text: text_of(&arguments[at]),
        fields: arguments[..at].iter().map(|it| field_of(it)).collect(),
    })
}

fn messages(text: &str) -> Vec<Message> {
    let mut found = Vec::new();
    for level in LEVELS {
        let name = format!("{level}!(");
        for (at, _) in text.match_indices(&name) {
            let line = text[..at]
                .rsplit('\n')
                .next()
                .unwrap_or_default()
                .trim_start();
            let is_whole = !line.ends_with(|it: char| it.is_alphanumeric() || it == '_');
            if is_whole && !line.starts_with("//") {
                found.extend(message(level, &text[at + name.len()..]));
            }
        }
    }
    found
}

/// The rows of the table by the sources, without their meanings.
fn expected_rows() -> BTreeSet<String> {
    let mut found = BTreeMap::<(String, &str, String), Vec<String>>::new();
    for SourceFile { path, text } in sources::all() {
        let module = path.iter().next().unwrap().to_str().unwrap();
        for message in messages(&text) {
            let key = (
                module.trim_end_matches(".rs").to_owned(),
                message.level,
                message.text,
            );
            let fields = found.entry(key).or_default();
            let new = message.fields.into_iter().filter(|it| !fields.contains(it));
            let new: Vec<String> = new.collect();
            fields.extend(new);
        }
    }
    // What is filled in whole has a table of its own.
    found.retain(|(_, _, text), _| text != "…");
    let rows = found.into_iter().map(|((module, level, text), fields)| {
        let fields: Vec<String> = fields.iter().map(|it| format!("`{it}`")).collect();
        format!("| `{module}` | {level} | {text} | {} |", fields.join(" "))
    });
    rows.collect()
}

#[test]
fn every_message_is_described() {
    let page = page(PAGE);
    let (_, rest) = page.text.split_once("<!-- messages: begin -->").unwrap();
    let (table, rest) = rest.split_once("<!-- messages: end -->").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let described: BTreeSet<String> = rows
        .map(|row| {
            let (row, _meaning) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
            format!("{row} |")
        })
        .collect();
    let expected = expected_rows();
    assert!(expected.len() > 60, "{expected:#?}");
    let missing: Vec<_> = expected.difference(&described).collect();
    let stale: Vec<_> = described.difference(&expected).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "{PAGE} lacks {missing:#?} and has {stale:#?}"
    );
    let code: String = sources::all().into_iter().map(|it| it.text).collect();
    let mut others = 0;
    for row in rest.lines().filter(|line| line.starts_with("| `")) {
        let text = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        assert!(code.contains(&format!("\"{text}\"")), "no message {text}");
        others += 1;
    }
    assert!(others > 3, "{others}");
}

#[test]
fn a_call_of_a_macro_is_read() {
    let text = "    tracing::warn!(%error, of = f(a, \"x, )\"), \"a \\\n        b: {c:?}, \\\"d\\\"\\n{e}\");\n\
                // info!(\"no\");\nmy_info!(\"no\");\ninfo!(\"yes\");\n";
    let found = messages(text);
    let expected = [
        ("warn", "a b: …, \"d\" …", vec!["error", "of"]),
        ("info", "yes", vec![]),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (message, (level, text, fields)) in found.iter().zip(expected) {
        assert_eq!((message.level, message.text.as_str()), (level, text));
        assert_eq!(message.fields, fields);
    }
}

#[test]
fn every_field_of_the_line_of_a_request_exists() {
    let page = page(PAGE);
    let (_, rest) = page.text.split_once("## The line of a request").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let code: String = sources::all().into_iter().map(|it| it.text).collect();
    let (_, line) = code.split_once("tracing::event!(").unwrap();
    let logged: BTreeSet<String> = arguments(line).iter().map(|it| field_of(it)).collect();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let described = rows.flat_map(|row| {
        let cell = row.split(" | ").next().unwrap();
        super::spans(cell).map(str::to_owned).collect::<Vec<_>>()
    });
    let described: BTreeSet<String> = described.collect();
    let others: Vec<_> = logged.symmetric_difference(&described).collect();
    // The level, and the message.
    assert_eq!(others, ["\"request answered\"", "$level"]);
}
