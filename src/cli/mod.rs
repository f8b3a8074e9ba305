//! The command line: arguments -> a command -> an exit code.
//!
//! Results go to standard output, problems to standard error. Nothing panics when a pipe is
//! closed early.

mod check;
mod demo;
mod inspect;
mod models;
mod serve;
mod sessions;
mod table;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
use thiserror::Error;

use crate::config::{Environment, Flags, Problems};

/// Keeps every conversation inside its model's context window, and says how full the window is.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version)]
struct CliArguments {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Run the proxy (the default)
    Serve,
    /// Validate the settings and show what they come to
    Check,
    /// List the models, with their windows and where these come from
    Models(models::ModelsArgs),
    /// Show what the guard would do to a request
    Inspect(inspect::InspectArgs),
    /// Play a long coding session against the built-in provider: no key, no network
    Demo(demo::DemoArgs),
    /// List the sessions of a running proxy
    Sessions(sessions::SessionsArgs),
}

/// Why a command ended early.
#[derive(Debug, Error)]
enum CommandError {
    #[error("the settings cannot be used:\n{0}")]
    Settings(#[from] Problems),
    #[error("{0}: the address is in use; stop what listens there, or choose another with --listen")]
    AddressInUse(std::net::SocketAddr),
    #[error("{address}: cannot listen there: {source}")]
    Listen {
        address: std::net::SocketAddr,
        source: io::Error,
    },
    #[error("the proxy could not be started: {}", crate::error::format_error_chain(.0))]
    Start(io::Error),
    #[error("the demo ended early: the proxy did not answer: {0}")]
    Demo(reqwest::Error),
    /// What a command says of itself.
    #[error("{0}")]
    Command(String),
    #[error("the output could not be written: {0}")]
    Output(#[from] io::Error),
}

/// Runs the command that the arguments name. Exit codes: 0 done, 1 failed, 2 wrong arguments or
/// settings.
pub fn run(arguments: impl IntoIterator<Item = OsString>, environment: &Environment) -> ExitCode {
    let arguments = match CliArguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        // `--help` and `--version` come this way too, and are no failure.
        Err(message) => {
            let code = u8::try_from(message.exit_code()).unwrap_or(2);
            return match message.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::from(code.max(1)),
            };
        }
    };
    let flags = arguments.flags;
    let out = &mut io::stdout();
    let done = match arguments.command.unwrap_or(Command::Serve) {
        Command::Serve => serve::run(&flags, environment),
        Command::Check => check::run(&flags, environment, out),
        Command::Models(args) => models::run(&args, &flags, environment, out),
        Command::Inspect(args) => inspect::run(&args, &flags, environment, &mut io::stdin(), out),
        Command::Demo(args) => demo::run(&args, out),
        Command::Sessions(args) => sessions::run(&args, &flags, environment, out),
    };
    let failed = match done {
        Ok(()) => return ExitCode::SUCCESS,
        // Whoever read the output has seen enough.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        Err(failed) => failed,
    };
    // With standard error closed too, the exit code says it.
    let _ = writeln!(io::stderr().lock(), "plimsoll: {failed}");
    ExitCode::from(match failed {
        CommandError::Settings(_) => 2,
        _ => 1,
    })
}

/// A client for the proxy that a command talks to.
///
/// SECURITY: follows no redirects and uses no proxy of the environment, so that a key goes only to the
/// address that was named.
fn build_http_client(timeout: Duration) -> reqwest::Result<reqwest::Client> {
    // Another provider may be installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .build()
}

/// Waits for what a command asks of others, on this thread.
fn block_on<T>(task: impl Future<Output = T>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    Ok(runtime.map_err(CommandError::Start)?.block_on(task))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{CliArguments, Command};

    #[test]
    fn the_arguments_are_consistent() {
        let command = CliArguments::command();
        let about = command.get_about().unwrap().to_string();
        assert!(about.starts_with("Keeps every conversation"), "{about}");
        command.debug_assert();
    }

    #[test]
    fn flags_may_stand_before_and_after_the_command() {
        for line in [
            "plimsoll check --listen [::1]:1",
            "plimsoll --listen [::1]:1 check",
        ] {
            let parsed = CliArguments::try_parse_from(line.split(' ')).unwrap();
            assert!(matches!(parsed.command, Some(Command::Check)));
            assert_eq!(parsed.flags.listen.as_deref(), Some("[::1]:1"));
        }
        let bare = CliArguments::try_parse_from(["plimsoll"]).unwrap();
        assert!(bare.command.is_none());
    }
}
