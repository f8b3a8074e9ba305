//! Reads settings: each key with its default, its bounds and its unit, said once.
//!
//! What is read here is also what an administrator sees, and a key that nobody reads is unknown. Problems
//! are collected while the settings are made. A value in error gets a stand-in, which nobody sees, since
//! one problem is enough to return no settings at all.

mod values;

use std::collections::BTreeMap;

use figment::error::Kind;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    explain::{WRITE_SECTION, explain_misfit, explain_unknown},
    layer::Layers,
    load::Environment,
    problem::{Problem, format_key_path},
    setting::{Setting, SettingSource, Visibility, is_under},
};
pub(super) use values::is_pattern;

/// More problems than this are of no help to anyone.
const MAX_PROBLEMS: usize = 50;

/// Declares a section: each of its keys with its type, and where it is read its default, its bounds and its
/// unit. A later one may use those before it.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $name:ident read from $section:ident {
            $($(#[$doc:meta])* pub $field:ident: $type:ty = $read:expr;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            pub(in crate::config) fn read($section: &mut $crate::config::section::Section<'_>) -> Self {
                $(let $field: $type = $read;)*
                Self { $($field),* }
            }
        }
    };
}
pub(super) use settings;

/// What was read so far of all sources, and the section that is being read.
pub(super) struct Section<'a> {
    layers: &'a Layers,
    pub(super) environment: &'a Environment,
    /// Where in the settings; empty outside of all sections.
    path: Vec<String>,
    /// The keys of this section that were read.
    known: Vec<String>,
    /// Clients by the digests of their keys.
    pub(super) client_keys: BTreeMap<[u8; 32], String>,
    /// Every key that was read.
    settings: Vec<Setting>,
    /// Wrong types and unknown keys, which are reported first.
    misfits: Vec<Problem>,
    /// Values that are not allowed.
    refused: Vec<Problem>,
}

