//! What a client gets: variables, arguments and a file, as its row of the table of clients says.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    path::Path,
    process::Command,
};

use serde_json::Value;

use super::KeptProxy;
use crate::{
    cli::clients::{Existing, RunSetup, RunVariable, Values, find_run},
    config::Environment,
};

/// The client's program with its environment, and with its own arguments behind those of the table.
///
/// # Errors
/// A file cannot be written to the proxy's data directory.
pub(super) fn prepare_client(
    program: &OsStr,
    own: &[OsString],
    kept: &KeptProxy,
    environment: &Environment,
) -> io::Result<Command> {
    let name = Path::new(program).file_stem().unwrap_or(program);
    let setup = find_run(&name.to_string_lossy());
    let values = Values {
        base: kept.base.clone(),
        key: kept.key.clone(),
        file: write_file(setup, kept.data_dir.as_deref())?,
        ..Values::default()
    };
    let mut client = Command::new(program);
    for variable in setup.variables {
        if let Some(value) = values.expand(variable.value) {
            let existing = environment.get_variable(variable.name);
            client.env(variable.name, join_value(variable, existing, value));
        }
    }
    // SECURITY: a proxy of the environment gets nothing of what is for this machine.
    for (name, other) in [("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")] {
        let existing = environment
            .get_variable(name)
            .or(environment.get_variable(other));
        client.env(name, exclude_host(existing.unwrap_or_default(), &kept.base));
    }
    let arguments = setup.arguments.iter();
    client.args(arguments.filter_map(|argument| values.expand(argument)));
    client.args(own);
    Ok(client)
}

/// The hosts that are asked without a proxy, and that of a base URL.
fn exclude_host(existing: &str, base: &str) -> String {
    let host = base.split_once("://").map_or(base, |(_, rest)| rest);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let hosts = existing
        .split(',')
        .map(str::trim)
        .filter(|it| !it.is_empty());
    let hosts: Vec<&str> = hosts.filter(|it| *it != host).chain([host]).collect();
    if hosts.contains(&"*") {
        existing.to_owned()
    } else {
        hosts.join(",")
    }
}

/// Writes the file that the arguments name, and returns its path.
fn write_file(setup: &RunSetup, data_dir: Option<&Path>) -> io::Result<Option<String>> {
    let Some(((name, content), folder)) = setup.file.zip(data_dir) else {
        return Ok(None);
    };
    let path = std::path::absolute(folder.join(name))?;
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(content.as_bytes())?;
    draft.persist(&path)?;
    Ok(path.to_str().map(str::to_owned))
}

fn join_value(variable: &RunVariable, existing: Option<&str>, value: String) -> String {
    let Some(existing) = existing.filter(|it| !it.trim().is_empty()) else {
        return value;
    };
    match variable.existing {
        Existing::Replaced => value,
        Existing::Lines => {
            let header = |line: &str| {
                line.split(':')
                    .next()
                    .map(|it| it.trim().to_ascii_lowercase())
            };
            // The user's own value counts, as for a header with a client key.
            let has_own = existing.lines().any(|line| header(line) == header(&value));
            if has_own {
                existing.to_owned()
            } else {
                format!("{existing}\n{value}")
            }
        }
        Existing::Json => merge_json(existing, &value).unwrap_or(value),
    }
}

/// `None`: one of the two is no JSON.
fn merge_json(existing: &str, added: &str) -> Option<String> {
    let mut merged: Value = serde_json::from_str(existing).ok()?;
    merge_value(&mut merged, serde_json::from_str(added).ok()?);
    Some(merged.to_string())
}

fn merge_value(into: &mut Value, added: Value) {
    match (into, added) {
        (Value::Object(into), Value::Object(added)) => {
            for (name, value) in added {
                merge_value(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, added) => *into = added,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(existing: Existing, before: &str, value: &str) -> String {
        let variable = RunVariable {
            name: "N",
            value: "",
            existing,
        };
        join_value(&variable, Some(before), value.to_owned())
    }

    #[test]
    fn what_the_users_environment_has_is_kept_as_the_row_says() {
        let lines = |before| join(Existing::Lines, before, "x-plimsoll-key: ours");
        for (before, expected) in [
            ("", "x-plimsoll-key: ours"),
            ("a: b\nc: d", "a: b\nc: d\nx-plimsoll-key: ours"),
            ("a: b\nX-Plimsoll-Key: mine", "a: b\nX-Plimsoll-Key: mine"),
        ] {
            assert_eq!(lines(before), expected);
        }
        let json = |before| join(Existing::Json, before, r#"{"p":{"b":2}}"#);
        assert_eq!(
            json(r#"{"m":1,"p":{"a":1,"b":1}}"#),
            r#"{"m":1,"p":{"a":1,"b":2}}"#
        );
        assert_eq!(json("no json"), r#"{"p":{"b":2}}"#);
        assert_eq!(join(Existing::Replaced, "before", "now"), "now");
    }

    #[test]
    fn a_proxy_of_the_environment_is_not_asked_for_this_machine() {
        let base = "http://127.0.0.1:9";
        for (existing, expected) in [
            ("", "127.0.0.1"),
            ("a.b, .c", "a.b,.c,127.0.0.1"),
            ("127.0.0.1,a.b", "a.b,127.0.0.1"),
            ("*", "*"),
        ] {
            assert_eq!(exclude_host(existing, base), expected);
        }
        assert_eq!(exclude_host("", "http://[::1]:9"), "[::1]");
    }

    #[test]
    fn a_client_is_found_by_its_programs_name() {
        let kept = KeptProxy {
            base: "http://127.0.0.1:9".to_owned(),
            key: Some("k".to_owned()),
            data_dir: None,
        };
        let own = ["exec".into(), "hi".into()];
        let prepare = |program: &str| {
            prepare_client(program.as_ref(), &own, &kept, &Environment::default()).unwrap()
        };
        let codex = prepare("/usr/bin/codex");
        let arguments: Vec<_> = codex.get_args().collect();
        assert!(arguments.ends_with(&[OsStr::new("exec"), OsStr::new("hi")]));
        assert!(arguments.len() > 2, "{arguments:?}");
        let other = prepare("mine");
        let variables: Vec<_> = other.get_envs().collect();
        assert!(variables.contains(&(
            OsStr::new("OPENAI_BASE_URL"),
            Some(OsStr::new("http://127.0.0.1:9/v1"))
        )));
    }
}
