//! The clients that a command sets up, as data: [`CLIENTS`] has a row for each, and no client has code of its own.
//!
//! `plimsoll run` uses [`find_run`] and [`Values::expand`], `plimsoll connect` and `disconnect` the rest. A text of a row may
//! have placeholders; what names a value that is not there is left out as a whole (a variable, an argument, a
//! member of a file):
//!
//! | placeholder | value |
//! | --- | --- |
//! | `{base}` | the proxy's address, without a slash at its end: `http://127.0.0.1:1876` |
//! | `{base_v1}` | the same with `/v1` |
//! | `{key}` | what names the account at the proxy (`x-plimsoll-key`); a secret, so in variables only |
//! | `{model}` | the proxy's name of a model |
//! | `{window}` | tokens of the window that the client is told; a number in a file, if nothing else is in the text |
//! | `{window_text}` | the same, never as a number |
//! | `{output}` | tokens of the longest answer: a quarter of that window, 8,192 at the most; a number as `{window}` is |
//! | `{file}` | path of the file that [`RunSetup::file`] was written to |
//! | `{settings}` | what `connect` would write to the client's JSON file, where `run` tells a model |
//! | `{model_key}` | `{key}`, where `run` tells a model |

pub(in crate::cli) mod addresses;
mod agents;
mod apps;
pub(in crate::cli) mod edit;
pub(in crate::cli) mod files;
mod libraries;
pub(in crate::cli) mod record;

use serde::{Deserialize, Serialize};

/// One client.
#[derive(Debug)]
pub(in crate::cli) struct Client {
    /// Its name in commands: `plimsoll connect NAME`.
    pub(in crate::cli) name: &'static str,
    /// Its name in texts.
    pub(in crate::cli) title: &'static str,
    /// Its programs, by which `plimsoll run` finds it too.
    pub(in crate::cli) programs: &'static [&'static str],
    /// The path that it asks for.
    pub(in crate::cli) asks_for: &'static str,
    /// Where its address stands, for the table in `docs/clients.md`.
    pub(in crate::cli) address: &'static str,
    /// The base URL that it wants: `{base}` or `{base_v1}`.
    pub(in crate::cli) base: &'static str,
    /// How it names a model of the proxy's, such as `openai/{model}`.
    pub(in crate::cli) model: &'static str,
    /// Whether it works with names of its own, so that it needs no model.
    pub(in crate::cli) has_own_model_names: bool,
    /// The smallest window, in tokens, with which it works. A smaller one is not told: the proxy alone keeps to it.
    pub(in crate::cli) smallest_window: u64,
    /// Where its window stands, for the table in `docs/clients.md`.
    pub(in crate::cli) window: &'static str,
    /// How it sends a client key of the proxy, called KEY: a sentence or two.
    pub(in crate::cli) key: &'static str,
    /// The mistakes that its users make: a sentence or two.
    pub(in crate::cli) common_mistakes: &'static str,
    /// Whether the program itself was tried with them: it is in a public registry.
    pub(in crate::cli) was_run: bool,
    /// Its files, each with what stands there.
    pub(in crate::cli) files: &'static [ClientFile],
    /// What is to be done beside the files or in their place: lines of a shell or a program, fields of a form.
    pub(in crate::cli) lines: &'static str,
    /// How `plimsoll run` starts it; `None`: as any other program.
    pub(in crate::cli) run: Option<RunSetup>,
}

/// A file of a client's settings.
#[derive(Debug)]
pub(in crate::cli) struct ClientFile {
    /// The places of its folder: the first whose variable is set counts.
    pub(in crate::cli) folders: &'static [Folder],
    /// Its names: the first that is there, else the first.
    pub(in crate::cli) names: &'static [&'static str],
    pub(in crate::cli) format: FileFormat,
    /// What stands there. Of several models, each has its own copy, and these are merged.
    pub(in crate::cli) content: &'static str,
}

/// A place of a folder.
#[derive(Debug)]
pub(in crate::cli) struct Folder {
    /// A variable that names a folder. `HOME` stands for the user's home on any system.
    pub(in crate::cli) variable: &'static str,
    /// The path below that.
    pub(in crate::cli) below: &'static str,
}

/// The folder at a path below what a variable names.
const fn folder(variable: &'static str, below: &'static str) -> Folder {
    Folder { variable, below }
}

/// How a file is edited.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(in crate::cli) enum FileFormat {
    /// With comments and trailing commas, where the file has them.
    Json,
    Toml,
    /// Written where there is none, never edited.
    Yaml,
}

