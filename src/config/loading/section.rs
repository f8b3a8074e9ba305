//! Reads the sections of the settings. Each key is declared once, with its default, its bounds and its unit.
//!
//! Every key that is read here is listed for the administrator; a key that is never read is unknown. Problems
//! are collected during reading. An invalid value is replaced by a default that is never used, since a single
//! problem refuses all settings.

mod values;

use std::collections::BTreeMap;

use figment::error::Kind;

pub(crate) use crate::config::loading::setting::Visibility;
use crate::config::loading::{
    environment::Environment,
    explain::{WRITE_SECTION, explain_type_error, explain_unknown},
    layer::Layers,
    problem::{Problem, format_key_path},
    schema::{ANY_NAME, SettingsSchema},
    setting::{Setting, SettingSource, is_under},
};
use values::SettingValue;
pub(crate) use values::is_pattern;

/// Further type errors and unknown keys are not reported.
const MAX_PROBLEMS: usize = 50;

/// What is said of a setting without a value where nothing else applies.
const NOT_SET: &str = "not set";

/// Declares a section: each key with its type and the expression that reads it. An expression may use the
/// fields above it.
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
            pub(crate) fn read($section: &mut $crate::config::loading::section::Section<'_>) -> Self {
                $(let $field: $type = $read;)*
                Self { $($field),* }
            }
        }
    };
}
pub(crate) use settings;

/// The section that is being read, and what was read of all sections so far.
pub(crate) struct Section<'a> {
    layers: &'a Layers,
    pub(crate) environment: &'a Environment,
    /// The names of the sections from the top; empty outside of all sections.
    path: Vec<String>,
    /// The keys of this section that were read.
    known: Vec<String>,
    /// What applies where the next setting that is read has no value.
    unset: &'static str,
    /// The bounds of the next number that is read follow from other settings.
    bounds_follow: bool,
    /// What is read for the schema of the settings; `None` where they are read to be used.
    pub(crate) schema: Option<SettingsSchema>,
    /// Names of clients by the digests of their keys.
    pub(crate) client_keys: BTreeMap<[u8; 32], String>,
    /// Every key that was read.
    settings: Vec<Setting>,
    /// Wrong types and unknown keys; reported first.
    type_errors: Vec<Problem>,
    /// Values that are not allowed.
    value_errors: Vec<Problem>,
    /// Settings that name a variable of the environment that is not set.
    missing_variables: Vec<Problem>,
}

impl<'a> Section<'a> {
    pub(crate) const fn new(layers: &'a Layers, environment: &'a Environment) -> Self {
        Self {
            layers,
            environment,
            path: Vec::new(),
            known: Vec::new(),
            unset: NOT_SET,
            bounds_follow: false,
            schema: None,
            client_keys: BTreeMap::new(),
            settings: Vec::new(),
            type_errors: Vec::new(),
            value_errors: Vec::new(),
            missing_variables: Vec::new(),
        }
    }

    /// All settings, sorted by key; all problems; and the settings whose variables are not set.
    pub(crate) fn finish_reading(mut self) -> (Vec<Setting>, Vec<Problem>, Vec<Problem>) {
        self.note_unknown_keys();
        self.settings.sort_by(|a, b| a.key.cmp(&b.key));
        self.type_errors.sort_by(|a, b| a.key.cmp(&b.key));
        self.type_errors.append(&mut self.value_errors);
        (self.settings, self.type_errors, self.missing_variables)
    }

    /// The last part of the section's name, such as the name of a client; empty outside of all sections.
    pub(crate) fn section_name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    fn key_path(&self, key: &str) -> Vec<String> {
        [&self.path[..], &[key.to_owned()]].concat()
    }

    /// The keys of this section that were read so far.
    pub(crate) fn list_known_keys(&self) -> Vec<String> {
        self.known.clone()
    }

    /// Says what applies where the setting that is read next has no value.
    pub(crate) const fn explain_unset(&mut self, words: &'static str) -> &mut Self {
        self.unset = words;
        self
    }

    /// Says that the bounds of the number that is read next follow from other settings, so that the schema has none.
    pub(crate) const fn bound_by_others(&mut self) -> &mut Self {
        self.bounds_follow = true;
        self
    }

    /// Notes for the schema what a key can be, where its type does not tell.
    pub(crate) fn note_choices(&mut self, key: &str, choices: &[&str]) {
        let path = self.key_path(key);
        if let Some(schema) = &mut self.schema {
            schema.note_choices(&path, choices);
        }
    }

    /// The keys that any source sets in a top-level section.
    pub(crate) fn list_keys(&self, section: &str) -> Vec<String> {
        self.layers.list_keys(&[section])
    }

