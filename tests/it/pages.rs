//! The pages beside the code: what they name is there, and what they show works.

mod commands;
mod links;
mod log;
mod maintainers;
mod man;
mod packages;
mod schema;
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use plimsoll::{
    config::{Config, Environment, Flags, load_config},
    provider::WindowSource,
};

/// A page in Markdown.
struct Page {
    /// From the root of the repository.
    path: String,
    text: String,
}

impl Page {
    /// The text in fenced blocks of that language.
    fn blocks(&self, language: &str) -> Vec<&str> {
        let fence = format!("```{language}\n");
        let blocks = self.text.split(&fence).skip(1);
        blocks
            .map(|block| block.split("```").next().unwrap())
            .collect()
    }

    /// The lines outside of fenced blocks.
    fn prose(&self) -> impl Iterator<Item = &str> {
        let mut is_fenced = false;
        self.text.lines().filter(move |line| {
            let is_fence = line.trim_start().starts_with("```");
            is_fenced ^= is_fence;
            !is_fenced && !is_fence
        })
    }

    /// What stands between backticks outside of fenced blocks.
    fn code_spans(&self) -> impl Iterator<Item = &str> {
        self.prose().flat_map(spans)
    }

    /// The cells of each row of its tables.
    fn rows(&self) -> impl Iterator<Item = Vec<&str>> {
        let rows = self.prose().filter(|line| line.starts_with("| "));
        rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
    }
}

fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page(path: &str) -> Page {
    Page {
        path: path.to_owned(),
        text: fs::read_to_string(root().join(path)).unwrap(),
    }
}

fn read(path: &str) -> String {
    page(path).text
}

/// All files of a folder whose names end so.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|it| it == end) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The pages of the book.
fn book() -> Vec<Page> {
    let files = files(&root().join("docs"), "md");
    let paths = files.iter().map(|file| file.strip_prefix(root()).unwrap());
    paths.map(|path| page(path.to_str().unwrap())).collect()
}

/// What is written for users.
fn documents() -> Vec<Page> {
    let mut pages = book();
    pages.push(page("README.md"));
    pages
}

#[test]
fn the_settings_of_the_documents_can_be_used() {
    let pages = documents();
    let blocks = pages.iter().flat_map(|page| {
        let blocks = page.blocks("toml").into_iter();
        blocks.map(|block| (page.path.as_str(), block))
    });
    let blocks: Vec<(&str, &str)> = blocks.collect();
    assert!(blocks.len() > 5, "{blocks:?}");
    let folder = tempfile::tempdir().unwrap();
    for (path, block) in blocks {
        let file = folder.path().join("config.toml");
        fs::write(&file, block).unwrap();
        let flags = Flags {
            config: Some(file),
            listen: None,
        };
        // What holds for a secret holds for a key as well.
        let secret = "5".repeat(64);
        let named = block.lines().filter_map(|line| line.split_once("_env = "));
        let variables = named.map(|(_, name)| (name.trim_matches('"'), secret.as_str()));
        let environment = Environment::from_iter(variables);
        let loaded = load_config(&flags, &environment).unwrap_or_else(|it| panic!("{path}: {it}"));
        assert_ne!(loaded.config, Config::default(), "{path}");
    }
}

#[test]
fn the_json_of_the_documents_is_json() {
    let mut seen = 0;
    for page in documents() {
        for block in page.blocks("json") {
            seen += 1;
            let read: Result<serde_json::Value, _> = serde_json::from_str(block);
            assert!(read.is_ok(), "{}: {block}", page.path);
        }
    }
    assert!(seen > 1, "{seen} blocks");
}

/// Every key of `config.toml`, with the names that a user chooses as `NAME`, and every section.
fn known_settings() -> BTreeSet<String> {
    let config = read("config.toml");
    let mut known = BTreeSet::new();
    let mut section = String::new();
    for line in config.lines() {
        let line = line.strip_prefix('#').unwrap_or(line);
        if let Some((name, _)) = line.strip_prefix('[').and_then(|it| it.split_once(']')) {
            section = with_name(name);
            known.insert(section.clone());
        } else if let Some((key, _)) = line.split_once(" = ")
            && key
                .bytes()
                .all(|it| it.is_ascii_lowercase() || it == b'_' || it.is_ascii_digit())
        {
            known.insert(format!("{section}.{key}").trim_matches('.').to_owned());
        }
    }
    known
}

/// A key or section in which `NAME` stands for a name that the user chooses.
fn with_name(key: &str) -> String {
    let mut parts = key.splitn(3, '.');
    let section = parts.next().unwrap_or_default();
    if !["clients", "models", "providers"].contains(&section) || parts.next().is_none() {
        return key.to_owned();
    }
    match parts.next() {
        Some(rest) if !key.contains('"') => format!("{section}.NAME.{rest}"),
        _ => format!("{section}.NAME"),
    }
}

#[test]
fn every_setting_that_is_named_exists() {
    let known = known_settings();
    assert!(known.len() > 80, "{known:?}");
    let sections: BTreeSet<&str> = known.iter().filter_map(|it| it.split('.').next()).collect();
    let mut seen = BTreeSet::new();
    for page in documents() {
        for span in page.code_spans() {
            let key = span.split(" = ").next().unwrap();
            let mut parts = key.split('.');
            let is_setting = parts.next().is_some_and(|it| sections.contains(it))
                && key.contains('.')
                && key
                    .bytes()
                    .all(|it| it.is_ascii_alphanumeric() || b"._".contains(&it))
                && ![".rs", ".json"].iter().any(|it| key.ends_with(it));
            if is_setting {
                let named = with_name(key);
                assert!(known.contains(&named), "{}: no setting {key}", page.path);
                seen.insert(named);
            }
        }
    }
    assert!(seen.len() > 60, "{seen:?}");
}

