//! `plimsoll completions`: the script by which a shell completes commands and options.

use std::io::Write;

use clap_complete::Shell;

use super::{CommandResult, describe_command_line};

#[derive(clap::Args, Clone, Copy, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell to write for
    shell: Shell,
}

pub(super) fn run(args: CompletionsArgs, out: &mut impl Write) -> CommandResult {
    // The library panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut describe_command_line(),
        "plimsoll",
        &mut script,
    );
    Ok(out.write_all(&script)?)
}
