//! The windows that a running proxy knows: what it has learnt from errors, and what providers have told it, counts for its
//! clients.

use std::{collections::BTreeMap, io::Write};

use super::{
    super::ask_proxy::{AskedProxy, ListedModel},
    CommandResult,
};
use crate::provider::WindowSource;

/// What the proxy says of models, by their names.
#[derive(Default)]
pub(super) struct RunningModels {
    models: BTreeMap<String, ListedModel>,
    /// Whose windows are shown, and why; empty where the proxy was not asked.
    source: String,
}

impl RunningModels {
    /// Asks for the list, and for those of the names that it does not have.
    pub(super) async fn ask(proxy: AskedProxy, names: &[String]) -> Self {
        let listed = match proxy.list_models().await {
            Ok(listed) => listed,
            Err(why) => {
                let source = format!("Windows are those of the settings: {}.", why.shorten());
                return Self {
                    source,
                    ..Self::default()
                };
            }
        };
        let named = listed.into_iter().map(|model| (model.id.clone(), model));
        let mut models: BTreeMap<_, _> = named.collect();
        for name in names.iter().filter(|name| !name.ends_with('*')) {
            if !models.contains_key(name)
                && let Ok(model) = proxy.describe_model(name).await
            {
                models.insert(name.clone(), model);
            }
        }
        let source = format!(
            "Windows are those of the proxy at {}, where it knows them.",
            proxy.base
        );
        Self { models, source }
    }

    /// Puts the proxy's numbers into a row of the table.
    pub(super) fn update_row(&self, row: &mut [String; 7]) {
        let Some(model) = self.models.get(&row[0]) else {
            return;
        };
        let (Some(window), Some(from)) = (model.context_length, &model.window_from) else {
            return;
        };
        let format = |tokens: Option<u32>, unset: &str| {
            tokens.map_or(unset.to_owned(), |tokens| tokens.to_string())
        };
        row[1] = window.to_string();
        row[2] = WindowSource::display_api_name(from).to_owned();
        row[3] = format(model.max_input_tokens, "-");
        row[4] = format(model.optimal_max_tokens, "-");
        row[5] = format(model.critical_max_tokens, "unknown");
    }

    pub(super) fn write_source(&self, out: &mut impl Write) -> CommandResult {
        if self.source.is_empty() {
            return Ok(());
        }
        Ok(writeln!(out, "{}", self.source)?)
    }
}
