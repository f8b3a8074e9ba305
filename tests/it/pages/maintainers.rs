//! The pages for maintainers: paths, invariants and lengths.

use std::{fs, path::Path};

use super::{read, root};

/// The pages for maintainers, by their names.
fn maintainers_pages() -> Vec<(String, String)> {
    let decisions = decisions()
        .into_iter()
        .map(|name| format!("docs/decisions/{name}"));
    ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(str::to_owned)
        .into_iter()
        .chain(decisions)
        .map(|name| (name.clone(), read(&name)))
        .collect()
}

/// The files of `docs/decisions/`, in their order.
fn decisions() -> Vec<String> {
    let folder = root().join("docs/decisions");
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Paths of the repository that a text names in backticks, outside of fenced blocks.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    let code = prose.flat_map(|prose| prose.split('`').skip(1).step_by(2));
    code.filter(|name| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let folders = ["src/", "tests/", "benches/", "fuzz/", "docs/", ".ci/"];
        let is_source = name.ends_with(".rs");
        let is_page = !name.contains('/') && (name.ends_with(".md") || name.ends_with(".toml"));
        name.chars().all(is_plain)
            && (is_source || is_page || folders.iter().any(|it| name.starts_with(it)))
    })
}

#[test]
fn every_path_in_the_pages_for_maintainers_exists() {
    let mut missing = Vec::new();
    let mut named = 0;
    for (name, text) in maintainers_pages() {
        for path in named_paths(&text) {
            named += 1;
            if !root().join(path).exists() {
                missing.push(format!("{name} names {path}"));
            }
        }
    }
    assert!(named > 100, "{named} paths were found");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_link_in_the_pages_for_maintainers_leads_to_a_file() {
    for (name, text) in maintainers_pages() {
        let links = text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            let folder = Path::new(&name).parent().unwrap();
            let leads = link.contains("://") || root().join(folder).join(file).exists();
            assert!(leads, "{name} links to {link}");
        }
    }
}

#[test]
fn every_invariant_names_files_with_tests() {
    let architecture = read("ARCHITECTURE.md");
    let (_, rest) = architecture.split_once("## Invariants").unwrap();
    let (invariants, _) = rest.split_once("\n## ").unwrap();
    let is_row = |line: &&str| line.starts_with("| ") && line.contains(". |");
    let rows: Vec<&str> = invariants.lines().filter(is_row).collect();
    assert_eq!(rows.len(), 11);
    for (at, row) in rows.into_iter().enumerate() {
        assert!(row.starts_with(&format!("| {} |", at + 1)), "{row}");
        assert!(named_paths(row).next().is_some(), "{row}");
        for path in named_paths(row) {
            let code = read(path);
            let has_tests = code.contains("#[test]") || code.contains("#[tokio::test");
            assert!(has_tests, "no tests in {path}");
        }
    }
}

#[test]
fn the_pages_for_maintainers_are_short() {
    let lines = |name: &str| read(name).lines().count();
    assert!(lines("ARCHITECTURE.md") <= 200);
    assert!(lines("CONTRIBUTING.md") <= 120);
    assert!(lines("SECURITY.md") <= 80);
    for (at, name) in decisions().into_iter().enumerate() {
        assert!(
            name.starts_with(&format!("{:04}-", at + 1)),
            "{name} leaves a gap"
        );
        let page = format!("docs/decisions/{name}");
        assert!((20..=50).contains(&lines(&page)), "{page}");
    }
}
