//! The sources of settings as layers: a later layer overrides an earlier one.
//!
//! Each layer keeps its name, so that a problem names the file, variable or flag to change.

use std::collections::BTreeSet;

use figment::value::{Dict, Value};

use crate::config::loading::setting::SettingSource;

/// One source of settings.
pub(crate) struct Layer {
    pub(crate) source: SettingSource,
    /// The file, variable or flag.
    pub(crate) origin: String,
    values: Value,
}

/// All sources, the strongest last.
#[derive(Default)]
pub(crate) struct Layers(Vec<Layer>);

impl Layers {
    /// Adds a source that overrides those before it. `path` leads to `value`; it is empty for a whole file.
    pub(crate) fn push(
        &mut self,
        source: SettingSource,
        origin: &str,
        path: &[String],
        value: Value,
    ) {
        let values = path.iter().rev().fold(value, |value, key| {
            Value::from(Dict::from([(key.clone(), value)]))
        });
        self.0.push(Layer {
            source,
            origin: origin.to_owned(),
            values,
        });
    }

    /// The value in force of a key, and the source that sets it.
    pub(crate) fn find_strongest<S: AsRef<str>>(&self, path: &[S]) -> Option<(&Layer, &Value)> {
        let mut strongest_first = self.0.iter().rev();
        strongest_first.find_map(|layer| Some((layer, find_value(&layer.values, path)?)))
    }

    /// The keys that a section has in any source, each once, sorted.
    pub(crate) fn list_keys<S: AsRef<str>>(&self, path: &[S]) -> Vec<String> {
        let values = self.0.iter().map(|layer| &layer.values);
        let sections = values.filter_map(|values| find_value(values, path)?.as_dict());
        let keys: BTreeSet<_> = sections.flat_map(Dict::keys).collect();
        keys.into_iter().cloned().collect()
    }
}

fn find_value<'v, S: AsRef<str>>(values: &'v Value, path: &[S]) -> Option<&'v Value> {
    path.iter()
        .try_fold(values, |value, key| value.as_dict()?.get(key.as_ref()))
}
