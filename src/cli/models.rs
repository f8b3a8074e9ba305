//! `plimsoll models`: the models that are known by name, their windows, and who says so.

use std::io::Write;

use super::{Failed, table};
use crate::{
    config::{Config, Environment, Flags, load},
    health::limits::{Limits, limits},
    provider::{Registry, Source},
};

pub(super) fn run(
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> Result<(), Failed> {
    let config = load(flags, environment)?.config;
    let registry = Registry::new(&config).map_err(Failed::Start)?;
    table::write(out, &rows(&config, &registry))?;
    writeln!(
        out,
        "\nA provider serves its other models too, as provider/model; their windows are looked up \
         in the catalogue.\nAll figures are tokens."
    )?;
    Ok(())
}

/// One row a model, the heading first. A window that is assumed has no critical limit, because
/// nobody knows where it would lie.
pub(super) fn rows(config: &Config, registry: &Registry) -> Vec<[String; 6]> {
    let heading = ["model", "window", "source", "input", "optimal", "critical"];
    let mut rows = vec![heading.map(str::to_owned)];
    for (name, window) in registry.models() {
        let Ok(target) = registry.resolve(&name, None) else {
            continue;
        };
        let inside = target.provider.config.profile.answer_inside_window;
        let Limits {
            optimal_max_tokens,
            critical_max_tokens,
        } = limits(
            window.tokens,
            window.input,
            inside,
            &config.guard,
            &target.settings,
            None,
        );
        let critical = match window.source {
            Source::Assumed => "unknown".to_owned(),
            _ => critical_max_tokens.to_string(),
        };
        rows.push([
            name,
            window.tokens.to_string(),
            window.source.word().to_owned(),
            window
                .input
                .map_or("-".to_owned(), |input| input.to_string()),
            optimal_max_tokens.to_string(),
            critical,
        ]);
    }
    rows
}
