//! `plimsoll check`: whether the settings can be used, what they come to, and what is doubtful.
//!
//! Never shows a key: neither ours, nor a client's, nor its digest. Of what may hold one (headers, a
//! query, a password), it says only whether it is set. Every setting of `config.toml` has its place
//! here, under its own name where that can be.

mod kept;
mod reach;
mod stages;

use std::io::{self, Write};

use super::{Failed, models, table};
use crate::{
    config::{Environment, Flags, load, unknown_windows, warnings},
    provider::Registry,
};

pub(super) fn run(
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> Result<(), Failed> {
    let loaded = load(flags, environment)?;
    let config = &loaded.config;
    let registry = Registry::new(config).map_err(Failed::Start)?;
    let file = loaded.file.as_ref();
    let source = file.map_or("built in".to_owned(), |path| path.display().to_string());
    table::write(out, &reach::server(config, &registry, source))?;
    section(out, "admin", &reach::admin(&config.admin))?;
    section(out, "providers", &reach::providers(config))?;
    section(out, "calls to providers", &reach::calls(config))?;
    section(out, "models", &models::rows(config, &registry))?;
    section(out, "models by pattern", &reach::patterns(config))?;
    section(out, "aliases", &reach::aliases(config))?;
    section(out, "clients", &reach::clients(config))?;
    section(out, "retry", &reach::retry(&config.retry))?;
    section(out, "catalogue", &reach::catalogue(&config.catalogue))?;
    section(out, "guard", &stages::guard(&config.guard))?;
    section(out, "recovery", &stages::recovery(config))?;
    section(out, "compaction", &stages::compaction(config, &registry))?;
    section(out, "store", &kept::store(config))?;
    section(out, "traces", &kept::traces(config))?;
    let mut doubts = loaded.warnings;
    doubts.extend(warnings(config, &registry));
    doubts.extend(unknown_windows(&registry));
    if !doubts.is_empty() {
        writeln!(out, "\nwarnings")?;
    }
    for doubt in &doubts {
        writeln!(out, "  {doubt}")?;
    }
    writeln!(out, "\n{}", verdict(doubts.len()))?;
    out.flush()?;
    Ok(())
}

/// A titled table; nothing where it has no rows.
fn section<const N: usize>(
    out: &mut impl Write,
    title: &str,
    rows: &[[String; N]],
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    table::write(out, rows)
}

fn verdict(warnings: usize) -> String {
    match warnings {
        0 => "The settings are valid.".to_owned(),
        1 => "The settings are valid, with 1 warning.".to_owned(),
        more => format!("The settings are valid, with {more} warnings."),
    }
}

fn row(name: &str, value: impl ToString) -> [String; 2] {
    [name.to_owned(), value.to_string()]
}

/// A setting that may be unset, in which case `unset` says what holds.
fn or<T: ToString>(value: Option<T>, unset: &str) -> String {
    value.map_or(unset.to_owned(), |value| value.to_string())
}

/// What is said of a setting that may hold a key.
const fn is_set(set: bool) -> &'static str {
    match set {
        true => "set, not shown",
        false => "none",
    }
}

/// Names with a comma between two, or `none`.
fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests;
