//! Figures other than times: errors of estimates, the share of the prompt cache, whether requests
//! fit. Prints plain text.
//!
//! `cargo bench --bench report`, or `cargo bench --bench report -- cache` for one section
//! (`estimate`, `cache`, `formats`, `markers`, `fit`, `summary`, `defence`, `thinking`, `recovery`, `needs`, and
//! of that `reads` alone; `rules`, which takes some ten minutes, only if it is named).

use std::io::{self, Write};

#[allow(
    unused_imports,
    clippy::unwrap_used,
    reason = "shared with the tests, which use all of it"
)]
#[path = "../../tests/it/support/mod.rs"]
mod support;

mod cache;
mod defence;
mod estimate;
mod fit;
mod formats;
mod needs;
mod reasoning;
mod recovery;
mod rules;
mod summary;

fn main() -> io::Result<()> {
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|it| it == name);
    let mut out = io::stdout().lock();
    if wanted("estimate") {
        estimate::report(&mut out)?;
    }
    if wanted("cache") {
        cache::report(&mut out)?;
    }
    if wanted("cache") || wanted("formats") {
        formats::report_formats(&mut out)?;
    }
    if wanted("cache") || wanted("markers") {
        formats::report_markers(&mut out)?;
    }
    if wanted("fit") {
        fit::report(&mut out)?;
    }
    if wanted("summary") {
        summary::report(&mut out)?;
    }
    if wanted("defence") {
        defence::report(&mut out)?;
    }
    if wanted("thinking") {
        reasoning::report(&mut out)?;
    }
    if wanted("recovery") {
        recovery::report(&mut out)?;
    }
    if wanted("needs") {
        needs::report(&mut out)?;
    }
    if chosen.iter().any(|it| it == "reads") {
        needs::report_reads(&mut out, &support::count::TokenCounter::o200k())?;
    }
    if chosen.iter().any(|it| it == "rules") {
        rules::report(&mut out)?;
    }
    out.flush()
}

/// The percentile of a list.
fn percentile(list: &mut [f64], percent: usize) -> f64 {
    list.sort_by(f64::total_cmp);
    let at = (list.len() * percent / 100).min(list.len().saturating_sub(1));
    list.get(at).copied().unwrap_or(f64::NAN)
}
