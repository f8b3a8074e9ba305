//! `plimsoll inspect`: shows what the guard would do to a request, without sending it.
//!
//! The request is read, indexed and planned with the code of the proxy, as the first one of a session. All tokens
//! are estimates.

mod show;

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::{CommandError, CommandResult};
use crate::{
    config::{
        Environment, Flags, load_config,
        tokens::{TokenRule, find_token_rule},
    },
    conversation::{Conversation, FORMATS, Format},
    guard::found::{Aim, PlanExplanation, WindowFound},
    guard::profile::{PROFILES, Profile, find_profile},
    guard::{Policy, estimate::Calibration},
    provider::{Registry, fit_body_to_windows},
};

/// The profile of unknown providers; every provider accepts what it accepts.
const STRICTEST: &str = "template";

#[derive(clap::Args, Clone, Debug)]
pub(super) struct InspectArgs {
    /// File with the body of a request; "-" reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Wire format of the request [default: guessed from its members]
    #[arg(long, value_name = "NAME", value_parser = format_parser())]
    format: Option<Format>,
    /// Model to fit the request to [default: the one it names]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Tokens of the model's window [default: what the model resolves to]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1_024..=100_000_000))]
    window: Option<u32>,
    /// What the provider's grammar allows [default: the profile of the model's provider]
    #[arg(long, value_name = "NAME", value_parser = profile_parser())]
    profile: Option<&'static Profile>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the fitted request to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(
    args: &InspectArgs,
    flags: &Flags,
    environment: &Environment,
    input: &mut impl Read,
    out: &mut impl Write,
) -> CommandResult {
    let mut config = load_config(flags, environment)?.config;
    fit_body_to_windows(&mut config);
    let registry = Registry::new(&config).map_err(CommandError::Start)?;
    let limit = config.server.max_body_bytes;
    let (name, body) = match args.file == Path::new("-") {
        true => ("standard input".to_owned(), read_body(input, limit)),
        false => {
            let body = File::open(&args.file).and_then(|file| read_body(file, limit));
            (args.file.display().to_string(), body)
        }
    };
    let fail = |reason: String| CommandError::Command(format!("{name}: {reason}"));
    let body = body.map_err(|error| fail(format!("cannot be read: {error}")))?;
    if body.len() > limit {
        let reason = "so the proxy would refuse it; raise server.max_body_bytes";
        return Err(fail(format!("is larger than {limit} bytes, {reason}")));
    }
    let format = args
        .format
        .unwrap_or_else(|| Format::guess_from_body(&body));
    let conversation = format
        .index_body(body)
        .map_err(|reason| fail(reason.to_string()))?;
    let aim = resolve_aim(args, &conversation, &registry).map_err(CommandError::Command)?;
    let policy = Policy {
        profile: aim.profile,
        window: aim.window.tokens,
        window_is_guessed: aim.window.is_guessed,
        input_limit: aim.window.input_limit,
        tokens: find_tokens(&aim, &registry),
        settings: &config.guard,
    };
    let (fitted, found) = PlanExplanation::plan(&conversation, &policy, &aim);
    if let Some(path) = &args.output {
        fs::write(path, &fitted).map_err(|error| {
            CommandError::Command(format!("{}: cannot be written: {error}", path.display()))
        })?;
    }
    if args.json {
        let text = serde_json::to_string_pretty(&found).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        show::write_report(out, &found)?;
    }
    Ok(out.flush()?)
}

/// The window and the profile of the options, else those of the model's candidate. An error says what to do.
fn resolve_aim(
    args: &InspectArgs,
    conversation: &Conversation,
    registry: &Registry,
) -> Result<Aim, String> {
    let model = args.model.clone();
    let model = model.or_else(|| conversation.model().map(Into::into));
    let resolved = registry.resolve_target(model.as_deref().unwrap_or_default(), None);
    let window = match (&resolved, args.window) {
        // The model's input limit belongs to the model's window.
        (_, Some(tokens)) => WindowFound {
            tokens,
            input_limit: None,
            source: "--window",
            is_guessed: false,
        },
        (Ok(target), None) => WindowFound {
            tokens: target.window.tokens,
            input_limit: target.window.input,
            source: target.window.source.display_name(),
            is_guessed: target.window.is_guessed(),
        },
        (Err(reason), None) => {
            return Err(match model {
                Some(_) => format!("{reason} Name another with --model, or give its --window."),
                None => {
                    "the request names no model; name one with --model, or give its --window".into()
                }
            });
        }
    };
    let target = resolved.ok();
    let profile = target.as_ref().map(|target| target.provider.config.profile);
    let profile = args.profile.or(profile).or_else(|| find_profile(STRICTEST));
    let profile = profile.unwrap_or(&PROFILES[0]);
    let named = target.as_ref().map(|target| &*target.model);
    let profile = profile.for_model(named.or(model.as_deref()).unwrap_or_default());
    Ok(Aim {
        model,
        profile,
        provider: target.map(|target| target.provider.name.to_string()),
        window,
        calibration: Calibration::default(),
    })
}

/// The rule by the provider's name of the model, else by the given one.
fn find_tokens(aim: &Aim, registry: &Registry) -> &'static TokenRule {
    let model = aim.model.as_deref().unwrap_or_default();
    let target = registry.resolve_target(model, None);
    let model = target.map_or_else(|_| model.to_owned(), |target| target.model);
    find_token_rule(&model, aim.profile)
}

/// Reads at most one byte more than `limit`, so that a longer body is noticed.
fn read_body(input: impl Read, limit: usize) -> io::Result<Bytes> {
    let mut body = Vec::new();
    input.take(limit as u64 + 1).read_to_end(&mut body)?;
    Ok(body.into())
}

fn format_parser() -> impl clap::builder::TypedValueParser<Value = Format> {
    PossibleValuesParser::new(FORMATS.map(Format::name))
        .try_map(|name| Format::from_name(&name).ok_or("no such format"))
}

fn profile_parser() -> impl clap::builder::TypedValueParser<Value = &'static Profile> {
    PossibleValuesParser::new(PROFILES.iter().map(|profile| profile.name))
        .try_map(|name| find_profile(&name).ok_or("no such profile"))
}

#[cfg(test)]
mod tests;
