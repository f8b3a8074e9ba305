//! `plimsoll key NAME`: makes a client's key, and prints it with its section of the settings.
//!
//! SECURITY: the key is written nowhere else, and cannot be shown again: settings have its digest only.

use std::io::Write;

use sha2::{Digest, Sha256};

use super::{CommandError, CommandResult};
use crate::config::{Environment, Flags, load_config};

#[derive(clap::Args, Clone, Debug)]
pub(super) struct KeyArgs {
    /// Name of the client: a-z, 0-9, _ and -
    #[arg(value_parser = parse_name)]
    name: String,
}

pub(super) fn run(
    args: &KeyArgs,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let name = &args.name;
    // Settings that lack keys, and so cannot be used yet, do not matter here.
    let loaded = load_config(flags, environment);
    if loaded.is_ok_and(|loaded| loaded.config.clients.contains_key(name)) {
        return Err(CommandError::Command(format!(
            "clients.{name} has a key; take its section out of the settings to give it another"
        )));
    }
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| CommandError::Start(error.into()))?;
    let key = hex::encode(bytes);
    let digest = hex::encode(Sha256::digest(&key));
    writeln!(out, "the key of {name}, shown this once:   {key}\n")?;
    writeln!(out, "[clients.{name}]\nkey_sha256 = \"{digest}\"")?;
    Ok(out.flush()?)
}

fn parse_name(name: &str) -> Result<String, &'static str> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        Ok(name.to_owned())
    } else {
        Err("a name has the characters a-z, 0-9, _ and -")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sha2::{Digest, Sha256};

    use super::{super::CliArguments, Environment, Flags, KeyArgs, run};

    #[test]
    fn a_key_is_printed_with_its_section() {
        let mut out = Vec::new();
        let args = KeyArgs {
            name: "team-2".into(),
        };
        let flags = Flags {
            config: None,
            listen: None,
        };
        run(&args, &flags, &Environment::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (said, section) = text.split_once("\n\n").unwrap();
        let key = said
            .strip_prefix("the key of team-2, shown this once:   ")
            .unwrap();
        assert_eq!(key.len(), 48);
        let digest = hex::encode(Sha256::digest(key));
        assert_eq!(
            section,
            format!("[clients.team-2]\nkey_sha256 = \"{digest}\"\n")
        );
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "a.b", "A", "a b", "\"", "[x]"] {
            CliArguments::try_parse_from(["plimsoll", "key", name]).unwrap_err();
        }
    }
}
