//! Windows of known models, shipped with the binary.
//!
//! A model is looked up within its provider, since the same name can have different windows at
//! different providers. Where no other source names a window, the model is looked up by its name alone:
//! only where all providers with that name agree, marked as a source of its own, and not for providers
//! that drop the front of a prompt in silence. The first refusal corrects a window that is too large.

mod family;
pub(crate) mod fetched_catalogue;
mod release;
pub(crate) mod table;

use std::ops::RangeInclusive;

use http::Uri;

use self::table::{WindowTable, built_in_table};
use super::{Window, WindowSource};

/// Bounds the search; no model has a longer name.
const MAX_NAME_BYTES: usize = 256;

/// Believable windows, in tokens.
pub(super) const SANE_WINDOWS: RangeInclusive<u32> = 1_024..=100_000_000;

/// Common names of providers, with the catalogue's.
const PROVIDER_ALIASES: &[(&str, &str)] = &[
    ("bedrock", "amazon-bedrock"),
    ("dashscope", "alibaba"),
    ("fireworks", "fireworks-ai"),
    ("gemini", "google"),
    ("kimi", "moonshotai"),
    ("mistralai", "mistral"),
    ("moonshot", "moonshotai"),
    ("novita", "novita-ai"),
    ("qwen", "alibaba"),
    ("together", "togetherai"),
    ("zhipu", "zhipuai"),
];

/// The endings of hosts called `api.PROVIDER.ending`.
const API_HOST_ENDINGS: [&str; 5] = ["com", "ai", "cn", "io", "xyz"];

/// Other hosts of APIs. A leading dot stands for all hosts below.
const HOSTS: &[(&str, &str)] = &[
    ("ai-gateway.vercel.sh", "vercel"),
    (".openai.azure.com", "azure"),
    (".services.ai.azure.com", "azure"),
    (".amazonaws.com", "amazon-bedrock"),
    (".api.aws", "amazon-bedrock"),
    ("aiplatform.googleapis.com", "google-vertex"),
    ("api.x.ai", "xai"),
    ("us.api.x.ai", "xai"),
    ("api.z.ai", "zai"),
    ("dashscope-intl.aliyuncs.com", "alibaba"),
    ("dashscope.aliyuncs.com", "alibaba"),
    ("generativelanguage.googleapis.com", "google"),
    ("inference.baseten.co", "baseten"),
    ("integrate.api.nvidia.com", "nvidia"),
    ("models.github.ai", "github-models"),
    ("ollama.com", "ollama-cloud"),
    ("open.bigmodel.cn", "zhipuai"),
    ("openrouter.ai", "openrouter"),
    ("router.huggingface.co", "huggingface"),
];

/// The window of a model by the catalogue's name of its provider (see [`find_provider_name`]): of the
/// exact name, else of the longest known name of which it is a release (`gpt-4o-2024-08-06` is one of
/// `gpt-4o`, and `gpt-4-32k` is none of `gpt-4`).
pub(super) fn look_up_window(table: &WindowTable, provider: &str, model: &str) -> Option<Window> {
    find_by_base_name(model, |name| table.find_exact(provider, name))
}

/// The window on which all providers of the model agree, with the least of their prompt limits.
/// `None`: no provider has the name, or they disagree. A provider that only a fetched list has counts if no
/// other one has the name: some resell models with windows of their own.
pub(super) fn look_up_window_by_name(table: &WindowTable, model: &str) -> Option<Window> {
    // Only the longest known name counts: a shorter one is another model.
    let known = find_by_base_name(model, |name| match table.entries_of_model(name) {
        [] => None,
        entries => Some(keep_built_in(entries, |(provider, _)| provider)),
    })?;
    let tokens = known.first()?.1.tokens;
    let agree = known.iter().all(|(_, window)| window.tokens == tokens);
    agree.then(|| Window {
        tokens,
        input: known.iter().filter_map(|(_, window)| window.input).min(),
        taught: None,
        source: WindowSource::CatalogueByName,
    })
}

/// The window of the longest known name that ends where a separator follows in the model's name: at `provider`, or
/// without one where all providers agree. `None` if what follows states a size or a version, or names another kind.
pub(super) fn look_up_window_by_prefix(
    table: &WindowTable,
    provider: Option<&str>,
    model: &str,
) -> Option<Window> {
    let model = normalize_name(model)?;
    let found = release::prefixes(&model).find_map(|name| match provider {
        Some(provider) => look_up_window(table, provider, name),
        None => look_up_window_by_name(table, name),
    })?;
    Some(Window {
        source: WindowSource::CatalogueByPrefix,
        ..found
    })
}

/// The window of the newest known model of the model's family, where the model is newer: at the provider, else the
/// least at any other. A later model may hold more, and a provider that holds less says so in its refusal.
pub(super) fn look_up_family_floor(
    table: &WindowTable,
    provider: &str,
    model: &str,
) -> Option<Window> {
    let model = normalize_name(model)?;
    table.families.find_floor(provider, &model)
}

/// The rows of providers that the built-in table has, else all.
fn keep_built_in<T>(rows: &[T], provider: impl Fn(&T) -> &str) -> Vec<&T> {
    let built_in = built_in_table();
    let kept: Vec<&T> = rows
        .iter()
        .filter(|row| built_in.has_provider(provider(row)))
        .collect();
    if kept.is_empty() {
        rows.iter().collect()
    } else {
        kept
    }
}

/// The first result for the model's own name and then for ever shorter names of which it is a release.
fn find_by_base_name<T>(model: &str, find: impl FnMut(&str) -> Option<T>) -> Option<T> {
    release::base_names(&normalize_name(model)?).find_map(find)
}

/// A model's name as the catalogue spells it, in lower case; `None` for one that is too long.
fn normalize_name(model: &str) -> Option<String> {
    (model.len() <= MAX_NAME_BYTES).then(|| model.to_ascii_lowercase())
}

/// The catalogue's name for a configured provider: by its host, else by its configured name.
pub(super) fn find_provider_name(name: &str, base_url: Option<&str>) -> String {
    let by_host = base_url.and_then(find_provider_by_host);
    by_host.unwrap_or_else(|| resolve_alias(name))
}

fn resolve_alias(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let alias = PROVIDER_ALIASES.iter().find(|(alias, _)| *alias == name);
    alias.map_or(name, |(_, provider)| (*provider).to_owned())
}

fn find_provider_by_host(base_url: &str) -> Option<String> {
    let uri: Uri = base_url.parse().ok()?;
    let host = uri.host()?.to_ascii_lowercase();
    let is_host = |known: &str| host == known || (known.starts_with('.') && host.ends_with(known));
    if let Some((_, provider)) = HOSTS.iter().find(|(known, _)| is_host(known)) {
        return Some((*provider).to_owned());
    }
    let (name, ending) = host.strip_prefix("api.")?.split_once('.')?;
    let provider = resolve_alias(name);
    // Another ending may be that of a private network, with any names of hosts.
    let known = API_HOST_ENDINGS.contains(&ending) && built_in_table().has_provider(&provider);
    known.then_some(provider)
}

#[cfg(test)]
mod tests;
