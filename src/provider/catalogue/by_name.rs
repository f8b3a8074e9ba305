//! The window of a model by its name alone, for a provider that the catalogue does not know.
//!
//! The same name can mean different windows at different places. So a name counts only where all
//! providers of the catalogue that know it name the same window; what is found so is told apart
//! from what is known of the provider itself.

use std::sync::OnceLock;

use super::{Entry, MAX_NAME_BYTES, Row, release, rows, table::Table};
use crate::provider::window::least;

/// What all providers that know the model say of it alike; the least of the limits of a prompt and of
/// an answer that any of them names. Newer rows come before those of the binary. `None`: nobody knows
/// the name, or they disagree on the window.
pub(in crate::provider) fn lookup(newer: &Table, model: &str) -> Option<Entry> {
    if model.len() > MAX_NAME_BYTES {
        return None;
    }
    let model = model.to_ascii_lowercase();
    // The longest name that anybody knows decides: a shorter one is another model.
    let all = release::names(&model).map(|name| entries(newer, name));
    let known = all.into_iter().find(|entries| !entries.is_empty())?;
    let (first, others) = known.split_first()?;
    others.iter().try_fold(*first, |agreed, other| {
        (agreed.context == other.context).then_some(Entry {
            context: agreed.context,
            input: least(agreed.input, other.input),
            output: least(agreed.output, other.output),
        })
    })
}

/// What each provider says of a model of exactly that name.
fn entries(newer: &Table, model: &str) -> Vec<Entry> {
    let fetched = newer.0.values().filter_map(|models| models.get(model));
    let by_model = by_model();
    let first = by_model.partition_point(|row| row.model < model);
    let built_in = by_model[first..]
        .iter()
        .take_while(|row| row.model == model);
    let built_in = built_in.filter(|row| newer.exact(row.provider, model).is_none());
    fetched
        .copied()
        .chain(built_in.map(|row| row.entry))
        .collect()
}

/// The rows of the binary by the names of models.
fn by_model() -> &'static [&'static Row] {
    static BY_MODEL: OnceLock<Vec<&Row>> = OnceLock::new();
    BY_MODEL.get_or_init(|| {
        let mut by_model: Vec<&Row> = rows().iter().collect();
        by_model.sort_unstable_by_key(|row| (row.model, row.provider));
        by_model
    })
}
