//! Where settings come from: built-in defaults, then the file, the environment, the flags.
//!
//! Each source becomes one of the [`Layers`]; [`Config`] reads them all.
//! The environment is a value that is handed in; nothing here reads the process's own.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use figment::{
    providers::{Format, Toml},
    value::Dict,
};

use super::{
    Config, SECTIONS,
    layer::Layers,
    problem::{Problem, Problems},
    section::Section,
    setting::SettingSource,
};

/// A settings file larger than this is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;

const PREFIX: &str = "PLIMSOLL_";

/// Read when no file is named and one of this name lies in the working directory.
const DEFAULT_FILE: &str = "config.toml";

/// The variables a process was started with.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

/// Names only: values can be keys.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// Variables that are not Unicode are left out: no setting can be spelt with one.
    pub fn from_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    pub(crate) fn get_variable(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let owned = |(name, value): (K, V)| (name.into(), value.into());
        Self(variables.into_iter().map(owned).collect())
    }
}

// What the command line says about settings. A comment of documentation would take the place of what
// `plimsoll --help` says first.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    // An error if it is not there.
    /// Settings file [default: config.toml, if there is one]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:1876]
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub listen: Option<String>,
}

/// Settings that passed every check.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Variables that look like settings and are none.
    pub warnings: Vec<Problem>,
}

/// All sources as they are written, each read once: a pipe holds nothing for whoever reads it again.
pub(super) struct WrittenSettings {
    pub(super) file: Option<PathBuf>,
    /// There is a file, and it says something.
    pub(super) has_content: bool,
    pub(super) layers: Layers,
    warnings: Vec<Problem>,
}

/// Reads, merges and checks all sources.
///
/// # Errors
/// All problems at once: of the file, of types and names, of values.
pub fn load_config(flags: &Flags, environment: &Environment) -> Result<LoadedConfig, Problems> {
    WrittenSettings::read_sources(flags, environment)?.check_settings(environment)
}

impl WrittenSettings {
    /// # Errors
    /// The file cannot be read, or is no TOML.
    pub(super) fn read_sources(flags: &Flags, environment: &Environment) -> Result<Self, Problems> {
        let path = settings_path(flags);
        let must_exist = flags.config.is_some();
        let text = match read_text(path, MAX_FILE_BYTES, "a settings file") {
            Ok(text) => Some(text),
            Err(error) if !must_exist && error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                return Err(Problems::for_file(path.display(), message));
            }
        };
        let named = text.map(|text| (path.display().to_string(), text));
        Self::from_text(named, environment, flags.listen.as_deref())
    }

    /// The directory of texts that [`Written::check`] reads.
    pub(super) fn prompts_dir(&self) -> Option<PathBuf> {
        let (_, folder) = self.layers.find_strongest(&["recovery", "prompts_dir"])?;
        let folder = folder.as_str().filter(|folder| !folder.is_empty());
        folder.map(PathBuf::from)
    }

    /// # Errors
    /// All that is wrong with what is written.
    pub(super) fn check_settings(
        self,
        environment: &Environment,
    ) -> Result<LoadedConfig, Problems> {
        Ok(LoadedConfig {
            config: Config::read_checked(Section::new(&self.layers, environment))?,
            file: self.file,
            warnings: self.warnings,
        })
    }

    /// Without the file system: `text` is the file's name and contents.
    pub(super) fn from_text(
        text: Option<(String, String)>,
        environment: &Environment,
        listen: Option<&str>,
    ) -> Result<Self, Problems> {
        let mut this = Self {
            file: text.as_ref().map(|(name, _)| name.into()),
            has_content: matches!(&text, Some((_, text)) if !text.trim().is_empty()),
            layers: Layers::default(),
            warnings: Vec::new(),
        };
        if let Some((name, text)) = text {
            let values = parse_toml(&text).map_err(|message| Problems::for_file(&name, message))?;
            this.layers
                .push(SettingSource::File, &name, &[], values.into());
        }
        for (name, value) in &environment.0 {
            match read_variable_name(name) {
                VariableKind::Setting(path) => {
                    let Ok(value) = value.parse();
                    this.layers
                        .push(SettingSource::Environment, name, &path, value);
                }
                VariableKind::Doubtful(message) => {
                    this.warnings.push(Problem::for_key(&[name], message))
                }
                VariableKind::Foreign => {}
            }
        }
        if let Some(listen) = listen {
            let path = ["server", "listen"].map(str::to_owned);
            this.layers
                .push(SettingSource::Flag, "--listen", &path, listen.into());
        }
        Ok(this)
    }
}

pub(super) fn settings_path(flags: &Flags) -> &Path {
    flags.config.as_deref().unwrap_or(Path::new(DEFAULT_FILE))
}

/// A whole text. One of more bytes than `most` is not read; `what` says of what it is.
pub(super) fn read_text(path: &Path, most: u64, what: &str) -> io::Result<String> {
    let size = fs::metadata(path)?.len();
    if size > most {
        let message = format!("{size} bytes are too many for {what}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    fs::read_to_string(path)
}

/// The parser's message without its picture of the line, which may show a key.
fn parse_toml(text: &str) -> Result<Dict, String> {
    Toml::from_str::<Dict>(text).map_err(|error| {
        let message = error.message().trim().replace('\n', "; ");
        match error.span().and_then(|span| text.get(..span.start)) {
            Some(before) => {
                let line = before.matches('\n').count() + 1;
                format!("line {line}: {message}")
            }
            None => message,
        }
    })
}

/// What a variable of the environment is to the settings.
enum VariableKind {
    Setting(Vec<String>),
    Doubtful(String),
    Foreign,
}

/// A variable with `PLIMSOLL_` and a double underscore is a setting, known or not. One without
/// is one only when it is a top-level key: a service called `plimsoll` makes an orchestrator
/// set `PLIMSOLL_PORT` and its like, which must not keep us from starting.
fn read_variable_name(name: &str) -> VariableKind {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return VariableKind::Foreign;
    };
    let lower = rest.to_ascii_lowercase();
    if lower.contains("__") || lower == "default_provider" {
        return VariableKind::Setting(lower.split("__").map(str::to_owned).collect());
    }
    let key_of = |section: &&str| {
        let key = lower.strip_prefix(*section)?.strip_prefix('_')?;
        Some(format!("{section}__{key}").to_ascii_uppercase())
    };
    match SECTIONS.iter().find_map(key_of) {
        Some(meant) => VariableKind::Doubtful(format!(
            "is no setting and was ignored; levels are parted by two underscores: {PREFIX}{meant}"
        )),
        None => VariableKind::Foreign,
    }
}
