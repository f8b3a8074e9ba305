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
        places::{SettingsFile, find_settings_file, find_stranger_data, find_stranger_file},
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

// Options that every command has. This is no doc comment, since clap would show that as the first line of
// `plimsoll --help`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    // A named file must exist.
    /// Settings file [default: ~/.config/plimsoll/config.toml, else /etc/plimsoll/config.toml]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Address and port to listen on [default: 127.0.0.1:1876; with run, a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", global = true)]
    pub listen: Option<String>,
}

/// Settings that passed every check.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Variables of the environment that look like misspelt settings, and what lies in the working directory and is not
    /// used.
    pub warnings: Vec<Problem>,
    /// From [`load_config`]: settings that name a variable that is not set, without which the proxy does not start.
    pub unset_variables: Vec<Problem>,
}

/// All sources before the checks. Each is read once, since a pipe is empty when it is read again.
pub(crate) struct WrittenSettings {
    pub(crate) file: Option<PathBuf>,
    /// Whether a flag or a variable names the file.
    is_named: bool,
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
    let file = find_settings_file(flags, environment);
    let written = WrittenSettings::read_sources(file.as_ref(), flags, environment)?;
    let mut loaded = written.check_values(environment)?;
    for problem in &mut loaded.unset_variables {
        problem.message += ", before the proxy starts";
    }
    Ok(loaded)
}

impl WrittenSettings {
    /// Fails where the file cannot be read, or is not TOML.
    pub(crate) fn read_sources(
        file: Option<&SettingsFile>,
        flags: &Flags,
        environment: &Environment,
    ) -> Result<Self, Problems> {
        let read = |SettingsFile { path, is_named }: &SettingsFile| match read_text(
            path,
            MAX_FILE_BYTES,
            "a settings file",
        ) {
            Ok(text) => Ok(Some((path.display().to_string(), text))),
            Err(error) if !is_named && error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::NotFound => {
                        "write it, or name one that is there (--config, PLIMSOLL_CONFIG)"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "let the proxy's user read it (chmod, chown), or name another with --config"
                    }
                    _ => "make it a readable file of UTF-8 text",
                };
                let message = format!("cannot be read: {error}; {remedy}");
                Err(Problems::for_file(path.display(), message))
            }
        };
        let text = file.map(read).transpose()?.flatten();
        Ok(Self {
            is_named: file.is_some_and(|file| file.is_named),
            ..Self::from_text(text, environment, flags.listen.as_deref())?
        })
    }

    /// What [`Self::check`] reads beside the settings: the directory of prompts, and files with keys of providers.
    pub(crate) fn list_read_paths(&self) -> Vec<PathBuf> {
        let providers = self.layers.list_keys(&["providers"]);
        let keys = providers
            .iter()
            .map(|name| vec!["providers", name, "api_key_file"]);
        let settings = keys.chain([vec!["recovery", "prompts_dir"]]);
        let paths = settings.filter_map(|path| self.layers.find_strongest(&path)?.1.as_str());
        let paths = paths.filter(|path| !path.is_empty());
        paths.map(PathBuf::from).collect()
    }

    /// Fails with all problems at once. A variable that a setting names and that is not set is one.
    pub(crate) fn check(self, environment: &Environment) -> Result<LoadedConfig, Problems> {
        let loaded = self.check_values(environment)?;
        if loaded.unset_variables.is_empty() {
            Ok(loaded)
        } else {
            Err(Problems(loaded.unset_variables))
        }
    }

    /// [`Self::check`] that only lists the settings whose variables are not set.
    fn check_values(self, environment: &Environment) -> Result<LoadedConfig, Problems> {
        let mut section = Section::new(&self.layers, environment);
        let config = Config::read(&mut section);
        let sections = section.list_known_keys();
        let (config, unset_variables) = config.check_settings(section)?;
        let mut warnings = find_misspelt_variables(environment, &sections, &config.settings);
        warnings.extend(self.note_unused_places(environment, &sections, &config));
        warnings.extend(find_unusable_proxies(environment));
        Ok(LoadedConfig {
            warnings,
            config,
            file: self.file,
            unset_variables,
        })
    }

    /// What of the working directory is not used and may be meant, and where nothing can be kept.
    fn note_unused_places(
        &self,
        environment: &Environment,
        sections: &[String],
        config: &Config,
    ) -> Vec<Problem> {
        let mut notes = Vec::new();
        let mut note = |place: Option<PathBuf>, message: &str| {
            notes.extend(place.map(|place| Problem {
                origin: Some(place.display().to_string()),
                ..Problem::for_key::<&str>(&[], message)
            }));
        };
        if !self.is_named {
            let file = find_stranger_file(environment, self.file.as_deref(), sections);
            note(file, "not read; use --config config.toml");
        }
        let (data_dir, is_set) = (&config.server.data_dir, config.is_set("server.data_dir"));
        if !is_set {
            let message = "sessions and a secret of an earlier start are here and are not used; set server.data_dir to this folder to use them";
            note(find_stranger_data(environment, data_dir.path()), message);
        }
        if data_dir.path().is_none()
            && environment.working_folder().is_some()
            && config.keeps_files()
        {
            notes.push(Problem::for_key(
                &["server", "data_dir"],
                data_dir.explain_memory(),
            ));
        }
        notes
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
            is_named: false,
            has_content,
            layers,
        })
    }
}

/// The names at the top of a settings file; `None` where it is none.
pub(super) fn list_names(path: &Path) -> Option<Vec<String>> {
    let text = read_text(path, MAX_FILE_BYTES, "a settings file").ok()?;
    Some(parse_toml(&text).ok()?.into_keys().collect())
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
        let message = error.message().trim();
        let (wrong, expected) = message.split_once("\nexpected ").unzip();
        let wrong = wrong.unwrap_or(message).replace('\n', ", ");
        let remedy = match expected {
            Some(expected) => format!(
                "write what is expected there: {}",
                expected.replace('\n', ", ")
            ),
            None => "correct it there".to_owned(),
        };
        match error.span().and_then(|span| text.get(..span.start)) {
            Some(before) => {
                let line = before.matches('\n').count() + 1;
                format!("line {line} is no TOML: {wrong}; {remedy}")
            }
            None => format!("is no TOML: {wrong}; {remedy}"),
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
