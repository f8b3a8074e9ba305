//! `plimsoll-proxy`: starts the `plimsoll` beside it, with the same arguments. The packages are called so, and `uvx` runs
//! the program of its package's name.
//!
//! On Unix that one takes the place of this process: signals and exit codes are its own. Elsewhere it is the program.

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    use std::{env, fs, io::Write as _, os::unix::process::CommandExt as _, process::Command};

    // Behind links, since installers make them in another folder.
    let own = env::current_exe().and_then(fs::canonicalize);
    let program = own.map(|own| own.with_file_name("plimsoll"));
    let failed = match &program {
        Ok(program) => {
            let error = Command::new(program).args(env::args_os().skip(1)).exec();
            format!("{} cannot be started: {error}", program.display())
        }
        Err(error) => format!("it cannot be found out where this program lies: {error}"),
    };
    // Where standard error is closed, the exit code is enough.
    let _ = writeln!(std::io::stderr(), "plimsoll-proxy: {failed}");
    ExitCode::FAILURE
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    let environment = plimsoll::config::Environment::from_process();
    plimsoll::cli::run(std::env::args_os(), &environment)
}
