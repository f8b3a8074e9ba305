use std::{fs, path::Path};

use super::{Values, find_client, find_run, list_clients};

/// The table of `docs/clients.md`, made from the rows.
fn write_table(page: &str) -> String {
    let headings: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let mut table = "| client | `plimsoll connect` | asks for | where the address stands | where its window stands | tried |\n\
                     | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for client in list_clients() {
        let heading = headings.iter().find(|it| it.starts_with(client.title));
        let title = match heading {
            Some(heading) => {
                let anchor = heading.to_lowercase().replace(' ', "-");
                format!("[{}](#{anchor})", client.title)
            }
            None => client.title.to_owned(),
        };
        let tried = if client.was_run { "yes" } else { "not run" };
        table.push_str(&format!(
            "| {title} | `{}` | `{}` | {} | {} | {tried} |\n",
            client.name, client.asks_for, client.address, client.window
        ));
    }
    table
}

#[test]
fn the_page_has_the_table_of_clients() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients.md");
    let page = fs::read_to_string(path).unwrap();
    let table = write_table(&page);
    assert!(
        page.contains(&table),
        "docs/clients.md has to have:\n{table}"
    );
}

#[test]
fn names_and_programs_are_found_and_stand_once() {
    let mut names: Vec<&str> = list_clients().map(|client| client.name).collect();
    for client in list_clients() {
        assert!(
            ![client.common_mistakes, client.title, client.key].contains(&""),
            "{}",
            client.name
        );
        for program in client.programs {
            assert_eq!(find_client(program).map(|it| it.name), Some(client.name));
        }
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let any = find_run("vim").variables.iter();
    let any: Vec<_> = any.map(|variable| variable.name).collect();
    assert_eq!(any, ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"]);
}

#[test]
fn a_text_that_names_a_value_that_is_not_there_is_left_out() {
    let values = Values {
        base: "http://127.0.0.1:1876".into(),
        window: Some(8192),
        ..Values::default()
    };
    let expanded = values.expand("{base_v1} {window} {window_text}");
    assert_eq!(
        expanded.as_deref(),
        Some("http://127.0.0.1:1876/v1 8192 8192")
    );
    assert_eq!(values.expand("{base}/{model}"), None);
    assert_eq!(values.expand("{env:KEY}").as_deref(), Some("{env:KEY}"));
}
