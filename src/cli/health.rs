//! `plimsoll health`: asks a running proxy whether it is ready. An image without a shell has no other way to ask.

use std::{io::Write, net::SocketAddr, time::Duration};

use reqwest::StatusCode;

use super::{CommandError, CommandResult, block_on};
use crate::{
    config::{Environment, Flags, load_config},
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
    let base = match &args.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let loaded = load_config(flags, environment);
            // The code 2 has another meaning for the checks of containers.
            let loaded = loaded.map_err(|problems| CommandError::Command(problems.to_string()))?;
            let listen = loaded.config.server.listen;
            format!("http://{}", find_reachable(listen))
        }
    };
    let url = format!("{base}/readyz");
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

/// An address that a client on this machine can connect to: the unspecified one stands for loopback.
fn find_reachable(listen: SocketAddr) -> SocketAddr {
    let mut address = listen;
    match listen {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => address.set_ip([127, 0, 0, 1].into()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            address.set_ip(std::net::Ipv6Addr::LOCALHOST.into());
        }
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests {
    use super::find_reachable;

    #[test]
    fn an_address_of_all_interfaces_is_asked_at_loopback() {
        for (listen, expected) in [
            ("0.0.0.0:1876", "127.0.0.1:1876"),
            ("[::]:1876", "[::1]:1876"),
            ("10.0.0.7:80", "10.0.0.7:80"),
        ] {
            let found = find_reachable(listen.parse().unwrap());
            assert_eq!(found.to_string(), expected);
        }
    }
}
