//! Files whose address a client takes before the one that `plimsoll run` sets: it then goes around the proxy.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use regex::Regex;
use reqwest::Url;

use super::environment::name_of;
use crate::{
    cli::clients::{
        Overriding,
        addresses::{find_urls, is_same_place, read_text},
        find_client,
    },
    config::Environment,
};

/// One for each file with another address than the proxy's.
pub(super) fn find_warnings(program: &OsStr, base: &str, environment: &Environment) -> Vec<String> {
    let client = find_client(&name_of(program));
    let Some((client, run)) = client.and_then(|client| Some((client, client.run.as_ref()?))) else {
        return Vec::new();
    };
    let (title, name) = (client.title, client.name);
    let mut warned = Vec::new();
    for overriding in run.overridden_in {
        for path in list_paths(overriding, environment) {
            let Some(address) = find_other_address(&path, overriding.name, base) else {
                continue;
            };
            let (key, path) = (overriding.name, path.display());
            let warning = format!(
                "{title} goes around the proxy: {path} sets {key} to {address}, which counts for more. Take that line out \
                 (`plimsoll disconnect {name}`, if `connect --write` has set it)"
            );
            // The home may be the project.
            if !warned.contains(&warning) {
                warned.push(warning);
            }
        }
    }
    warned
}

/// Each path once.
fn list_paths(overriding: &Overriding, environment: &Environment) -> BTreeSet<PathBuf> {
    let found = overriding.folders.iter().find_map(|folder| {
        let roots = match folder.variable {
            "PROJECT" => list_project_folders(),
            variable => environment.find_folder(variable).into_iter().collect(),
        };
        let below = |root: PathBuf| root.join(folder.below);
        (!roots.is_empty()).then(|| roots.into_iter().map(below).collect::<Vec<_>>())
    });
    let folders = found.unwrap_or_default();
    let paths = folders
        .iter()
        .flat_map(|folder| overriding.names.iter().map(move |name| folder.join(name)));
    paths.collect()
}

/// The working directory, and the top of the repository that it is in.
fn list_project_folders() -> Vec<PathBuf> {
    let Ok(here) = env::current_dir() else {
        return Vec::new();
    };
    let top = here.ancestors().find(|folder| folder.join(".git").exists());
    top.into_iter().chain([&*here]).map(Into::into).collect()
}

/// The address behind a key of a file, where it is another one; without what may be a password in it.
fn find_other_address(path: &Path, key: &str, base: &str) -> Option<String> {
    // In JSON, and in a file of variables.
    let value = format!(r#"\b{key}["']?\s*[:=]\s*["']?([^\s"',}}]+)"#);
    let base = Url::parse(base).ok()?;
    let mut found = find_urls(&read_text(path)?, &Regex::new(&value).ok()?).into_iter();
    let other = found.find(|address| !is_same_place(address, &base))?;
    Some(other.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_address_that_counts_for_more_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let base = "http://127.0.0.1:9";
        let key = "ANTHROPIC_BASE_URL";
        for (text, expected) in [
            (
                r#"{"env": {"ANTHROPIC_BASE_URL": "https://me:secret@a.b/v1"}}"#,
                Some("https://a.b"),
            ),
            (
                "export ANTHROPIC_BASE_URL='http://127.0.0.1:1876'\n",
                Some("http://127.0.0.1:1876"),
            ),
            (
                r##"{"env": {"A": "#1", "ANTHROPIC_BASE_URL": "http://a.b"}}"##,
                Some("http://a.b"),
            ),
            ("ANTHROPIC_BASE_URL=http://localhost:9\n", None),
            ("# ANTHROPIC_BASE_URL=http://a.b\n", None),
            ("// \"ANTHROPIC_BASE_URL\": \"http://a.b\"\n", None),
            ("ANTHROPIC_BASE_URL=http://127.0.0.1:9/\n", None),
            ("MY_ANTHROPIC_BASE_URL=http://a.b\n", None),
            ("ANTHROPIC_BASE_URL=\n", None),
            ("", None),
        ] {
            fs::write(&path, text).unwrap();
            let found = find_other_address(&path, key, base);
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        assert_eq!(
            find_other_address(&folder.path().join("none"), key, base),
            None
        );
    }
}
