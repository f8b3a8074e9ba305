//! Loads settings: built-in defaults, overridden by the file, the environment and the flags, in that order.
//!
//! Each source becomes one of the [`Layers`].

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use figment::{
    providers::{Format, Toml},
    value::Dict,
};

use crate::config::{
    Config,
    loading::{
        environment::Environment,
        layer::Layers,
        problem::{Problem, Problems},
        section::Section,
        setting::{Setting, SettingSource},
    },
    outgoing::find_unusable_proxies,
};

/// A settings file larger than this is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The prefix of the variables that are settings.
const PREFIX: &str = "PLIMSOLL_";
/// The settings file without `--config`, if the working directory has one.
const DEFAULT_FILE: &str = "config.toml";

// Options that every command has. This is no doc comment, since clap would show that as the first line of
// `plimsoll --help`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    // A named file must exist.
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
    /// Variables of the environment that look like misspelt settings.
    pub warnings: Vec<Problem>,
    /// From [`load_config`]: settings that name a variable that is not set, without which the proxy does not start.
    pub unset_variables: Vec<Problem>,
}

/// All sources before the checks. Each is read once, since a pipe is empty when it is read again.
pub(crate) struct WrittenSettings {
    pub(crate) file: Option<PathBuf>,
    /// Whether there is a file with more than white space.
    pub(crate) has_content: bool,
    pub(crate) layers: Layers,
}

/// Reads, merges and checks all sources, for commands that may do without keys: see
/// [`LoadedConfig::unset_variables`].
///
/// # Errors
/// All problems at once, of the file, of keys, types and values.
pub fn load_config(flags: &Flags, environment: &Environment) -> Result<LoadedConfig, Problems> {
    let written = WrittenSettings::read_sources(flags, environment)?;
    let mut loaded = written.check_values(environment)?;
    for problem in &mut loaded.unset_variables {
        problem.message += ", before the proxy starts";
    }
    Ok(loaded)
}

impl WrittenSettings {
    /// Fails where the file cannot be read, or is not TOML.
    pub(crate) fn read_sources(flags: &Flags, environment: &Environment) -> Result<Self, Problems> {
        let path = settings_path(flags);
        let must_exist = flags.config.is_some();
        let file = match read_text(path, MAX_FILE_BYTES, "a settings file") {
            Ok(text) => Some((path.display().to_string(), text)),
            Err(error) if !must_exist && error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                return Err(Problems::for_file(path.display(), message));
            }
        };
        Self::from_text(file, environment, flags.listen.as_deref())
    }

    /// The directory whose prompts [`Self::check`] reads.
    pub(crate) fn prompts_dir(&self) -> Option<PathBuf> {
        let (_, folder) = self.layers.find_strongest(&["recovery", "prompts_dir"])?;
        let folder = folder.as_str().filter(|folder| !folder.is_empty());
        folder.map(PathBuf::from)
    }

    /// Fails with all problems at once. A variable that a setting names and that is not set is one.
    pub(crate) fn check(self, environment: &Environment) -> Result<LoadedConfig, Problems> {
        let loaded = self.check_values(environment)?;
        match loaded.unset_variables.is_empty() {
            true => Ok(loaded),
            false => Err(Problems(loaded.unset_variables)),
        }
    }

    /// [`Self::check`] that only lists the settings whose variables are not set.
    fn check_values(self, environment: &Environment) -> Result<LoadedConfig, Problems> {
        let mut section = Section::new(&self.layers, environment);
        let config = Config::read(&mut section);
        let sections = section.list_known_keys();
        let (config, unset_variables) = config.check_settings(section)?;
        let mut warnings = find_misspelt_variables(environment, &sections, &config.settings);
        warnings.extend(find_unusable_proxies(environment));
        Ok(LoadedConfig {
            warnings,
            config,
            file: self.file,
            unset_variables,
        })
    }

    /// [`Self::read_sources`] without the file system. `file` is the name and the text of the settings file.
    pub(crate) fn from_text(
        file: Option<(String, String)>,
        environment: &Environment,
        listen: Option<&str>,
    ) -> Result<Self, Problems> {
        let has_content = matches!(&file, Some((_, text)) if !text.trim().is_empty());
        let mut layers = Layers::default();
        if let Some((name, text)) = &file {
            let values = parse_toml(text).map_err(|message| Problems::for_file(name, message))?;
            layers.push(SettingSource::File, name, &[], values.into());
        }
        for (name, value) in environment.variables() {
            if let Some(path) = parse_variable_name(name) {
                let Ok(value) = value.parse();
                layers.push(SettingSource::Environment, name, &path, value);
            }
        }
        if let Some(listen) = listen {
            let path = ["server", "listen"].map(str::to_owned);
            layers.push(SettingSource::Flag, "--listen", &path, listen.into());
        }
        let file = file.map(|(name, _)| name.into());
        Ok(Self {
            file,
            has_content,
            layers,
        })
    }
}

pub(crate) fn settings_path(flags: &Flags) -> &Path {
    flags.config.as_deref().unwrap_or(Path::new(DEFAULT_FILE))
}

/// Reads a file of at most `max_bytes`. `kind` names what it should be in the error about a longer one.
pub(crate) fn read_text(path: &Path, max_bytes: u64, kind: &str) -> io::Result<String> {
    let size = fs::metadata(path)?.len();
    if size > max_bytes {
        let message = format!("{size} bytes are too many for {kind}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    fs::read_to_string(path)
}

/// SECURITY: the error is the parser's message without its quote of the line, which may show a key.
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

/// The path of the setting that a variable stands for: one with `PLIMSOLL_` and a double underscore, known or not.
/// Without a double underscore only the top-level key is one: for a service called `plimsoll`, an orchestrator sets
/// `PLIMSOLL_PORT` and others, and the proxy must start with them.
fn parse_variable_name(name: &str) -> Option<Vec<String>> {
    let lower = name.strip_prefix(PREFIX)?.to_ascii_lowercase();
    let is_setting = lower.contains("__") || lower == "default_provider";
    is_setting.then(|| lower.split("__").map(str::to_owned).collect())
}

/// Warns of variables with a single underscore between one of the `sections` and a key, and of those with the key of
/// a section alone, as `PLIMSOLL_LISTEN`.
fn find_misspelt_variables(
    environment: &Environment,
    sections: &[String],
    settings: &[Setting],
) -> Vec<Problem> {
    let names = environment.variables().map(|(name, _)| name);
    let others = names.filter(|name| parse_variable_name(name).is_none());
    let warn = |name: &String| {
        let lower = name.strip_prefix(PREFIX)?.to_ascii_lowercase();
        let by_section = sections.iter().find_map(|section| {
            let key = lower.strip_prefix(section)?.strip_prefix('_')?;
            Some(format!("{section}__{key}"))
        });
        let by_key = || {
            let mut keys = settings
                .iter()
                .filter_map(|setting| setting.key.split_once('.'));
            let (section, key) = keys.find(|(_, key)| *key == lower)?;
            Some(format!("{section}__{key}"))
        };
        let corrected = by_section.or_else(by_key)?.to_ascii_uppercase();
        let message = format!(
            "is ignored; write two underscores between section and key: {PREFIX}{corrected}"
        );
        Some(Problem::for_key(&[name], message))
    };
    others.filter_map(warn).collect()
}
