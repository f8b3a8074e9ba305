//! `plimsoll connect CLIENT`: prints what a client needs to use the proxy, and with `--write` sets it in the client's file.
//!
//! Nothing here knows a client: all is data of [`clients`](super::clients). A key is never written.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    CommandError, CommandResult,
    ask_proxy::ProxyArgs,
    clients::{
        Client, ClientFile, FileFormat, Values,
        edit::{self, Leaf},
        files::{list_missing_folders, read_file, refuse_read_only, write_file},
        find_client, list_clients,
        record::{Record, Written},
    },
    table,
};
use crate::config::{Config, Environment, Flags, load_config};

mod list;
pub(super) mod models;

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ConnectArgs {
    /// Which client, such as claude-code, codex or opencode
    #[arg(required_unless_present = "list")]
    client: Option<String>,
    /// Set it in the client's file, and keep a copy of the file
    #[arg(long)]
    write: bool,
    /// Show what --write would change
    #[arg(long)]
    dry_run: bool,
    /// List what points to the proxy
    #[arg(long, conflicts_with_all = ["client", "write", "dry_run"])]
    list: bool,
    #[command(flatten)]
    models: models::ModelArgs,
    #[command(flatten)]
    proxy: ProxyArgs,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct DisconnectArgs {
    /// Which client [default: all that connect --write has set up]
    client: Option<String>,
}

pub(super) fn run(
    args: &ConnectArgs,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let proxy = args.proxy.find(flags, environment)?;
    let base = &proxy.base;
    let config = load_config(flags, environment)?.config;
    let Some(name) = &args.client else {
        return list::write_list(base, &config, environment, out);
    };
    let client = named_client(name)?;
    let source = models::ModelSource {
        proxy: &proxy,
        config: &config,
    };
    let chosen = source.choose(client, &args.models)?;
    writeln!(
        out,
        "{} asks for {}; its base URL:",
        client.title, client.asks_for
    )?;
    writeln!(
        out,
        "  {}",
        chosen.values[0].expand(client.base).unwrap_or_default()
    )?;
    let files = plan_files(client, &chosen.values, environment)?;
    for file in &files {
        writeln!(
            out,
            "\nin {}:\n{}",
            file.path.display(),
            file.shown.trim_end()
        )?;
    }
    write_rest(client, &chosen, out)?;
    if !args.write && !args.dry_run {
        return Ok(());
    }
    if files.is_empty() {
        let title = client.title;
        // What was asked for is not done, so the exit code is that of a file that cannot be edited.
        return Err(CommandError::Command(format!(
            "nothing was written: {title} keeps its settings in no file that can be edited; set the values above by hand"
        )));
    }
    let data_dir = find_data_dir(&config)?;
    let _lock = if args.dry_run {
        None
    } else {
        fs::create_dir_all(data_dir)?;
        lock_records(data_dir)
    };
    let mut record = Record::load(data_dir, client.name).map_err(CommandError::Command)?;
    let mut refused = Vec::new();
    for file in files {
        let path = file.path.clone();
        let done = set_up(file, &mut record, args.dry_run, out);
        refused.extend(done.err().map(|why| format!("{}: {why}", path.display())));
    }
    if refused.is_empty() {
        return Ok(());
    }
    refused.push("such a file was not changed; add the lines above by hand".to_owned());
    Err(CommandError::Command(refused.join("\n")))
}

/// A file, and what is to stand in it.
struct PlannedFile {
    path: PathBuf,
    format: FileFormat,
    leaves: Vec<Leaf>,
    /// The values alone, as a file.
    shown: String,
}

fn plan_files(
    client: &Client,
    models: &[Values],
    environment: &Environment,
) -> Result<Vec<PlannedFile>, CommandError> {
    let plan = |file: &ClientFile| {
        let path = file.find(environment).ok_or_else(|| {
            let text =
                "no variable names a home (HOME), so there is no place for the client's file";
            CommandError::Command(text.to_owned())
        })?;
        let leaves = edit::list_leaves(file, models);
        let shown = match file.format {
            FileFormat::Yaml => expand_lines(file.content, &models[0]),
            format => edit::set_leaves(format, None, &leaves).map_err(CommandError::Command)?,
        };
        Ok(PlannedFile {
            path,
            format: file.format,
            leaves,
            shown,
        })
    };
    client.files.iter().map(plan).collect()
}

/// The lines whose placeholders all have a value.
fn expand_lines(text: &str, values: &Values) -> String {
    let lines = text.lines().filter_map(|line| values.expand(line));
    lines.map(|line| line + "\n").collect()
}

fn write_rest(client: &Client, chosen: &models::Chosen, out: &mut impl Write) -> CommandResult {
    let lines = expand_lines(client.lines, &chosen.values[0]);
    if !lines.is_empty() {
        writeln!(out, "\nbeside that:\n{}", lines.trim_end())?;
    }
    if !chosen.rows.is_empty() {
        writeln!(out, "\nmodels, {}", chosen.source)?;
        table::write_table(out, &chosen.rows)?;
    }
    writeln!(out, "\naddress: {}", client.address.replace('`', ""))?;
    writeln!(out, "window: {}", client.window.replace('`', ""))?;
    writeln!(out, "mind: {}", client.common_mistakes)?;
    if !client.was_run {
        writeln!(
            out,
            "these settings are from its documentation and were not tried with this release"
        )?;
    }
    writeln!(out, "key: {}", client.key)?;
    Ok(writeln!(
        out,
        "KEY is a client key of the proxy; without client keys, the provider's where the proxy has none, else any text"
    )?)
}

/// Writes one file, or shows what would be written.
///
/// # Errors
/// Why the file stays as it is.
fn set_up(
    file: PlannedFile,
    record: &mut Record,
    is_trial: bool,
    out: &mut impl Write,
) -> Result<(), String> {
    let now = read_file(&file.path)?;
    let earlier = record.find(&file.path).cloned();
    // What was written before gives way, as if it had never been.
    let before = match &earlier {
        Some(earlier) => earlier.undo(now.as_deref())?.text,
        None => now.clone(),
    };
    let after = match (&before, file.format) {
        (None, _) => file.shown,
        (Some(before), format) => edit::set_leaves(format, Some(before), &file.leaves)?,
    };
    let shown = file.path.display();
    let is_changed = now.as_ref() != Some(&after);
    if is_changed {
        refuse_read_only(&file.path)?;
    }
    let told = if !is_changed {
        format!("\n{shown} has these settings already\n")
    } else if is_trial {
        let hide = |text: &str| edit::hide_secrets(file.format, text);
        let (now, after) = (hide(now.as_deref().unwrap_or_default()), hide(&after));
        let name = shown.to_string();
        let diff = similar::TextDiff::from_lines(&now, &after);
        format!("\n{}", diff.unified_diff().header(&name, &name))
    } else {
        let folders = earlier.as_ref().map(|earlier| earlier.folders.clone());
        let written = Written {
            path: file.path.clone(),
            format: file.format,
            before,
            after: after.clone(),
            leaves: file.leaves,
            folders: folders.unwrap_or_else(|| list_missing_folders(&file.path)),
        };
        let copy = record.add(written)?;
        let is_same = || Ok(read_file(&file.path)? == now);
        let done = is_same().and_then(|is_same| {
            if is_same {
                write_file(&file.path, &after)
            } else {
                Err("the file was changed meanwhile; try again".to_owned())
            }
        });
        if let Err(why) = done {
            // What the record had still stands in the file.
            match earlier {
                Some(earlier) => drop(record.add(earlier)?),
                None => record.forget(&file.path)?,
            }
            return Err(why);
        }
        let copy = copy.map(|copy| format!("; a copy of it as it was is {}", copy.display()));
        format!("\nwrote {shown}{}\n", copy.unwrap_or_default())
    };
    out.write_all(told.as_bytes())
        .map_err(|error| error.to_string())
}

/// `plimsoll disconnect [CLIENT]`: undoes what `connect --write` did.
pub(super) fn run_disconnect(
    args: &DisconnectArgs,
    flags: &Flags,
    environment: &Environment,
    out: &mut impl Write,
) -> CommandResult {
    let config = load_config(flags, environment)?.config;
    let data_dir = find_data_dir(&config)?;
    let _lock = lock_records(data_dir);
    let clients: Vec<&Client> = match &args.client {
        Some(name) => vec![named_client(name)?],
        None => list_clients().collect(),
    };
    let (mut found, mut failed) = (false, Vec::new());
    for client in clients {
        let mut record = Record::load(data_dir, client.name).map_err(CommandError::Command)?;
        for file in record.files.clone() {
            found = true;
            match restore(&file, &mut record) {
                Ok(told) => writeln!(out, "{}: {told}", file.path.display())?,
                Err(why) => failed.push(format!("{}: {why}", file.path.display())),
            }
        }
    }
    match (&args.client, failed.is_empty()) {
        (_, false) => Err(CommandError::Command(failed.join("\n"))),
        (Some(name), _) if !found => Err(CommandError::Command(format!(
            "nothing of {name} was written by connect --write; `plimsoll connect --list` shows which clients use this proxy"
        ))),
        (None, _) if !found => Ok(writeln!(out, "nothing was written by connect --write")?),
        _ => Ok(()),
    }
}

/// Brings back what was there before; what was done.
fn restore(file: &Written, record: &mut Record) -> Result<String, String> {
    let now = read_file(&file.path)?;
    let by_hand =
        |why| format!("it was changed since, and {why}; take out by hand what was written");
    let undone = file.undo(now.as_deref()).map_err(by_hand)?;
    match (&undone.text, &now) {
        // The client, or a home that is not there, has lost what the copy still has.
        (_, None) if file.before.is_some() => {
            write_file(&file.path, file.before.as_deref().unwrap_or_default())?;
        }
        (Some(text), _) if undone.text != now => write_file(&file.path, text)?,
        (None, Some(_)) => {
            refuse_read_only(&file.path)?;
            let gone = fs::remove_file(&file.path);
            gone.map_err(|error| format!("it cannot be removed: {error}"))?;
        }
        _ => {}
    }
    for folder in &file.folders {
        // What has been put there since keeps it.
        let _ = fs::remove_dir(folder);
    }
    record.forget(&file.path)?;
    let what = match (&undone.text, &now) {
        (_, None) if file.before.is_some() => {
            "the file was missing; it is as it was before, byte for byte"
        }
        (_, None) => "the file is missing; there is nothing to undo",
        (None, _) => "removed, since there was none before",
        (Some(_), _) if undone.is_exact => "as it was before, byte for byte",
        (Some(_), _) => "it was changed since: only what connect had written is gone",
    };
    let mut told = what.to_owned();
    if !undone.changed.is_empty() {
        told += &format!(
            "; these stay, as they were changed: {}",
            undone.changed.join(", ")
        );
    }
    if !undone.added.is_empty() {
        told += &format!(
            "; these stay, as they were added beside it: {}; take them out if the client misses what is gone",
            undone.added.join(", ")
        );
    }
    Ok(told)
}

fn named_client(name: &str) -> Result<&'static Client, CommandError> {
    find_client(name).ok_or_else(|| {
        let names: Vec<_> = list_clients().map(|client| client.name).collect();
        CommandError::Command(format!("no client {name}; there are {}", names.join(", ")))
    })
}

/// Waits for another `connect --write` or `disconnect`, so that the record fits the files. Held until it is dropped; `None`
/// where there is no data directory, or its file system has no locks.
fn lock_records(data_dir: &Path) -> Option<File> {
    let folder = File::open(data_dir).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

fn find_data_dir(config: &Config) -> Result<&Path, CommandError> {
    config.server.data_dir.path().ok_or_else(|| {
        let text = "there is no folder for copies of the client's files: set server.data_dir to one that can be written";
        CommandError::Command(text.to_owned())
    })
}

#[cfg(test)]
mod tests;
