//! The pages of the manual in `packaging/man`, which the package for Debian brings, and the scripts for shells.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use super::root;

fn pages(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let named = entries.map(|it| {
        let text = fs::read_to_string(it.path()).unwrap();
        (it.file_name().into_string().unwrap(), text)
    });
    named.collect()
}

/// `UPDATE_GOLDEN=1` writes them anew. They have no version, so that a release changes none.
#[test]
fn the_manual_is_that_of_the_command_line() {
    let made = tempfile::tempdir().unwrap();
    let command = plimsoll::cli::describe_command_line().version(None);
    clap_mangen::generate_to(command.disable_help_subcommand(true), made.path()).unwrap();
    let (made, kept) = (pages(made.path()), root().join("packaging/man"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let _ = fs::remove_dir_all(&kept);
        fs::create_dir(&kept).unwrap();
        for (name, text) in &made {
            fs::write(kept.join(name), text).unwrap();
        }
    }
    assert!(made.len() > 8, "{:?}", made.keys());
    assert!(
        made == pages(&kept),
        "UPDATE_GOLDEN=1 writes {} anew",
        kept.display()
    );
}

#[test]
fn shells_complete_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let done = command.args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(done.stdout).unwrap();
        assert!(
            script.contains("doctor") && script.contains("inspect"),
            "{shell}: {script}"
        );
    }
    let script = "source packaging/completions/plimsoll.bash && COMP_WORDS=(plimsoll doc) COMP_CWORD=1 \
                  && _plimsoll plimsoll doc plimsoll && test \"${COMPREPLY[*]}\" = doctor";
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let done = Command::new("bash")
        .args(["-c", script])
        .current_dir(root())
        .env("PATH", format!("{}:{path}", program.display()))
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