impl<'a> Section<'a> {
    pub(super) const fn new(layers: &'a Layers, environment: &'a Environment) -> Self {
        Self {
            layers,
            environment,
            path: Vec::new(),
            known: Vec::new(),
            client_keys: BTreeMap::new(),
            settings: Vec::new(),
            misfits: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// What was made of the settings, every one of them by its key, and all problems.
    pub(super) fn finish_reading(mut self) -> (Vec<Setting>, Vec<Problem>) {
        self.note_unknown();
        self.settings.sort_by(|one, other| one.key.cmp(&other.key));
        self.misfits.sort_by(|one, other| one.key.cmp(&other.key));
        self.misfits.append(&mut self.refused);
        (self.settings, self.misfits)
    }

    /// The name of the section, where that is of the user's choice.
    pub(super) fn section_name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    fn key_path(&self, key: &str) -> Vec<String> {
        [&self.path[..], &[key.to_owned()]].concat()
    }

    /// The keys that any source has in a section at the top.
    pub(super) fn list_keys(&self, section: &str) -> Vec<String> {
        self.layers.list_keys(&[section])
    }

    /// Whether any source has that key.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.layers.find_strongest(&self.key_path(key)).is_some()
    }

    fn make_problem<S: AsRef<str>>(&self, path: &[S], message: String) -> Problem {
        let found = self.layers.find_strongest(path);
        Problem {
            origin: found.map(|(layer, _)| layer.origin.clone()),
            ..Problem::for_key(path, message)
        }
    }

    fn note_misfit(&mut self, problem: Problem) {
        if self.misfits.len() < MAX_PROBLEMS {
            self.misfits.push(problem);
        }
    }

    /// Notes a value of the wrong type, or with a wrong part inside.
    fn note_error(&mut self, path: &[String], error: &figment::Error) {
        let mut inside = [path, &error.path].concat();
        if let Kind::UnknownField(name, _) = &error.kind
            && inside.last() != Some(name)
        {
            inside.push(name.clone());
        }
        let last = inside.last().map_or("", String::as_str);
        self.note_misfit(Problem {
            key: format_key_path(&inside),
            ..self.make_problem(path, explain_misfit(&error.kind, last))
        });
    }

    fn note_unknown(&mut self) {
        let known = std::mem::take(&mut self.known);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let mut unknown = self.layers.list_keys(&self.path);
        unknown.retain(|key| !known.contains(&key.as_str()));
        for key in unknown.iter().take(MAX_PROBLEMS) {
            let message = explain_unknown(key, &known);
            self.note_misfit(self.make_problem(&self.key_path(key), message));
        }
    }

    /// Notes that the value of a key is not allowed; shown only where it is given.
    pub(super) fn refuse_value(
        &mut self,
        key: &str,
        value: Option<String>,
        message: impl Into<String>,
    ) {
        self.refuse_at(&self.key_path(key), value, message);
    }

    /// The same with a text as the value.
    pub(super) fn refuse_text(&mut self, key: &str, text: &str, message: impl Into<String>) {
        self.refuse_value(key, Some(format!("{text:?}")), message);
    }

    /// Notes a value that is not allowed, unless that key or its section has been found wrong before.
    pub(super) fn refuse_at<S: AsRef<str>>(
        &mut self,
        path: &[S],
        value: Option<String>,
        message: impl Into<String>,
    ) {
        let problem = Problem {
            value,
            ..self.make_problem(path, message.into())
        };
        let mut misfits = self.misfits.iter();
        let is_misfit = misfits.any(|known| is_under(&problem.key, &known.key));
        if !is_misfit && self.refused.iter().all(|known| known.key != problem.key) {
            self.refused.push(problem);
        }
    }

    /// The same, also where that key has been found wrong before.
    pub(super) fn refuse_again(&mut self, key: &str, value: String, message: String) {
        let problem = self.make_problem(&self.key_path(key), message);
        let value = Some(value);
        self.refused.push(Problem { value, ..problem });
    }

    /// Reads a section in this one.
    pub(super) fn read_section<R>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> R) -> R {
        self.known.push(key.to_owned());
        self.path.push(key.to_owned());
        let around = std::mem::take(&mut self.known);
        let found = self.layers.find_strongest(&self.path);
        if found.is_some_and(|(_, value)| value.as_dict().is_none()) {
            self.note_misfit(self.make_problem(&self.path, WRITE_SECTION.to_owned()));
        }
        let made = read(self);
        self.note_unknown();
        self.known = around;
        self.path.pop();
        made
    }

    /// Reads values with names of the user's choice, one by one.
    pub(super) fn read_entries<T>(
        &mut self,
        key: &str,
        mut read: impl FnMut(&mut Self, &str) -> Option<T>,
    ) -> BTreeMap<String, T> {
        self.read_section(key, |section| {
            let names = section.layers.list_keys(&section.path).into_iter();
            let entries = names.filter_map(|name| Some((read(section, &name)?, name)));
            entries.map(|(value, name)| (name, value)).collect()
        })
    }

    /// Reads sections with names of the user's choice.
    pub(super) fn read_sections<T>(
        &mut self,
        key: &str,
        read: impl Fn(&mut Self) -> T,
    ) -> BTreeMap<String, T> {
        self.read_entries(key, |section, name| Some(section.read_section(name, &read)))
    }

    /// The value of a key, or its default where it has none or one of the wrong type.
    fn read_value<T: DeserializeOwned + Serialize>(
        &mut self,
        key: &str,
        default: Option<T>,
        show: Visibility,
    ) -> Option<T> {
        self.known.push(key.to_owned());
        let path = self.key_path(key);
        let found = self.layers.find_strongest(&path);
        let (from, origin) = match found {
            Some((layer, _)) => (layer.source, Some(layer.origin.clone())),
            None => (SettingSource::Default, None),
        };
        let value = match found {
            Some((_, value)) => match value.deserialize() {
                Ok(value) => Some(value),
                Err(error) => {
                    self.note_error(&path, &error);
                    default
                }
            },
            None => default,
        };
        // Numbers and texts of a setting always become JSON.
        let shown = show.redact_value(serde_json::to_value(&value).unwrap_or_default());
        self.settings.push(Setting {
            key: format_key_path(&path),
            hidden: shown.is_none(),
            value: shown.unwrap_or_default(),
            from,
            origin,
        });
        value
    }
}
