//! `plimsoll connect --list`: the files and variables that name the proxy's address.

use std::io::Write;

use super::{
    super::{
        CommandError, CommandResult,
        clients::{files::read_file, find_run, list_clients, record::Record},
        table::write_table,
    },
    Config, Environment, find_data_dir,
};

pub(super) fn write_list(
    base: &str,
    config: &Config,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let mut rows = Vec::new();
    for client in list_clients() {
        let record = match find_data_dir(config) {
            Ok(data_dir) => {
                Some(Record::load(data_dir, client.name).map_err(CommandError::Command)?)
            }
            Err(_) => None,
        };
        for file in client.files {
            let Some(path) = file.find(environment) else {
                continue;
            };
            // A file that cannot be read points nowhere that this user could know.
            let text = read_file(&path).ok().flatten().unwrap_or_default();
            let written = record.as_ref().and_then(|record| record.find(&path));
            let how = match written {
                Some(written) if written.after == text => "connect --write",
                Some(_) => "connect --write, changed since",
                None => "by hand",
            };
            if written.is_some() || names_address(&text, base) {
                rows.push([
                    client.name.to_owned(),
                    path.display().to_string(),
                    how.to_owned(),
                ]);
            }
        }
    }
    let variables = list_clients().filter_map(|client| client.run.as_ref());
    let variables = variables
        .chain([find_run("")])
        .flat_map(|run| run.variables);
    let mut names: Vec<&str> = variables.map(|variable| variable.name).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        if environment
            .get_variable(name)
            .is_some_and(|value| names_address(value, base))
        {
            let place = format!("the variable {name}");
            rows.push(["this shell".to_owned(), place, "by hand".to_owned()]);
        }
    }
    if rows.is_empty() {
        return Ok(writeln!(out, "nothing points to {base}")?);
    }
    writeln!(out, "what points to {base}")?;
    Ok(write_table(out, &rows)?)
}

/// Whether a text has the address, by number or by the name `localhost`.
fn names_address(text: &str, base: &str) -> bool {
    let (_, authority) = base.split_once("://").unwrap_or(("", base));
    let by_name = authority.replace("127.0.0.1", "localhost");
    let ends_there = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    let has = |address: &str| text.split(address).skip(1).any(ends_there);
    !authority.is_empty() && (has(authority) || has(&by_name))
}

#[cfg(test)]
mod tests {
    use super::names_address;

    #[test]
    fn an_address_is_found_whole() {
        let base = "http://127.0.0.1:1876";
        assert!(names_address("x = \"http://127.0.0.1:1876/v1\"", base));
        assert!(names_address("http://localhost:1876", base));
        assert!(!names_address("http://127.0.0.1:18760/v1", base));
        assert!(!names_address("", base));
    }
}