#[test]
fn every_error_is_described() {
    let errors = read("src/error.rs");
    let (_, rest) = errors.split_once("fn status_and_code(").unwrap();
    let (codes, _) = rest.split_once("\n    }\n").unwrap();
    let codes: BTreeSet<&str> = codes.split('"').skip(1).step_by(2).collect();
    let codes: BTreeSet<&str> = codes.into_iter().filter(|it| *it != "origin").collect();
    assert!(codes.len() > 15, "{codes:?}");
    let in_readme = statuses(&page("README.md"));
    let described = statuses(&page("docs/troubleshooting.md"));
    assert_eq!(in_readme, described);
    let names: BTreeSet<&str> = described.keys().map(String::as_str).collect();
    assert_eq!(names, codes);
}

/// The status of each error, of tables whose rows begin with one.
fn statuses(page: &Page) -> BTreeMap<String, u16> {
    let mut found = BTreeMap::new();
    for row in page.rows() {
        if let Ok(status) = row[0].parse() {
            found.extend(spans(row[1]).map(|code| (code.to_owned(), status)));
        }
    }
    found
}

#[test]
fn every_header_is_described_and_exists() {
    let code = sources::all()
        .iter()
        .map(|it| it.text.as_str())
        .collect::<String>();
    let literals = code.split('"').filter(|it| it.starts_with("x-plimsoll-"));
    let is_name = |it: &&str| it.bytes().all(|it| it.is_ascii_lowercase() || it == b'-');
    let headers: BTreeSet<&str> = literals.filter(is_name).collect();
    let headers: BTreeSet<&str> = headers
        .into_iter()
        .filter(|it| !it.ends_with('-'))
        .collect();
    assert!(headers.len() > 15, "{headers:?}");
    for path in ["README.md", "docs/health.md"] {
        let page = page(path);
        let described: BTreeSet<&str> = page.code_spans().collect();
        let missing: Vec<_> = headers.difference(&described).collect();
        assert!(missing.is_empty(), "{path} does not name {missing:?}");
    }
    for page in documents() {
        for span in page.code_spans().filter(|it| it.starts_with("x-plimsoll-")) {
            let name = span.split([':', ' ']).next().unwrap();
            let is_known = headers.contains(name) || name == "x-plimsoll-";
            assert!(is_known, "{}: no header {name}", page.path);
        }
    }
}

#[test]
fn every_source_of_a_window_is_described() {
    let gateway = page("docs/gateway.md");
    let rows: Vec<_> = gateway.rows().collect();
    for source in [
        WindowSource::Learnt,
        WindowSource::Provider,
        WindowSource::Config,
        WindowSource::Catalogue,
        WindowSource::CatalogueByName,
        WindowSource::Family,
        WindowSource::Assumed,
    ] {
        let cells = [source.display_name(), source.api_name()].map(|word| format!("`{word}`"));
        let is_there = rows
            .iter()
            .any(|row| row.starts_with(&cells.each_ref().map(String::as_str)));
        assert!(is_there, "no row {cells:?}");
    }
}

#[test]
fn every_metric_is_described_and_exists() {
    let metrics = page("docs/operations/metrics.md");
    let rows = metrics
        .rows()
        .flat_map(|row| spans(row[0]).collect::<Vec<_>>());
    let described: BTreeSet<&str> = rows.map(|it| it.split('{').next().unwrap()).collect();
    let code: String = sources::all()
        .into_iter()
        .filter(|it| it.path.starts_with("telemetry"))
        .map(|it| it.text)
        .collect();
    let literals: BTreeSet<&str> = code.split('"').collect();
    let is_name = |it: &&&str| it.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    let counted = literals.iter().filter(|it| it.starts_with("plimsoll_"));
    let missing: Vec<_> = counted
        .filter(is_name)
        .filter(|it| !described.contains(**it))
        .collect();
    assert!(missing.is_empty(), "{missing:?} are not described");
    let unknown: Vec<_> = described.difference(&literals).collect();
    assert!(unknown.is_empty(), "there is no {unknown:?}");
    assert!(described.len() > 30, "{described:?}");
}

#[test]
fn every_folder_of_the_source_is_described() {
    let development = page("docs/development.md");
    let named: Vec<&str> = development
        .rows()
        .flat_map(|row| spans(row[0]).collect::<Vec<_>>())
        .collect();
    let (folders, others): (Vec<&str>, Vec<&str>) = named
        .into_iter()
        .partition(|it| root().join("src").join(it).exists());
    for other in others {
        assert!(root().join(other).exists(), "there is no {other}");
    }
    let there = fs::read_dir(root().join("src")).unwrap();
    // A file that has its tests in a folder is described as the file.
    let is_folder = |it: &PathBuf| it.is_dir() && !it.with_extension("rs").exists();
    let there = there.map(|it| it.unwrap().path()).filter(is_folder);
    let there = there.map(|it| format!("{}/", it.file_name().unwrap().to_str().unwrap()));
    let missing: Vec<String> = there.filter(|it| !folders.contains(&it.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} are not described");
}
