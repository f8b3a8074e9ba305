//! The pages beside the code: what they name is there, and what they show works.

use std::{
    fs,
    path::{Path, PathBuf},
};

use plimsoll::{
    config::{Config, Environment, Flags, load_config},
    provider::WindowSource,
};

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// All Rust of a folder.
fn rust(folder: &str) -> String {
    let mut text = String::new();
    let mut open: Vec<PathBuf> = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

#[test]
fn every_invariant_names_tests_that_exist() {
    let architecture = page("ARCHITECTURE.md");
    let (_, rest) = architecture.split_once("## Invariants").unwrap();
    let (invariants, _) = rest.split_once("\n## ").unwrap();
    let code = rust("src") + &rust("tests");
    let names: Vec<&str> = invariants.split('`').skip(1).step_by(2).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(code.contains(&format!("fn {name}(")), "no test {name}");
    }
}

#[test]
fn the_settings_of_the_readme_can_be_used() {
    let readme = page("README.md");
    let blocks: Vec<&str> = readme
        .split("```toml\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap())
        .collect();
    assert!(!blocks.is_empty());
    let folder = tempfile::tempdir().unwrap();
    for block in blocks {
        let file = folder.path().join("config.toml");
        fs::write(&file, block).unwrap();
        let flags = Flags {
            config: Some(file),
            listen: None,
        };
        let environment = Environment::from_iter([("OPENAI_API_KEY", "sk-none")]);
        let loaded =
            load_config(&flags, &environment).unwrap_or_else(|problems| panic!("{problems}"));
        assert_ne!(loaded.config, Config::default());
    }
}

#[test]
fn the_readme_lists_every_error() {
    let readme = page("README.md");
    let errors = page("src/error.rs");
    let (_, rest) = errors.split_once("pub fn code(").unwrap();
    let (codes, _) = rest.split_once("\n    }\n").unwrap();
    let codes: Vec<&str> = codes
        .lines()
        .filter_map(|line| line.split_once("=> \"")?.1.split('"').next())
        .collect();
    assert!(codes.len() > 15, "{codes:?}");
    for code in codes {
        assert!(readme.contains(&format!("`{code}`")), "no row for {code}");
    }
}

#[test]
fn the_readme_lists_every_header() {
    let (readme, code) = (page("README.md"), rust("src"));
    let named = code.split("from_static(\"").skip(1);
    let named = named.filter_map(|rest| rest.split('"').next());
    let ours: Vec<&str> = named
        .filter(|name| name.starts_with("x-plimsoll-"))
        .collect();
    assert!(ours.len() >= 8, "{ours:?}");
    for name in ours {
        assert!(readme.contains(&format!("`{name}`")), "no word of {name}");
    }
}

#[test]
fn the_readme_lists_every_source_of_a_window() {
    let readme = page("README.md");
    for source in [
        WindowSource::Learnt,
        WindowSource::Provider,
        WindowSource::Config,
        WindowSource::Catalogue,
        WindowSource::Assumed,
    ] {
        let row = format!("| `{}` |", source.display_name());
        assert!(readme.contains(&row), "no row {row}");
    }
}
