//! Arguments -> command -> exit code; nothing else.

use std::process::ExitCode;

use plimsoll::{cli, config::Environment};

fn main() -> ExitCode {
    cli::run(std::env::args_os(), &Environment::of_process())
}
