//! Windows by model and provider, built in or from a list in the form of models.dev. Impossible rows
//! are left out.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, value::RawValue};

use super::{MAX_NAME_BYTES, SANE_WINDOWS, family::Families};
use crate::provider::{Window, WindowSource};

const MAX_ROWS: usize = 200_000;

/// Lines of provider, model, window, largest prompt; the largest answer is not read. `#` begins a comment.
/// `tools/catalogue.py` writes the first part, and says how; the second is kept by hand.
pub(super) const BUILT_IN: [&str; 2] = [
    include_str!("../catalogue.tsv"),
    include_str!("../catalogue_more.tsv"),
];

/// Windows of models; all names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowTable {
    /// Without the built-in rows in a table from a list.
    pub(crate) rows: usize,
    providers: BTreeSet<String>,
    /// The providers of each model, with their windows.
    models: HashMap<String, Vec<(String, Window)>>,
    pub(super) families: Families,
}

impl WindowTable {
    pub(crate) fn find_exact(&self, provider: &str, model: &str) -> Option<Window> {
        let mut entries = self.entries_of_model(model).iter();
        let found = entries.find(|(name, _)| name == provider);
        found.map(|(_, window)| *window)
    }

    /// The providers and windows of a model of exactly that name.
    pub(super) fn entries_of_model(&self, model: &str) -> &[(String, Window)] {
        self.models.get(model).map_or(&[], Vec::as_slice)
    }

    /// The models of a provider.
    pub(crate) fn list_models<'t>(&'t self, provider: &str) -> impl Iterator<Item = &'t str> {
        let is_of = move |(name, _): &(String, Window)| name == provider;
        let models = self.models.iter();
        models.filter_map(move |(model, entries)| entries.iter().any(is_of).then_some(&**model))
    }

    pub(crate) fn has_provider(&self, name: &str) -> bool {
        self.providers.contains(name)
    }

    /// Adds or replaces a row; ignores an impossible one, and all above the bound.
    pub(super) fn add_row(&mut self, provider: &str, model: &str, tokens: u32, input: Option<u32>) {
        if self.rows >= MAX_ROWS
            || model.is_empty()
            || provider.len().max(model.len()) > MAX_NAME_BYTES
            || !SANE_WINDOWS.contains(&tokens)
        {
            return;
        }
        let (provider, model) = (provider.to_ascii_lowercase(), model.to_ascii_lowercase());
        if !self.providers.contains(&provider) {
            self.providers.insert(provider.clone());
        }
        let window = Window {
            tokens,
            input: input.filter(|input| (1..tokens).contains(input)),
            taught: None,
            source: WindowSource::Catalogue,
        };
        let entries = self.models.entry(model).or_default();
        entries.retain(|(name, _)| *name != provider);
        entries.push((provider, window));
        self.rows += 1;
    }

    /// Called after the last row.
    pub(super) fn index_families(&mut self) {
        self.families = Families::default();
        for (model, entries) in &self.models {
            for (provider, window) in entries {
                self.families.add_row(provider, model, *window);
            }
        }
    }
}

/// The day of the newest list behind the built-in table, as `2026-11-24`.
pub(crate) fn built_in_date() -> &'static str {
    read_head("# date: ").unwrap_or("unknown")
}

/// The midnight at which that day began, in UTC.
pub(crate) fn built_in_since() -> SystemTime {
    let seconds = read_head("# since: ").and_then(|seconds| seconds.parse().ok());
    UNIX_EPOCH + Duration::from_secs(seconds.unwrap_or(0))
}

/// What follows these words in the comments at the head of the built-in table.
fn read_head(words: &str) -> Option<&'static str> {
    let mut head = BUILT_IN[0].lines().take_while(|line| line.starts_with('#'));
    head.find_map(|line| line.strip_prefix(words))
}

/// The built-in table, parsed once.
pub(crate) fn built_in_table() -> &'static Arc<WindowTable> {
    static TABLE: OnceLock<Arc<WindowTable>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = WindowTable::default();
        let lines = BUILT_IN.iter().flat_map(|part| part.lines());
        for line in lines.filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| fields.get(at).and_then(|field| field.parse().ok());
            if let (&[provider, model, ..], Some(context)) = (&fields[..], number(2)) {
                table.add_row(provider, model, context, number(3));
            }
        }
        table.index_families();
        Arc::new(table)
    })
}

/// The built-in table, with the rows of a list in the form of models.dev in place of its own. A provider or a model of
/// another form is left out. `None`: the list has no usable row.
pub(super) fn parse_table(bytes: &[u8]) -> Option<WindowTable> {
    let list: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes).ok()?;
    let mut table = WindowTable::clone(built_in_table());
    table.rows = 0;
    for (provider, listed) in list {
        let listed: Value = serde_json::from_str(listed.get()).unwrap_or_default();
        for (name, model) in listed["models"].as_object().into_iter().flatten() {
            let tokens = |key: &str| u32::try_from(model["limit"][key].as_u64()?).ok();
            if let Some(context) = tokens("context") {
                table.add_row(&provider, name, context, tokens("input"));
            }
        }
    }
    table.index_families();
    (table.rows > 0).then_some(table)
}
