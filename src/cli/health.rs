//! `plimsoll health`: asks a running proxy whether it is ready. An image without a shell has no other way to ask.

use std::{io::Write, time::Duration};

use reqwest::StatusCode;

use super::{CommandError, CommandResult, block_on, find_proxy};
use crate::{
    config::{Environment, Flags},
    error::format_error_chain,
    provider::begin_http_client,
};

/// Shorter than the limit that container engines set for a check by default (30 s).
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(clap::Args, Clone, Debug)]
pub(super) struct HealthArgs {
    /// Where the proxy is [default: the address that the settings have it listen on]
    #[arg(long, value_name = "ADDRESS")]
    url: Option<String>,
}

pub(super) fn run(
    args: &HealthArgs,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let base = find_proxy(args.url.as_deref(), flags, environment);
    // The code 2 has another meaning for the checks of containers.
    let base = base.map_err(|problems| CommandError::Command(problems.to_string()))?;
    let url = format!("{}/readyz", base.trim_end_matches('/'));
    let asked = block_on(async {
        let client = begin_http_client().timeout(TIMEOUT).build()?;
        let answer = client.get(&url).send().await?;
        Ok::<StatusCode, reqwest::Error>(answer.status())
    })?;
    match asked {
        Ok(StatusCode::OK) => Ok(writeln!(out, "ready")?),
        Ok(status) => Err(CommandError::Command(format!(
            "{url} answers {status}: not ready"
        ))),
        Err(error) => {
            let reason = format_error_chain(&error.without_url());
            Err(CommandError::Command(format!(
                "{url} gives no answer: {reason}"
            )))
        }
    }
}
