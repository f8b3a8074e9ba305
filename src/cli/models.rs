//! `plimsoll models`: the names that clients may use, their windows and sources, and the candidates. The windows are those of the
//! running proxy, which has learnt some, else those of the settings.

mod running;

use std::io::Write;

use self::running::RunningModels;
use super::{CommandError, CommandResult, ask_proxy::ProxyArgs, block_on, table};
use crate::{
    config::{Config, Environment, Flags, Problems, load_config},
    error::format_error_chain,
    provider::{OfferedModel, Registry, Target},
};

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ModelsArgs {
    /// Ask the providers for their own lists first, and fetch the catalogue where one is configured, in place of asking the
    /// running proxy
    #[arg(long)]
    ask: bool,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Tell of these names only, whichever they are; a name with a * at its end stands for all that begin so
    names: Vec<String>,
}

/// Rows of one pattern.
const MAX_COVERED: usize = 200;

pub(super) fn run(
    args: &ModelsArgs,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let loaded = load_config(flags, environment)?;
    if args.ask && !loaded.unset_variables.is_empty() {
        return Err(Problems(loaded.unset_variables).into());
    }
    let config = loaded.config;
    let registry = Registry::new(&config).map_err(CommandError::Start)?;
    let running = if args.ask {
        for line in block_on(ask_providers(&registry))? {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        RunningModels::default()
    } else {
        let proxy = args.proxy.find(flags, environment)?;
        block_on(RunningModels::ask(proxy, &args.names))?
    };
    if !args.names.is_empty() {
        return write_named(&args.names, &config, &registry, &running, out);
    }
    let mut rows = format_model_rows(&config, &registry);
    rows.iter_mut().for_each(|row| running.update_row(row));
    table::write_table(out, &rows)?;
    let note = "A provider serves its other models too, as provider/model; their windows are looked up \
                in the catalogue.\nAll figures are tokens.";
    writeln!(out, "\n{}\n{note}", registry.describe_catalogue())?;
    running.write_source(out)
}

/// The rows of names, and of the names that patterns cover.
///
/// # Errors
/// A name that no provider serves, or a pattern that covers none.
fn write_named(
    asked: &[String],
    config: &Config,
    registry: &Registry,
    running: &RunningModels,
    out: &mut impl Write,
) -> CommandResult {
    let (mut rows, mut notes, mut unknown) = (vec![HEADING.map(str::to_owned)], vec![], vec![]);
    for name in asked {
        let covered: Vec<String> = if name.ends_with('*') {
            registry.list_covered_names(name).into_iter().collect()
        } else {
            vec![name.clone()]
        };
        match covered.len() {
            0 => unknown.push(format!("{name}: no known name begins so")),
            all if name.ends_with('*') => notes.push(format!("{name} covers {all} known names")),
            _ => {}
        }
        for name in covered.iter().take(MAX_COVERED) {
            match registry.explain_name(name) {
                Ok(offered) => {
                    let mut row = format_model_row(config, registry, &offered);
                    running.update_row(&mut row);
                    if row[6].is_empty() {
                        row[6] = offered.target.id();
                    }
                    rows.push(row);
                }
                Err(refused) => unknown.push(refused),
            }
        }
        if covered.len() > MAX_COVERED {
            notes.push(format!("the first {MAX_COVERED} of them are shown"));
        }
    }
    if rows.len() > 1 {
        table::write_table(out, &rows)?;
        notes.insert(0, "\nAll figures are tokens.".to_owned());
    }
    for note in notes {
        writeln!(out, "{note}")?;
    }
    if rows.len() > 1 {
        running.write_source(out)?;
    }
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(CommandError::Command(unknown.join("\n")))
    }
}

/// The results of the requests to the catalogue and to each provider, one line each.
async fn ask_providers(registry: &Registry) -> Vec<String> {
    let catalogue = registry.fetch_catalogue().await;
    let catalogue = catalogue.map(|fetched| match fetched {
        Ok(models) => format!("catalogue: {models} models"),
        Err(error) => format!("catalogue: {}", format_error_chain(&error)),
    });
    let mut lines = Vec::from_iter(catalogue);
    for (provider, listed) in registry.ask_for_lists().await {
        lines.push(match listed {
            Ok(1) => format!("{provider}: lists 1 model"),
            Ok(models) => format!("{provider}: lists {models} models"),
            // Some errors begin with the name.
            Err(error) => match format_error_chain(&error) {
                text if text.starts_with(&*provider) => text,
                text => format!("{provider}: {text}"),
            },
        });
    }
    lines
}

/// The heading, then one row for each name. An assumed window has no critical limit. The last column has the
/// candidates, unless the name alone says it.
pub(super) fn format_model_rows(config: &Config, registry: &Registry) -> Vec<[String; 7]> {
    let mut rows = vec![HEADING.map(str::to_owned)];
    let offered = registry.list_offered_models();
    let offered = offered.iter();
    rows.extend(offered.map(|offered| format_model_row(config, registry, offered)));
    rows
}

const HEADING: [&str; 7] = [
    "model", "window", "source", "input", "optimal", "critical", "leads to",
];

fn format_model_row(config: &Config, registry: &Registry, offered: &OfferedModel) -> [String; 7] {
    let window = offered.target.window;
    let limits = offered.target.compute_limits(&config.guard, None);
    let format_limit = |tokens: Option<u32>, unset: &str| {
        tokens.map_or(unset.to_owned(), |tokens| tokens.to_string())
    };
    [
        offered.id.clone(),
        window.tokens.to_string(),
        window.source.display_name().to_owned(),
        format_limit(window.input, "-"),
        limits.optimal_max_tokens.to_string(),
        format_limit(limits.critical_max_tokens, "unknown"),
        describe_route(registry, offered),
    ]
}

/// The deployments with their shares, the fallbacks and the larger model.
fn describe_route(registry: &Registry, offered: &OfferedModel) -> String {
    let Ok(choice) = registry.look_up_candidates(&offered.id, None) else {
        return String::new();
    };
    let mut parts = Vec::new();
    match choice.deployments() {
        [(only, _)] if only.id() == offered.id => {}
        [(only, _)] => parts.push(only.id()),
        several => {
            let sum: u64 = several.iter().map(|(_, weight)| u64::from(*weight)).sum();
            let shares = several.iter().map(|(target, weight)| {
                let percent = u64::from(*weight) * 100 / sum.max(1);
                format!("{} {percent}%", target.id())
            });
            parts.push(shares.collect::<Vec<_>>().join(", "));
        }
    }
    let fallbacks = choice.targets().skip(choice.deployments().len());
    let fallbacks: Vec<_> = fallbacks.map(Target::id).collect();
    if !fallbacks.is_empty() {
        parts.push(format!("else {}", fallbacks.join(", ")));
    }
    if let Some(larger) = registry.find_larger(&offered.target) {
        parts.push(format!("larger {}", larger.id()));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests;
