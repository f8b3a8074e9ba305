//! Entry of the fuzz targets: the checks of `tests/it/corpus`, which the tests run over the corpus
//! too.

#![allow(
    dead_code,
    unused_imports,
    reason = "shared with the tests, which use all of it"
)]

/// The test helpers that need no socket.
#[path = "../../tests/it/support"]
mod support {
    pub(crate) mod generate;
    mod lines;
    pub(crate) mod made;
    pub(crate) mod parse;
    pub(crate) mod plans;
    pub(crate) mod strict;

    pub(crate) use lines::{any_settings, settings_once_applied, without_annotations};
}

#[path = "../../tests/it/corpus/mod.rs"]
mod corpus;

/// Runs the check of that name.
pub fn check(target: &str, data: &[u8]) {
    let named = corpus::TARGETS.iter().find(|(name, _)| *name == target);
    let (_, check) = named.expect("a target of the list");
    check(data);
}
