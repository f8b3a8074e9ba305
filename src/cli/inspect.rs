//! `plimsoll inspect`: shows what the guard would do to a request, without sending it.
//!
//! The request is read, indexed and planned with the code of the proxy, as the first one of a session. Tokens are
//! estimates.

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
    config::{Config, Environment, Flags, load_config},
    conversation::{Conversation, FORMATS, Format},
    guard::{
        Policy,
        explain::ExplainedModel,
        profile::{PROFILES, Profile, find_profile},
    },
    provider::{Registry, fit_body_to_windows},
    proxy::plan::{GivenModel, explain_model, explain_request},
};

#[derive(clap::Args, Clone, Debug)]
pub(super) struct InspectArgs {
    /// File with the body of a request; "-" reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Wire format of the request [default: guessed from its members]
    #[arg(long, value_name = "NAME", value_parser = build_format_parser())]
    format: Option<Format>,
    /// Model to fit the request to [default: the one it names]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Tokens of the model's window [default: what the model resolves to]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1_024..=100_000_000))]
    window: Option<u32>,
    /// What the provider's grammar allows [default: the profile of the model's provider]
    #[arg(long, value_name = "NAME", value_parser = build_profile_parser())]
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
    let (name, body) = if args.file == Path::new("-") {
        ("standard input".to_owned(), read_body(input, limit))
    } else {
        let body = File::open(&args.file).and_then(|file| read_body(file, limit));
        (args.file.display().to_string(), body)
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
    let (model, policy) =
        resolve_model(args, &conversation, &registry, &config).map_err(CommandError::Command)?;
    let (fitted, explained) = explain_request(&conversation, &policy, model, &config.recovery);
    if let Some(path) = &args.output {
        fs::write(path, &fitted).map_err(|error| {
            CommandError::Command(format!("{}: cannot be written: {error}", path.display()))
        })?;
    }
    if args.json {
        let text = serde_json::to_string_pretty(&explained).map_err(io::Error::from)?;
        writeln!(out, "{text}")?;
    } else {
        show::write_explanation(out, &explained)?;
    }
    Ok(out.flush()?)
}

/// The window and the profile of the options, else those of the model's candidate. An error says what to do.
fn resolve_model<'c>(
    args: &InspectArgs,
    conversation: &Conversation,
    registry: &Registry,
    config: &'c Config,
) -> Result<(ExplainedModel, Policy<'c>), String> {
    let name = args.model.clone();
    let name = name.or_else(|| conversation.model().map(Into::into));
    let asked = name.as_deref().unwrap_or_default();
    let resolved = registry.resolve_target(asked, None);
    let (target, reason) = match resolved {
        Ok(target) => (Some(target), None),
        Err(reason) => (None, Some(reason)),
    };
    let given = GivenModel {
        window: args.window,
        tokens: None,
        profile: args.profile,
    };
    let planned = given.choose_policy(asked, target.as_ref(), config);
    let (window, policy) = planned.ok_or_else(|| match (&name, reason) {
        (Some(_), Some(reason)) => {
            format!("{reason} Name another with --model, or give its --window.")
        }
        _ => "the request names no model; name one with --model, or give its --window".into(),
    })?;
    let mut model = explain_model(name, target.as_ref(), window, &policy, Some(conversation));
    if args.window.is_some() {
        model.window_source = "--window";
    }
    Ok((model, policy))
}

/// Reads at most one byte more than `limit`, so that a longer body is noticed.
fn read_body(input: impl Read, limit: usize) -> io::Result<Bytes> {
    let mut body = Vec::new();
    input.take(limit as u64 + 1).read_to_end(&mut body)?;
    Ok(body.into())
}

fn build_format_parser() -> impl clap::builder::TypedValueParser<Value = Format> {
    PossibleValuesParser::new(FORMATS.map(Format::name))
        .try_map(|name| Format::from_name(&name).ok_or("no such format"))
}

fn build_profile_parser() -> impl clap::builder::TypedValueParser<Value = &'static Profile> {
    PossibleValuesParser::new(PROFILES.iter().map(|profile| profile.name))
        .try_map(|name| find_profile(&name).ok_or("no such profile"))
}

#[cfg(test)]
mod tests;
