//! The sources without their tests.

use std::{fs, path::PathBuf};

use super::{files, root};

pub(super) struct SourceFile {
    /// From `src/`.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Every file of `src/`, without the tests in it.
pub(super) fn all() -> Vec<SourceFile> {
    let source = root().join("src");
    let files = files(&source, "rs").into_iter().filter_map(|file| {
        let path = file.strip_prefix(&source).unwrap().to_owned();
        let is_test = path
            .iter()
            .any(|part| part == "tests" || part == "tests.rs");
        let text = fs::read_to_string(&file).unwrap();
        (!is_test).then(|| SourceFile {
            path,
            text: without_tests(&text).to_owned(),
        })
    });
    files.collect()
}

fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap()
}
