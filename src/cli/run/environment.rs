//! What a client gets: variables, arguments and a file, as its row of the table of clients says.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    path::Path,
    process::Command,
};

use serde_json::Value;

use super::KeptProxy;
use crate::{
    cli::clients::{
        Client, Existing, FileFormat, RunSetup, RunVariable, Values, edit, find_client, find_run,
    },
    config::Environment,
};

/// The client's program with its environment, and with its own arguments behind those of the table. `models`: at least one
/// value, as [`ModelSource::choose_for_run`](crate::cli::connect::models::ModelSource::choose_for_run) tells them.
///
/// # Errors
/// A file cannot be written to the proxy's data directory.
pub(super) fn prepare_client(
    program: &OsStr,
    own: &[OsString],
    kept: &KeptProxy,
    models: &[Values],
    environment: &Environment,
) -> io::Result<Command> {
    let name = name_of(program);
    let setup = find_run(&name);
    let settings = find_client(&name).and_then(|client| list_settings(client, models));
    let mut values = Values {
        key: kept.key.clone(),
        settings,
        ..models.first().cloned().unwrap_or_default()
    };
    values.file = write_file(setup, &values, kept.data_dir.as_deref())?;
    let mut client = Command::new(program);
    let mut set: BTreeMap<&str, String> = BTreeMap::new();
    for variable in setup.variables {
        if let Some(value) = values.expand(variable.value) {
            let before = set.get(variable.name).map(String::as_str);
            let existing = before.or(environment.get_variable(variable.name));
            let joined = join_value(variable, existing, value);
            set.insert(variable.name, joined);
        }
    }
    client.envs(set);
    // SECURITY: a proxy of the environment gets nothing of what is for this machine.
    for (name, other) in [("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")] {
        let existing = environment
            .get_variable(name)
            .or(environment.get_variable(other));
        client.env(name, exclude_host(existing.unwrap_or_default(), &kept.base));
    }
    for group in setup.arguments {
        let expanded = group.iter().map(|argument| values.expand(argument));
        client.args(expanded.collect::<Option<Vec<_>>>().unwrap_or_default());
    }
    client.args(own);
    Ok(client)
}

/// By what name the table has a program.
pub(super) fn name_of(program: &OsStr) -> Cow<'_, str> {
    let name = Path::new(program).file_stem().unwrap_or(program);
    name.to_string_lossy()
}

/// Whether the user chooses a model for the client.
pub(super) fn has_choice(setup: &RunSetup, own: &[OsString], environment: &Environment) -> bool {
    let is_named = |argument: &OsString, name: &str| {
        let rest = argument.to_str().and_then(|it| it.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let has = |name: &&str| {
        environment
            .get_variable(name)
            .is_some_and(|it| !it.trim().is_empty())
            || own.iter().any(|argument| is_named(argument, name))
    };
    setup.chosen_by.iter().any(has)
}

/// What `plimsoll connect` would write to the client's JSON file for these models.
fn list_settings(client: &Client, models: &[Values]) -> Option<String> {
    models.first()?.model.as_ref()?;
    let mut files = client.files.iter();
    let file = files.find(|file| file.format == FileFormat::Json)?;
    edit::set_leaves(file.format, None, &edit::list_leaves(file, models)).ok()
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

/// Writes the file that the arguments name, and returns its path. `None`: none is needed.
fn write_file(
    setup: &RunSetup,
    values: &Values,
    data_dir: Option<&Path>,
) -> io::Result<Option<String>> {
    let Some((name, content)) = setup.file else {
        return Ok(None);
    };
    let content = match (content, &values.settings) {
        ("{settings}", Some(settings)) => settings.as_str(),
        ("{settings}", None) => return Ok(None),
        (content, _) => content,
    };
    // Without the file, the client would go around the proxy.
    let folder = data_dir.ok_or_else(|| {
        io::Error::other(format!(
            "{name} has to be written for this client: set server.data_dir to a folder that can be written"
        ))
    })?;
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
        Existing::Kept => existing.to_owned(),
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
        assert_eq!(join(Existing::Kept, "before", "now"), "before");
        assert_eq!(join(Existing::Kept, " ", "now"), "now");
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
        let none = [Values {
            base: kept.base.clone(),
            ..Values::default()
        }];
        let prepare = |program: &str| {
            let environment = Environment::default();
            prepare_client(program.as_ref(), &own, &kept, &none, &environment).unwrap()
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
