//! `plimsoll models`: the names that clients may use, their windows, who says so, and who answers.

use std::io::Write;

use super::{Failed, table};
use crate::{
    config::{Config, Environment, Flags, load},
    error::chain,
    health::limits::{Limits, limits},
    provider::{Offered, Registry, Source, Target, listed::Unlisted},
};

/// Options of `plimsoll models`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Args {
    /// Ask the providers for their own lists first, and fetch the catalogue where one is configured
    #[arg(long)]
    ask: bool,
}

pub(super) fn run(
    args: &Args,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> Result<(), Failed> {
    let config = load(flags, environment)?.config;
    let registry = Registry::new(&config).map_err(Failed::Start)?;
    if args.ask {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failed::Start)?;
        for line in runtime.block_on(ask(&registry)) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    table::write(out, &rows(&config, &registry))?;
    writeln!(
        out,
        "\nA provider serves its other models too, as provider/model; their windows are looked up \
         in the catalogue.\nAll figures are tokens."
    )?;
    Ok(())
}

/// What came of asking, a line each.
async fn ask(registry: &Registry) -> Vec<String> {
    let mut lines = Vec::new();
    match registry.fetch_catalogue().await {
        None => {}
        Some(Ok(models)) => lines.push(format!("catalogue: {models} models")),
        Some(Err(error)) => lines.push(format!("catalogue: {}", chain(&error))),
    }
    for (provider, listed) in registry.ask_lists().await {
        lines.push(match listed {
            Ok(models) => format!("{provider}: lists {models} models"),
            Err(Unlisted::NotOurs) => format!(
                "{provider}: not asked; its credentials are the client's, ask_models is false, or \
                 its address has a model in it"
            ),
            Err(error) => format!("{provider}: {}", chain(&error)),
        });
    }
    lines
}

/// One row a name, the heading first. A window that is assumed has no critical limit, because
/// nobody knows where it would lie. The last column says who answers where the name does not.
pub(super) fn rows(config: &Config, registry: &Registry) -> Vec<[String; 7]> {
    let heading = [
        "model", "window", "source", "input", "optimal", "critical", "leads to",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for offered in registry.offered() {
        let Target {
            provider,
            window,
            settings,
            ..
        } = &offered.target;
        let inside = provider.config.profile.answer_inside_window;
        let Limits {
            optimal_max_tokens,
            critical_max_tokens,
        } = limits(
            window.tokens,
            window.input,
            inside,
            &config.guard,
            settings,
            None,
        );
        let critical = match window.source {
            Source::Assumed => "unknown".to_owned(),
            _ => critical_max_tokens.to_string(),
        };
        rows.push([
            offered.id.clone(),
            window.tokens.to_string(),
            window.source.word().to_owned(),
            window
                .input
                .map_or("-".to_owned(), |input| input.to_string()),
            optimal_max_tokens.to_string(),
            critical,
            leads_to(registry, &offered),
        ]);
    }
    rows
}

/// Who answers: the places with their shares, then who stands in for them, then who is larger.
fn leads_to(registry: &Registry, offered: &Offered) -> String {
    let Ok(choice) = registry.choose(&offered.id, None) else {
        return String::new();
    };
    let mut parts = Vec::new();
    match choice.deployments() {
        [(only, _)] if only.id() == offered.id => {}
        [(only, _)] => parts.push(only.id()),
        several => {
            let all: u64 = several.iter().map(|(_, weight)| u64::from(*weight)).sum();
            let shares = several.iter().map(|(target, weight)| {
                let percent = u64::from(*weight) * 100 / all.max(1);
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
    if let Some(larger) = registry.larger(&offered.target) {
        parts.push(format!("larger {}", larger.id()));
    }
    parts.join("; ")
}
