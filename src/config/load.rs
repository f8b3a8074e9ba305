//! Where settings come from: built-in defaults, then the file, the environment, the flags.
//!
//! Every source is one layer with a name of its own, so that a problem can say in which file or
//! variable it lies. Type errors and unknown keys do not stop the reading: the culprit is noted
//! and taken out, and the rest is read, so that all problems are reported at once.
//! The environment is a value that is handed in; nothing here reads the process's own.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use figment::{
    Error, Figment, Metadata, Profile, Provider,
    error::Kind,
    providers::{Format, Toml},
    value::{Dict, Map, Value},
};

use super::{
    Config, check,
    file::File,
    problem::{Problem, Problems, dotted, nearest},
};

/// A settings file larger than this is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// More problems than this are of no help to anyone.
const MAX_PROBLEMS: usize = 50;

const PREFIX: &str = "PLIMSOLL_";

/// Read when no file is named and one of this name lies in the working directory.
const DEFAULT_FILE: &str = "config.toml";

/// The variables a process was started with.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Variables that are not Unicode are left out: no setting can be spelt with one.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let owned = |(name, value): (K, V)| (name.into(), value.into());
        Self(variables.into_iter().map(owned).collect())
    }
}

/// What the command line says about settings.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`: this file, and an error if it is not there.
    pub config: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<String>,
}

/// Settings that passed every check.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Variables that look like settings and are none. More is found by [`super::warnings`].
    pub warnings: Vec<Problem>,
}

/// Reads, merges and checks all sources.
///
/// # Errors
/// All problems at once: of the file, of types and names, of values.
pub fn load(flags: &Flags, environment: &Environment) -> Result<Loaded, Problems> {
    let (path, must_exist) = match &flags.config {
        Some(path) => (path.as_path(), true),
        None => (Path::new(DEFAULT_FILE), false),
    };
    let text = match read(path) {
        Ok(text) => Some(text),
        Err(error) if !must_exist && error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(Problems(vec![Problem {
                origin: Some(path.display().to_string()),
                key: String::new(),
                value: None,
                message: format!("cannot be read: {error}"),
            }]));
        }
    };
    let file = text.is_some().then(|| path.to_path_buf());
    let named = text.map(|text| (path.display().to_string(), text));
    let (config, warnings) = merge(named, environment, flags.listen.as_deref())?;
    Ok(Loaded {
        config,
        file,
        warnings,
    })
}

