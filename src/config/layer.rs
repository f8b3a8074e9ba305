//! The sources of settings, one over the other.
//!
//! Every source is one layer with a name of its own, so that a problem can say in which file or
//! variable it lies.

use std::collections::BTreeSet;

use figment::value::{Dict, Value};

use super::setting::SettingSource;

/// One source of settings.
pub(super) struct Layer {
    pub(super) source: SettingSource,
    /// The file, variable or flag.
    pub(super) origin: String,
    values: Value,
}

/// All sources, the strongest last.
#[derive(Default)]
pub(super) struct Layers(Vec<Layer>);

impl Layers {
    /// Adds a source with one value, stronger than those before; an empty path is for a whole file.
    pub(super) fn push(
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

    /// The source that has the last word on a key, and what it says.
    pub(super) fn find_strongest<S: AsRef<str>>(&self, path: &[S]) -> Option<(&Layer, &Value)> {
        let mut strongest = self.0.iter().rev();
        strongest.find_map(|layer| Some((layer, find_value(&layer.values, path)?)))
    }

    /// The keys that a section has in any source, each once.
    pub(super) fn list_keys<S: AsRef<str>>(&self, path: &[S]) -> Vec<String> {
        let sections = self
            .0
            .iter()
            .filter_map(|layer| find_value(&layer.values, path)?.as_dict());
        let keys: BTreeSet<_> = sections.flat_map(Dict::keys).collect();
        keys.into_iter().cloned().collect()
    }
}

fn find_value<'v, S: AsRef<str>>(values: &'v Value, path: &[S]) -> Option<&'v Value> {
    path.iter()
        .try_fold(values, |value, key| value.as_dict()?.get(key.as_ref()))
}
