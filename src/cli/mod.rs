//! The command line: one file for each command.
//!
//! Results go to standard output, problems to standard error. A pipe that is closed early is no error.

mod ask_proxy;
mod check;
mod clients;
mod completions;
mod connect;
#[cfg(feature = "simulated")]
mod demo;
mod doctor;
mod health;
mod inspect;
mod key;
mod models;
mod proxy_file;
mod proxy_socket;
mod run;
mod serve;
mod sessions;
mod table;

use std::{
    ffi::OsString,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};
use thiserror::Error;

use crate::config::{Environment, Flags, Problems, load_config, make_settings_schema};

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
    Serve(serve::ServeArgs),
    /// Start a client through the proxy, which is started if none runs
    Run(run::RunArgs),
    /// Hold a proxy for a client, as `run` does
    #[command(hide = true)]
    Keep(run::KeepArgs),
    /// Validate the settings and show what they come to
    Check(check::CheckArgs),
    /// Look for what keeps a set-up from working, with what to do about it: the exit code is 0 or 1
    Doctor(doctor::DoctorArgs),
    /// List the models, with their windows and where these come from
    Models(models::ModelsArgs),
    /// Show what the guard would do to a request
    Inspect(inspect::InspectArgs),
    #[cfg(feature = "simulated")]
    /// Play a long coding session against the built-in provider: no key, no network
    Demo(demo::DemoArgs),
    /// List the sessions of a running proxy
    Sessions(sessions::SessionsArgs),
    /// Print what a client needs to use the proxy, or write it into the client's file
    Connect(connect::ConnectArgs),
    /// Undo what connect --write did
    Disconnect(connect::DisconnectArgs),
    /// Make a client's key: it is printed this once, with the section that lets it in
    Key(key::KeyArgs),
    /// Ask a running proxy whether it is ready, for the checks of containers: the exit code is 0 or 1
    Health(health::HealthArgs),
    /// Print the JSON Schema of the settings file, for editors
    Schema,
    /// Print the script by which a shell completes commands and options
    Completions(completions::CompletionsArgs),
}

type CommandResult = Result<(), CommandError>;

#[derive(Debug, Error)]
enum CommandError {
    #[error("the settings cannot be used:\n{0}")]
    Settings(#[from] Problems),
    #[error(
        "{0}: the address is in use; stop the program that listens there, or choose another with --listen"
    )]
    AddressInUse(SocketAddr),
    #[error("{address}: cannot listen there: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the proxy could not be started: {}", crate::error::format_error_chain(.0))]
    Start(io::Error),
    /// The error, and what is known of the other proxy.
    #[error("{0}\nThat is {1}")]
    OtherProxy(Box<Self>, String),
    #[cfg(feature = "simulated")]
    #[error("the demo ended early: the proxy did not answer: {0}")]
    Demo(reqwest::Error),
    #[error("the client could not be started: {0}")]
    Client(io::Error),
    /// An exit code, and a message, unless the output or another process has said it.
    #[error("{1}")]
    Exit(u8, String),
    /// The message of one command.
    #[error("{0}")]
    Command(String),
    #[error("the output could not be written: {0}")]
    Output(#[from] io::Error),
}

/// Runs the command that the arguments name. Exit codes: 0 done, 1 failed, 2 wrong arguments or settings.
pub fn run(arguments: impl IntoIterator<Item = OsString>, environment: &Environment) -> ExitCode {
    let arguments = match CliArguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        // `--help` and `--version` are messages with the exit code 0.
        Err(message) => {
            let code = u8::try_from(message.exit_code()).unwrap_or(2);
            let printed = message.print();
            return ExitCode::from(if printed.is_ok() { code } else { code.max(1) });
        }
    };
    let flags = arguments.flags;
    let out = &mut io::stdout();
    let result = match arguments.command.unwrap_or(Command::Serve(<_>::default())) {
        Command::Serve(args) => serve::run(&args, &flags, environment),
        Command::Run(args) => run::run(&args, &flags, environment),
        Command::Keep(args) => run::keep(&args, &flags, environment),
        Command::Check(args) => check::run(args, &flags, environment, out),
        Command::Doctor(args) => doctor::run(args, &flags, environment, out),
        Command::Schema => write_schema(out),
        Command::Completions(args) => completions::run(args, out),
        Command::Connect(args) => connect::run(&args, &flags, environment, out),
        Command::Disconnect(args) => connect::run_disconnect(&args, &flags, environment, out),
        Command::Key(args) => key::run(&args, &flags, environment, out),
        Command::Health(args) => health::run(&args, &flags, environment, out),
        Command::Models(args) => models::run(&args, &flags, environment, out),
        Command::Inspect(args) => inspect::run(&args, &flags, environment, &mut io::stdin(), out),
        #[cfg(feature = "simulated")]
        Command::Demo(args) => demo::run(&args, out),
        Command::Sessions(args) => sessions::run(&args, &flags, environment, out),
    };
    let code = match &result {
        Ok(()) => return ExitCode::SUCCESS,
        // The reader of the output has closed it.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return ExitCode::SUCCESS;
        }
        // Printed as JSON.
        Err(CommandError::Settings(problems)) if problems.0.is_empty() => return ExitCode::from(2),
        Err(CommandError::Exit(code, message)) if message.is_empty() => {
            return ExitCode::from(*code);
        }
        Err(CommandError::Exit(code, _)) => *code,
        Err(CommandError::Settings(_)) => 2,
        Err(_) => 1,
    };
    if let Err(error) = result {
        // Where standard error is closed, the exit code is enough.
        let _ = writeln!(io::stderr().lock(), "plimsoll: {error}");
    }
    ExitCode::from(code)
}

fn write_schema(out: &mut impl Write) -> CommandResult {
    Ok(writeln!(out, "{:#}", make_settings_schema())?)
}

/// The commands and their options, for what describes them elsewhere.
pub fn describe_command_line() -> clap::Command {
    CliArguments::command()
}

/// Runs a future to its end on this thread.
fn block_on<T>(task: impl Future<Output = T>) -> Result<T, CommandError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().map_err(CommandError::Start)?;
    Ok(runtime.block_on(task))
}

/// The address of a running proxy: the named one, else where the settings have it listen.
fn find_proxy(
    named: Option<&str>,
    flags: &Flags,
    environment: &Environment,
) -> Result<String, Problems> {
    Ok(match named {
        Some(url) => url.to_owned(),
        None => {
            let listen = load_config(flags, environment)?.config.server.listen;
            format!("http://{}", find_reachable(listen))
        }
    })
}

/// An address that a client on this machine can connect to: the unspecified one stands for loopback.
fn find_reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{CliArguments, Command, find_reachable};

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
            assert!(matches!(parsed.command, Some(Command::Check(_))));
            assert_eq!(parsed.flags.listen.as_deref(), Some("[::1]:1"));
        }
        let bare = CliArguments::try_parse_from(["plimsoll"]).unwrap();
        assert!(bare.command.is_none());
    }
}
