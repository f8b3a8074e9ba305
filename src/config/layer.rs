//! The sources of settings, one over the other.
//!
//! Every source is one layer with a name of its own, so that a problem can say in which file or
//! variable it lies. Type errors and unknown keys do not stop the reading: the culprit is noted
//! and taken out, and the rest is read, so that all problems are reported at once.

use figment::{
    Error, Figment, Metadata, Profile, Provider,
    error::Kind,
    value::{Dict, Map, Value},
};

use super::{
    file::File,
    problem::{Problem, dotted, nearest},
    settings::Source,
};

/// More problems than this are of no help to anyone.
const MAX_PROBLEMS: usize = 50;

/// One source of settings.
struct Layer {
    source: Source,
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
    /// Adds the file, stronger than what came before.
    pub(super) fn add(&mut self, origin: String, values: Dict) {
        self.0.push(Layer {
            source: Source::File,
            origin,
            values,
        });
    }

    /// Adds a variable or a flag, which has one value, stronger than those before.
    pub(super) fn push(&mut self, source: Source, origin: &str, path: &[String], value: Value) {
        let nested = path.iter().rev().fold(value, |value, key| {
            Value::from(Dict::from([(key.clone(), value)]))
        });
        if let Some(values) = nested.into_dict() {
            self.0.push(Layer {
                source,
                origin: origin.to_owned(),
                values,
            });
        }
    }

    /// The file, variable or flag that has the last word on a key.
    pub(super) fn origin<S: AsRef<str>>(&self, path: &[S]) -> Option<String> {
        self.source(path).map(|(_, origin)| origin)
    }

    /// The same, with what it is.
    pub(super) fn source<S: AsRef<str>>(&self, path: &[S]) -> Option<(Source, String)> {
        let says = |layer: &&Layer| has(&layer.values, path);
        let layer = self.0.iter().rev().find(says)?;
        Some((layer.source, layer.origin.clone()))
    }

    /// Reads the merged layers; what does not fit the shape is noted and taken out.
    pub(super) fn extract(&mut self) -> (File, Vec<Problem>) {
        let mut problems = Vec::new();
        loop {
            let merged = self.0.iter().fold(Figment::new(), |merged, layer| {
                merged.merge(Layer {
                    source: layer.source,
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
