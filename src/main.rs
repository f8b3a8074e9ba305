//! Arguments -> command -> exit code; nothing else.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use plimsoll::{cli, config::Environment};

/// A request makes and drops some hundred small things: measured, a quarter of its processor time with the
/// system's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run(std::env::args_os(), &Environment::from_process())
}