    /// Whether any source sets the key.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.layers.find_strongest(&self.key_path(key)).is_some()
    }

    fn make_problem<S: AsRef<str>>(&self, path: &[S], message: String) -> Problem {
        let found = self.layers.find_strongest(path);
        let mut problem = Problem::for_key(path, message);
        problem.origin = found.map(|(layer, _)| layer.origin.clone());
        problem
    }

    fn push_type_error(&mut self, problem: Problem) {
        if self.type_errors.len() < MAX_PROBLEMS {
            self.type_errors.push(problem);
        }
    }

    /// Records that a value, or a part inside it, has the wrong type.
    fn note_type_error(&mut self, path: &[String], error: &figment::Error) {
        let mut inside = [path, &error.path].concat();
        if let Kind::UnknownField(name, _) = &error.kind
            && inside.last() != Some(name)
        {
            inside.push(name.clone());
        }
        let last = inside.last().map_or("", String::as_str);
        let mut problem = self.make_problem(path, explain_type_error(&error.kind, last));
        problem.key = format_key_path(&inside);
        self.push_type_error(problem);
    }

    fn note_unknown_keys(&mut self) {
        let known = std::mem::take(&mut self.known);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let mut unknown = self.layers.list_keys(&self.path);
        unknown.retain(|key| !known.contains(&key.as_str()));
        for key in unknown.iter().take(MAX_PROBLEMS) {
            let message = explain_unknown(key, &known);
            self.push_type_error(self.make_problem(&self.key_path(key), message));
        }
    }

    /// Records that the value of a key is not allowed. With `value` at `None`, the message hides it.
    pub(crate) fn refuse_value(
        &mut self,
        key: &str,
        value: Option<String>,
        message: impl Into<String>,
    ) {
        self.refuse_at(&self.key_path(key), value, message);
    }

    /// [`Self::refuse_value`] with a text, which the message shows in quotes.
    pub(crate) fn refuse_text(&mut self, key: &str, text: &str, message: impl Into<String>) {
        self.refuse_value(key, Some(format!("{text:?}")), message);
    }

    /// Records a value that is not allowed, unless the key or its section already has a problem.
    pub(crate) fn refuse_at<S: AsRef<str>>(
        &mut self,
        path: &[S],
        value: Option<String>,
        message: impl Into<String>,
    ) {
        let mut problem = self.make_problem(path, message.into());
        problem.value = value;
        let covers = |known: &Problem| is_under(&problem.key, &known.key);
        let is_same = |known: &Problem| known.key == problem.key;
        if !self.type_errors.iter().any(covers) && !self.value_errors.iter().any(is_same) {
            self.value_errors.push(problem);
        }
    }

    /// Records that a setting names a variable that is not set.
    fn note_missing_variable(&mut self, key: &str, variable: &str) {
        let message = "names an environment variable that is not set; set it, or name another";
        let mut problem = self.make_problem(&self.key_path(key), message.to_owned());
        problem.value = Some(format!("{variable:?}"));
        self.missing_variables.push(problem);
    }

    /// Records a value that is not allowed, also where the key already has a problem.
    pub(crate) fn refuse_again(&mut self, key: &str, value: String, message: String) {
        let mut problem = self.make_problem(&self.key_path(key), message);
        problem.value = Some(value);
        self.value_errors.push(problem);
    }

    /// Reads a section inside this one.
    pub(crate) fn read_section<R>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> R) -> R {
        self.known.push(key.to_owned());
        self.path.push(key.to_owned());
        let outer_known = std::mem::take(&mut self.known);
        let found = self.layers.find_strongest(&self.path);
        if found.is_some_and(|(_, value)| value.as_dict().is_none()) {
            self.push_type_error(self.make_problem(&self.path, WRITE_SECTION.to_owned()));
        }
        let section = read(self);
        self.note_unknown_keys();
        self.known = outer_known;
        self.path.pop();
        section
    }

    /// Reads a section whose keys are chosen by the user. Entries for which `read` has no value are left out.
    pub(crate) fn read_entries<T>(
        &mut self,
        key: &str,
        mut read: impl FnMut(&mut Self, &str) -> Option<T>,
    ) -> BTreeMap<String, T> {
        self.read_section(key, |section| {
            let names = match &section.schema {
                Some(_) => vec![ANY_NAME.to_owned()],
                None => section.layers.list_keys(&section.path),
            };
            let entries = names
                .into_iter()
                .filter_map(|name| Some((read(section, &name)?, name)));
            entries.map(|(value, name)| (name, value)).collect()
        })
    }

    /// Reads the sections inside a section, whose names are chosen by the user.
    pub(crate) fn read_sections<T>(
        &mut self,
        key: &str,
        read: impl Fn(&mut Self) -> T,
    ) -> BTreeMap<String, T> {
        self.read_entries(key, |section, name| Some(section.read_section(name, &read)))
    }

    /// The value of a key, or its default where the key is not set or has the wrong type.
    fn read_value<T: SettingValue>(
        &mut self,
        key: &str,
        default: Option<T>,
        show: Visibility,
    ) -> Option<T> {
        self.known.push(key.to_owned());
        let path = self.key_path(key);
        let (mut value, mut from, mut origin) = (default, SettingSource::Default, None);
        if let Some((layer, written)) = self.layers.find_strongest(&path) {
            (from, origin) = (layer.source, Some(layer.origin.clone()));
            match written.deserialize() {
                Ok(read) => value = Some(read),
                Err(error) => self.note_type_error(&path, &error),
            }
        }
        // The numbers, texts and lists of a setting always become JSON.
        let shown = show.redact_value(serde_json::to_value(&value).unwrap_or_default());
        if let Some(schema) = &mut self.schema {
            schema.note_value::<T>(&path, shown.clone());
        }
        self.settings.push(Setting {
            key: format_key_path(&path),
            hidden: shown.is_none(),
            value: shown.unwrap_or_default(),
            unset: std::mem::replace(&mut self.unset, NOT_SET),
            from,
            origin,
        });
        value
    }
}
