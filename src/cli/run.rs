//! `plimsoll run CLIENT [ARGS…]`: starts a client with what it needs to go through the proxy. Nothing of the client's is
//! written.
//!
//! The command becomes the client (`exec`), so that terminal, signals and exit code are the client's. Before, it starts a
//! *keeper* (`keep.rs`), a process that finds or starts the proxy, holds it by a lease, and ends with the client.

mod environment;
mod keep;
pub(super) mod lease;
mod overriding;
mod start;

use std::{
    ffi::OsString,
    io::{self, BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde::{Deserialize, Serialize};

use self::environment::{has_choice, name_of, prepare_client};
pub(super) use self::{
    keep::{KeepArgs, keep},
    lease::find_running,
};
use super::{
    CommandError, CommandResult,
    ask_proxy::AskedProxy,
    clients::{Values, find_client},
    connect::models::{ModelArgs, ModelSource},
};
use crate::config::{Environment, Flags, load_config};

#[derive(clap::Args, Clone, Debug)]
pub(super) struct RunArgs {
    /// The client's program and its arguments, such as `claude` or `codex exec "..."`
    #[arg(required = true, trailing_var_arg = true, value_name = "CLIENT")]
    command: Vec<OsString>,
    #[command(flatten)]
    models: ModelArgs,
    #[command(flatten)]
    limits: Limits,
}

/// What tests shorten.
#[derive(clap::Args, Clone, Copy, Debug)]
struct Limits {
    /// How long a proxy that was started here lives after its last client
    #[arg(
        long,
        hide = true,
        value_name = "MILLISECONDS",
        default_value_t = 60_000
    )]
    end_unused_ms: u64,
}

/// What the keeper tells the command, as a line of JSON.
#[derive(Debug, Deserialize, Serialize)]
struct KeptProxy {
    /// `http://HOST:PORT`.
    base: String,
    /// What names the account of this data directory, for `x-plimsoll-key`.
    key: Option<String>,
    data_dir: Option<PathBuf>,
}

pub(super) fn run(args: &RunArgs, flags: &Flags, environment: &Environment) -> CommandResult {
    let Some((program, own)) = args.command.split_first() else {
        return Err(CommandError::Command("name a client to run".to_owned()));
    };
    let mut keeper = start_keeper(args.limits, flags).map_err(CommandError::Start)?;
    let Some(kept) = read_answer(&mut keeper) else {
        // It has said why.
        let code = keeper.wait().ok().and_then(|status| status.code());
        let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        return Err(CommandError::Exit(code.max(1), String::new()));
    };
    let models = choose_models(args, own, &kept, flags, environment)?;
    for warning in overriding::find_warnings(program, &kept.base, environment) {
        say(&warning);
    }
    let client = prepare_client(program, own, &kept, &models, environment);
    become_client(client.map_err(CommandError::Client)?, keeper)
}

fn choose_models(
    args: &RunArgs,
    own: &[OsString],
    kept: &KeptProxy,
    flags: &Flags,
    environment: &Environment,
) -> Result<Vec<Values>, CommandError> {
    let config = load_config(flags, environment)?.config;
    let source = ModelSource {
        proxy: &AskedProxy::proven(&kept.base, environment),
        config: &config,
    };
    let name = args.command.first().map(|program| name_of(program));
    let client = name.and_then(|name| find_client(&name));
    let client = client.and_then(|client| client.run.as_ref().map(|run| (client, run)));
    let has_choice = client.is_some_and(|(_, run)| has_choice(run, own, environment));
    let chosen = source.choose_for_run(client, &args.models, has_choice)?;
    if let Some(said) = &chosen.said {
        say(said);
    }
    Ok(chosen.values)
}

fn say(message: &str) {
    // Where standard error is closed, nobody reads.
    let _ = writeln!(io::stderr().lock(), "plimsoll: {message}");
}

/// SECURITY: the keeper gets nothing but the settings' flags; the client's arguments may hold keys.
fn start_keeper(limits: Limits, flags: &Flags) -> io::Result<Child> {
    let mut keeper = own_command(flags)?;
    keeper
        .args(["keep", "--client", &std::process::id().to_string()])
        .args(["--end-unused-ms", &limits.end_unused_ms.to_string()]);
    if let Some(listen) = &flags.listen {
        keeper.args(["--listen", listen]);
    }
    // Where no process can be watched, the end of its input tells the keeper that the client is gone.
    let input = if cfg!(unix) {
        Stdio::null()
    } else {
        Stdio::piped()
    };
    keeper.stdin(input).stdout(Stdio::piped()).spawn()
}

/// This program with the same settings file, in a process group of its own: what the terminal sends to the client is not
/// for it.
fn own_command(flags: &Flags) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(file) = &flags.config {
        command.arg("--config").arg(file);
    }
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    #[cfg(windows)]
    std::os::windows::process::CommandExt::creation_flags(&mut command, NEW_PROCESS_GROUP);
    Ok(command)
}

/// `CREATE_NEW_PROCESS_GROUP`.
#[cfg(windows)]
const NEW_PROCESS_GROUP: u32 = 0x200;

fn read_answer(keeper: &mut Child) -> Option<KeptProxy> {
    let mut line = String::new();
    BufReader::new(keeper.stdout.take()?)
        .read_line(&mut line)
        .ok()?;
    serde_json::from_str(&line).ok()
}

/// Exit codes as `env` has them, where the client cannot be started.
fn explain_no_start(client: &Command, error: &io::Error) -> CommandError {
    let code = if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    let program = client.get_program().display();
    CommandError::Exit(code, format!("{program} cannot be started: {error}"))
}

#[cfg(unix)]
fn become_client(mut client: Command, _keeper: Child) -> CommandResult {
    let error = std::os::unix::process::CommandExt::exec(&mut client);
    Err(explain_no_start(&client, &error))
}

/// Starts the client, and ends with it; or stops it where the keeper has ended.
#[cfg(not(unix))]
fn become_client(mut client: Command, mut keeper: Child) -> CommandResult {
    let started = client.spawn();
    let mut running = started.map_err(|error| explain_no_start(&client, &error))?;
    loop {
        if let Some(status) = running.try_wait().map_err(CommandError::Start)? {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return match code {
                Some(0) => Ok(()),
                code => Err(CommandError::Exit(code.unwrap_or(1), String::new())),
            };
        }
        if keeper.try_wait().map_err(CommandError::Start)?.is_some() {
            let _ = running.kill();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