fn read(path: &Path) -> io::Result<String> {
    let size = fs::metadata(path)?.len();
    if size > MAX_FILE_BYTES {
        let message = format!("{size} bytes are too many for a settings file");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    fs::read_to_string(path)
}

/// [`load`] without the file system: `text` is the file's name and contents.
pub(super) fn merge(
    text: Option<(String, String)>,
    environment: &Environment,
    listen: Option<&str>,
) -> Result<(Config, Vec<Problem>), Problems> {
    let mut layers = Layers::default();
    if let Some((name, text)) = text {
        let values = parse(&text).map_err(|message| {
            Problems(vec![Problem {
                origin: Some(name.clone()),
                key: String::new(),
                value: None,
                message,
            }])
        })?;
        layers.0.push(Layer {
            origin: name,
            values,
        });
    }
    let mut warnings = Vec::new();
    for (name, value) in &environment.0 {
        match setting(name) {
            Named::Setting(path) => layers.push(name, &path, value.parse().unwrap_or_else(never)),
            Named::Doubtful(message) => warnings.push(Problem {
                origin: None,
                key: name.clone(),
                value: None,
                message,
            }),
            Named::Foreign => {}
        }
    }
    if let Some(listen) = listen {
        let path = ["server".to_owned(), "listen".to_owned()];
        layers.push("--listen", &path, Value::from(listen));
    }
    let (file, problems) = layers.extract();
    let config = check::check(&file, &layers, environment, problems)?;
    Ok((config, warnings))
}

fn never<T>(error: std::convert::Infallible) -> T {
    match error {}
}

/// The parser's message without its picture of the line, which may show a key.
fn parse(text: &str) -> Result<Dict, String> {
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

/// What a variable of the environment is to us.
enum Named {
    Setting(Vec<String>),
    Doubtful(String),
    Foreign,
}

/// A variable with `PLIMSOLL_` and a double underscore is a setting, known or not. One without
/// is ours only when it is a top-level key: a service called `plimsoll` makes an orchestrator
/// set `PLIMSOLL_PORT` and its like, which must not keep us from starting.
fn setting(name: &str) -> Named {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return Named::Foreign;
    };
    let lower = rest.to_ascii_lowercase();
    if lower.contains("__") || lower == "default_provider" {
        return Named::Setting(lower.split("__").map(str::to_owned).collect());
    }
    const SECTIONS: [&str; 7] = [
        "server",
        "admin",
        "clients",
        "providers",
        "models",
        "guard",
        "store",
    ];
    let key_of = |section: &&str| {
        let key = lower.strip_prefix(*section)?.strip_prefix('_')?;
        Some(format!("{section}__{key}").to_ascii_uppercase())
    };
    match SECTIONS.iter().find_map(key_of) {
        Some(meant) => Named::Doubtful(format!(
            "is no setting and was ignored; levels are parted by two underscores: {PREFIX}{meant}"
        )),
        None => Named::Foreign,
    }
}

/// One source of settings.
struct Layer {
    origin: String,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// All sources, the strongest last.
#[derive(Default)]
pub(super) struct Layers(Vec<Layer>);

impl Layers {
    fn push(&mut self, origin: &str, path: &[String], value: Value) {
        let nested = path.iter().rev().fold(value, |value, key| {
            Value::from(Dict::from([(key.clone(), value)]))
        });
        if let Some(values) = nested.into_dict() {
            self.0.push(Layer {
                origin: origin.to_owned(),
                values,
            });
        }
    }

    /// The file, variable or flag that has the last word on a key.
    pub(super) fn origin<S: AsRef<str>>(&self, path: &[S]) -> Option<String> {
        let says = |layer: &&Layer| has(&layer.values, path);
        self.0.iter().rev().find(says).map(|l| l.origin.clone())
    }

    /// Reads the merged layers; what does not fit the shape is noted and taken out.
    fn extract(&mut self) -> (File, Vec<Problem>) {
        let mut problems = Vec::new();
        loop {
            let merged = self.0.iter().fold(Figment::new(), |merged, layer| {
                merged.merge(Layer {
                    origin: layer.origin.clone(),
                    values: layer.values.clone(),
                })
            });
            let error = match merged.extract::<File>() {
                Ok(file) => return (file, problems),
                Err(error) => error,
            };
            let mut path = error.path.clone();
            if let Kind::UnknownField(name, _) = &error.kind
                && path.last() != Some(name)
            {
                path.push(name.clone());
            }
            problems.push(Problem {
                origin: self.origin(&path),
                key: dotted(&path),
                value: None,
                message: explain(&error.kind, &path),
            });
            // Without a culprit the same error would come again for ever.
            if problems.len() >= MAX_PROBLEMS || !self.remove(&path) {
                return (File::default(), problems);
            }
        }
    }

    /// Takes a key out of the strongest layer that has it.
    fn remove(&mut self, path: &[String]) -> bool {
        self.0
            .iter_mut()
            .rev()
            .any(|layer| remove(&mut layer.values, path))
    }
}

fn has<S: AsRef<str>>(values: &Dict, path: &[S]) -> bool {
    match path {
        [] => false,
        [key] => values.contains_key(key.as_ref()),
        [key, rest @ ..] => match values.get(key.as_ref()) {
            Some(Value::Dict(_, inner)) => has(inner, rest),
            // A place inside a list: the list is what was written.
            Some(Value::Array(..)) => true,
            _ => false,
        },
    }
}

fn remove(values: &mut Dict, path: &[String]) -> bool {
    match path {
        [] => false,
        [key] => values.remove(key).is_some(),
        [key, rest @ ..] => match values.get_mut(key) {
            Some(Value::Dict(_, inner)) => remove(inner, rest),
            Some(Value::Array(..)) => values.remove(key).is_some(),
            _ => false,
        },
    }
}

/// Says what does not fit. The value is shown only where it can be no secret.
fn explain(kind: &Kind, path: &[String]) -> String {
    let last = path.last().map_or("", String::as_str);
    let secret = ["key", "url", "token", "auth"]
        .iter()
        .any(|part| last.contains(part) && !last.ends_with("_tokens"));
    // Text where a section belongs may be the key that the section was to hold.
    let secret =
        secret || matches!(kind, Kind::InvalidType(_, expected) if wanted(expected) == SECTION);
    match kind {
        Kind::UnknownField(name, known) => match nearest(name, known) {
            Some(near) => format!("unknown key; did you mean {near}?"),
            None => format!("unknown key; known here are {}", known.join(", ")),
        },
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) if secret => {
            format!("has the wrong type; write {}", wanted(expected))
        }
        Kind::InvalidType(found, expected) => {
            format!("found {found}; write {}", wanted(expected))
        }
        Kind::InvalidValue(found, expected) => {
            let wanted = wanted(expected);
            format!("found {found}, which is out of range; write {wanted}")
        }
        Kind::UnknownVariant(_, known) => format!(
            "not one of the choices; write one of {}",
            known
                .iter()
                .map(|choice| format!("\"{choice}\""))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        _ if secret => "cannot be read".to_owned(),
        other => other.to_string(),
    }
}

const SECTION: &str = "a section of keys";

/// What serde expected, in the words of someone who writes a settings file.
fn wanted(expected: &str) -> &str {
    match expected {
        "a string" => "text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list in [ ]",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number from 0",
        "f64" => "a number",
        other if other.starts_with("struct ") || other == "a map" => SECTION,
        other => other,
    }
}
