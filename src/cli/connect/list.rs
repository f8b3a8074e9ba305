//! `plimsoll connect --list`: the files and variables that name the proxy's address.

use std::io::Write;

use reqwest::Url;

use super::{
    super::{
        CommandError, CommandResult,
        clients::{
            addresses::{FoundFile, find_files, find_variables, is_same_place},
            files::read_file,
            record::Record,
        },
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
    let address = Url::parse(base);
    let address = address.map_err(|error| CommandError::Command(format!("{base}: {error}")))?;
    let is_here = |url: &Url| is_same_place(url, &address);
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    let files = find_files(environment);
    for file in &files {
        // A file of a client's without an address belongs to the one that has it.
        let mut of_client = files.iter().filter(|it| it.client.name == file.client.name);
        let points_here = if file.urls.is_empty() {
            of_client.any(|it| it.urls.iter().any(is_here))
        } else {
            file.urls.iter().any(is_here)
        };
        let Some(how) = explain_how(file, points_here, config)? else {
            continue;
        };
        let row = [
            file.client.name.to_owned(),
            file.path.display().to_string(),
            how,
        ];
        if points_here {
            here.push(row);
        } else {
            elsewhere.push(row);
        }
    }
    for (name, _) in find_variables(environment)
        .iter()
        .filter(|(_, url)| is_here(url))
    {
        let place = format!("the variable {name}");
        here.push(["this shell".to_owned(), place, "by hand".to_owned()]);
    }
    if here.is_empty() {
        writeln!(out, "nothing points to {base}")?;
    } else {
        writeln!(out, "what points to {base}")?;
        write_table(out, &here)?;
    }
    if !elsewhere.is_empty() {
        writeln!(
            out,
            "\nwritten by connect --write, but with another address now"
        )?;
        write_table(out, &elsewhere)?;
    }
    Ok(())
}

/// Who has written the address, and where it leads if not here. `None`: the file has nothing to do with the proxy.
fn explain_how(
    file: &FoundFile,
    points_here: bool,
    config: &Config,
) -> Result<Option<String>, CommandError> {
    let record = match find_data_dir(config) {
        Ok(data_dir) => {
            Some(Record::load(data_dir, file.client.name).map_err(CommandError::Command)?)
        }
        Err(_) => None,
    };
    let Some(written) = record.as_ref().and_then(|record| record.find(&file.path)) else {
        let has_address = points_here && !file.urls.is_empty();
        return Ok(has_address.then(|| "by hand".to_owned()));
    };
    // A file that cannot be read points nowhere that this user could know.
    let mut how = match read_file(&file.path).ok().flatten() {
        Some(text) if text == written.after => "connect --write".to_owned(),
        Some(_) => "connect --write, changed since".to_owned(),
        None => "connect --write, gone since".to_owned(),
    };
    if !points_here {
        for url in &file.urls {
            // SECURITY: an address may hold a password.
            how += &format!(", {}", url.origin().ascii_serialization());
        }
    }
    Ok(Some(how))
}
