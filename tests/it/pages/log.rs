//! The table of log messages, held to the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::{
    page, root,
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

/// A row of the table, but for its meaning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    module: String,
    /// Its place in [`LEVELS`].
    level: usize,
    text: String,
    fields: String,
}

impl Row {
    /// A line of the table, and the meaning in it.
    fn read(line: &str) -> Option<(Self, &str)> {
        let cells = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let cells: Vec<&str> = cells.split(" | ").collect();
        let [module, level, text, fields, meaning] = cells[..] else {
            panic!("{line} has {} cells", cells.len());
        };
        let row = Self {
            module: module.trim_end_matches('`').to_owned(),
            level: LEVELS.iter().position(|it| *it == level)?,
            text: text.to_owned(),
            fields: fields.to_owned(),
        };
        Some((row, meaning))
    }

    fn write(&self, meaning: &str) -> String {
        let Self {
            module,
            level,
            text,
            fields,
        } = self;
        let level = LEVELS[*level];
        format!("| `{module}` | {level} | {text} | {fields} | {meaning} |\n")
    }

    /// Whether it may be the same message in other words.
    fn is_like(&self, other: &Self) -> bool {
        (&self.module, self.level, &self.fields) == (&other.module, other.level, &other.fields)
    }
}

/// The rows of the table by the sources.
fn expected_rows() -> BTreeSet<Row> {
    let mut found = BTreeMap::<(String, &str, String), Vec<String>>::new();
    for SourceFile { path, text } in sources::all() {
        let module = path.iter().next().unwrap().to_str().unwrap();
        let module = module.trim_end_matches(".rs");
        for message in messages(&text) {
            let key = (module.to_owned(), message.level, message.text);
            let fields = found.entry(key).or_default();
            for field in message.fields {
                let field = format!("`{field}`");
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
    }
    // What is filled in whole has a table of its own.
    found.retain(|(_, _, text), _| text != "…");
    let rows = found
        .into_iter()
        .map(|((module, level, text), fields)| Row {
            module,
            level: LEVELS.iter().position(|it| *it == level).unwrap(),
            text,
            fields: fields.join(" "),
        });
    rows.collect()
}

/// The page's text before the table, its lines, and the text after it.
fn parts(page: &str) -> (&str, &str, &str) {
    let (before, rest) = page.split_once("<!-- messages: begin -->").unwrap();
    let (table, after) = rest.split_once("<!-- messages: end -->").unwrap();
    (before, table, after)
}

/// The page with the expected rows. A message keeps its meaning, also where one was reworded alone.
fn rewritten(page: &str, expected: &BTreeSet<Row>) -> String {
    let (before, table, after) = parts(page);
    let described: BTreeMap<Row, &str> = table.lines().filter_map(Row::read).collect();
    let stale = described.keys().filter(|row| !expected.contains(row));
    let stale: Vec<&Row> = stale.collect();
    let missing = expected.iter().filter(|row| !described.contains_key(row));
    let missing: Vec<&Row> = missing.collect();
    let only = |rows: &[&Row], like: &Row| rows.iter().filter(|it| it.is_like(like)).count() == 1;
    let mut text = format!(
        "{before}<!-- messages: begin -->\n\n\
         | module | level | message | fields | meaning |\n| --- | --- | --- | --- | --- |\n"
    );
    for row in expected {
        let reworded = stale.iter().find(|it| it.is_like(row));
        let reworded = reworded.filter(|_| only(&stale, row) && only(&missing, row));
        let meaning = described.get(row);
        let meaning = meaning.or_else(|| described.get(*reworded?));
        text.push_str(&row.write(meaning.copied().unwrap_or_default()));
    }
    format!("{text}\n<!-- messages: end -->{after}")
}

/// `UPDATE_GOLDEN=1` writes the table anew; what a new message means is left to be said.
#[test]
fn every_message_is_described() {
    let text = page(PAGE).text;
    let expected = expected_rows();
    assert!(expected.len() > 60, "{expected:#?}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(root().join(PAGE), rewritten(&text, &expected)).unwrap();
        return;
    }
    let (_, table, _) = parts(&text);
    let rows = table.lines().filter_map(Row::read);
    let described: BTreeSet<Row> = rows.map(|(row, _)| row).collect();
    let missing: Vec<_> = expected.difference(&described).collect();
    let stale: Vec<_> = described.difference(&expected).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "{PAGE} lacks {missing:#?} and has {stale:#?}; UPDATE_GOLDEN=1 writes it anew"
    );
}

#[test]
fn every_message_of_two_levels_exists() {
    let text = page(PAGE).text;
    let (_, _, rest) = parts(&text);
    let code: String = sources::all().into_iter().map(|it| it.text).collect();
    let mut seen = 0;
    for row in rest.lines().filter(|line| line.starts_with("| `")) {
        let text = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        assert!(code.contains(&format!("\"{text}\"")), "no message {text}");
        seen += 1;
    }
    assert!(seen > 3, "{seen}");
}

#[test]
fn a_reworded_message_keeps_its_meaning() {
    let row = |text: &str, fields: &str| Row {
        module: "store".into(),
        level: 1,
        text: text.into(),
        fields: fields.into(),
    };
    let [old, kept] = [row("old words", "`a`"), row("kept", "")];
    let table = old.write("so it is") + &kept.write("as before");
    let page = format!("x<!-- messages: begin -->{table}<!-- messages: end -->y");
    let expected = BTreeSet::from([row("new words", "`a`"), row("added", "`b`"), kept.clone()]);
    let page = rewritten(&page, &expected);
    let rows: Vec<_> = page.lines().filter_map(Row::read).collect();
    let meanings: Vec<_> = rows
        .iter()
        .map(|(row, meaning)| (row.text.as_str(), *meaning))
        .collect();
    assert_eq!(
        meanings,
        [
            ("added", ""),
            ("kept", "as before"),
            ("new words", "so it is")
        ]
    );
    assert_eq!(rewritten(&page, &expected), page);
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