/// How `plimsoll run` starts a client.
#[derive(Debug)]
pub(in crate::cli) struct RunSetup {
    pub(in crate::cli) variables: &'static [RunVariable],
    /// Before the user's own. Those of one group stand or fall together.
    pub(in crate::cli) arguments: &'static [&'static [&'static str]],
    /// Name and content of a file that the arguments name as `{file}`. It lies in the proxy's data directory.
    pub(in crate::cli) file: Option<(&'static str, &'static str)>,
    /// Names of models that it asks for by itself, one of each maker. Empty: it is told no model.
    pub(in crate::cli) own_models: &'static [&'static str],
    /// Variables and arguments by which the user chooses a model.
    pub(in crate::cli) chosen_by: &'static [&'static str],
    /// Where an address may stand that counts for more than what is set here.
    pub(in crate::cli) overridden_in: &'static [Overriding],
}

/// Files that a client believes before its environment.
#[derive(Debug)]
pub(in crate::cli) struct Overriding {
    /// The key whose value is the address.
    pub(in crate::cli) name: &'static str,
    /// The first whose variable is set counts. `PROJECT` stands for the working directory, and for the repository around it.
    pub(in crate::cli) folders: &'static [Folder],
    pub(in crate::cli) names: &'static [&'static str],
}

/// A variable of a client's environment.
#[derive(Debug)]
pub(in crate::cli) struct RunVariable {
    pub(in crate::cli) name: &'static str,
    pub(in crate::cli) value: &'static str,
    pub(in crate::cli) existing: Existing,
}

/// What becomes of a variable's value that the user's environment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Existing {
    Replaced,
    /// Kept, in place of the new one.
    Kept,
    /// Kept, as lines before the new ones.
    Lines,
    /// Kept, as a JSON object into which the new members are merged ([`edit`]).
    Json,
}

/// What the placeholders stand for.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Values {
    /// `http://HOST:PORT`.
    pub(in crate::cli) base: String,
    pub(in crate::cli) key: Option<String>,
    pub(in crate::cli) model: Option<String>,
    /// Tokens.
    pub(in crate::cli) window: Option<u64>,
    pub(in crate::cli) file: Option<String>,
    pub(in crate::cli) settings: Option<String>,
}

impl Client {
    /// The window that it is told of a model with this one; both in tokens.
    pub(in crate::cli) fn told_window(&self, window: Option<u64>) -> Option<u64> {
        window.filter(|tokens| *tokens >= self.smallest_window)
    }
}

impl Values {
    /// In tokens. A client that keeps as much as its whole window free for an answer would compact after every step.
    pub(in crate::cli) fn longest_answer(&self) -> u64 {
        const MOST: u64 = 8_192;
        self.window.map_or(MOST, |tokens| (tokens / 4).min(MOST))
    }

    /// The text with its placeholders filled in; `None`: it names a value that is not there.
    pub(in crate::cli) fn expand(&self, text: &str) -> Option<String> {
        let window = self.window.map(|tokens| tokens.to_string());
        let values = [
            ("{base}", Some(self.base.clone())),
            ("{base_v1}", Some(format!("{}/v1", self.base))),
            ("{key}", self.key.clone()),
            ("{model}", self.model.clone()),
            ("{window}", window.clone()),
            ("{window_text}", window),
            ("{output}", Some(self.longest_answer().to_string())),
            ("{file}", self.file.clone()),
            ("{settings}", self.settings.clone()),
            ("{model_key}", self.model.as_ref().and(self.key.clone())),
        ];
        let named = values.iter().filter(|(name, _)| text.contains(name));
        let mut expanded = text.to_owned();
        for (name, value) in named {
            expanded = expanded.replace(name, value.as_deref()?);
        }
        Some(expanded)
    }
}

/// All clients, in the order of `docs/clients.md`.
pub(in crate::cli) fn list_clients() -> impl Iterator<Item = &'static Client> {
    let groups = [agents::AGENTS, apps::APPS, libraries::LIBRARIES];
    groups.into_iter().flatten()
}

/// The client of this name, or with this program.
pub(in crate::cli) fn find_client(name: &str) -> Option<&'static Client> {
    list_clients().find(|client| client.name == name || client.programs.contains(&name))
}

/// How to start a program: as its client's row says, else with the variables that most programs read.
pub(in crate::cli) fn find_run(program: &str) -> &'static RunSetup {
    let client = find_client(program);
    let own = client.and_then(|client| client.run.as_ref());
    own.unwrap_or(&agents::ANY_PROGRAM)
}

#[cfg(test)]
mod tests;
