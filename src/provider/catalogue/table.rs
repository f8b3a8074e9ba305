//! Windows that were read from a list in the form of models.dev. Rows that cannot be true are left out.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Entry, MAX_NAME_BYTES, SANE};

const MAX_ROWS: usize = 200_000;

/// Windows by provider and model, in lower case.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table(pub(super) BTreeMap<String, HashMap<String, Entry>>);

#[derive(Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) context: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<u32>,
}

/// One provider of a list in the form of models.dev.
#[derive(Deserialize)]
struct Listed {
    models: HashMap<String, Model>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    limit: Value,
}

impl Table {
    pub(crate) fn exact(&self, provider: &str, model: &str) -> Option<Entry> {
        self.0.get(provider)?.get(model).copied()
    }

    pub(crate) fn has_provider(&self, provider: &str) -> bool {
        self.0.contains_key(provider)
    }

    /// Adds the models of one provider that can be true, up to the bound of the whole.
    pub(super) fn add(&mut self, provider: &str, models: impl Iterator<Item = (String, Row)>) {
        let held: usize = self.0.values().map(HashMap::len).sum();
        let sound = models.filter(|(name, row)| {
            !name.is_empty() && name.len() <= MAX_NAME_BYTES && SANE.contains(&row.context)
        });
        let entries = sound
            .take(MAX_ROWS.saturating_sub(held))
            .map(|(name, row)| {
                let entry = Entry {
                    context: row.context,
                    input: row.input.filter(|input| (1..row.context).contains(input)),
                    output: row.output.filter(|output| *output > 0),
                };
                (name.to_ascii_lowercase(), entry)
            });
        let entries: HashMap<_, _> = entries.collect();
        if !entries.is_empty() && provider.len() <= MAX_NAME_BYTES {
            self.0.insert(provider.to_ascii_lowercase(), entries);
        }
    }
}

/// A list in the form of models.dev; `None` where there is no usable row in it.
pub(super) fn read(bytes: &[u8]) -> Option<Table> {
    let list: BTreeMap<String, Listed> = serde_json::from_slice(bytes).ok()?;
    let mut table = Table::default();
    for (provider, listed) in list {
        let rows = listed.models.into_iter().filter_map(|(name, model)| {
            let tokens = |key: &str| u32::try_from(model.limit.get(key)?.as_u64()?).ok();
            let row = Row {
                context: tokens("context")?,
                input: tokens("input"),
                output: tokens("output"),
            };
            Some((name, row))
        });
        table.add(&provider, rows);
    }
    (!table.0.is_empty()).then_some(table)
}
