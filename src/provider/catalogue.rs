//! Windows of known models, shipped with the binary.
//!
//! A model is looked for within the provider that serves it, since the same name can mean different
//! windows at different places. Where that provider is not known, or not this model of it,
//! `lookup_by_name` takes what all others agree on. What is not found is not guessed; the caller
//! says so.
//!
//! By its name alone a model is looked up where nothing else knows its window. That counts only where all that know
//! the name have one window, is marked wherever the source is shown, and is not done for providers that drop the
//! front of a prompt in silence. A window that is too large is corrected by the first refusal.

pub(crate) mod fetched_catalogue;
mod release;
pub(crate) mod table;

use std::ops::RangeInclusive;

use http::Uri;

use self::table::{WindowTable, built_in_table};
use super::{Window, WindowSource, window::lesser_bound};

/// Longer names than this are no model's; it bounds the search.
const MAX_NAME_BYTES: usize = 256;

/// Windows that can be true, in tokens.
pub(super) const SANE_WINDOWS: RangeInclusive<u32> = 1_024..=100_000_000;

/// Other names that people give these providers.
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

/// Endings of hosts of APIs that are called `api.NAME.ending`.
const API_HOST_ENDINGS: [&str; 5] = ["com", "ai", "cn", "io", "xyz"];

/// Hosts of their APIs, but for those that are called `api.NAME.com` or the like; one with a leading dot stands
/// for all below it.
const HOSTS: &[(&str, &str)] = &[
    ("ai-gateway.vercel.sh", "vercel"),
    (".openai.azure.com", "azure"),
    (".services.ai.azure.com", "azure"),
    (".amazonaws.com", "amazon-bedrock"),
    ("aiplatform.googleapis.com", "google-vertex"),
    ("api.x.ai", "xai"),
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

/// What a table knows of a model of that provider, by the catalogue's name for it (see
/// [`name_of`]): the exact name, else the longest known name of which it is a release
/// (`gpt-4o-2024-08-06` is one of `gpt-4o`, and `gpt-4-32k` is none of `gpt-4`).
pub(super) fn look_up_window(table: &WindowTable, provider: &str, model: &str) -> Option<Window> {
    find_by_base_name(model, |name| table.find_exact(provider, name))
}

/// What all providers that know the model say of it alike; the least of the limits of a prompt
/// that any of them names. `None`: nobody knows the name, or they disagree on the window: the same
/// name can mean different windows.
pub(super) fn look_up_window_by_name(table: &WindowTable, model: &str) -> Option<Window> {
    let entries =
        |name: &str| Some(table.entries_of_model(name)).filter(|entries| !entries.is_empty());
    // The longest name that anybody knows decides: a shorter one is another model.
    let known = find_by_base_name(model, entries)?;
    let mut windows = known.iter().map(|(_, window)| *window);
    let first = windows.next()?;
    let agreed = windows.try_fold(first, |agreed, other| {
        (agreed.tokens == other.tokens).then_some(Window {
            input: lesser_bound(agreed.input, other.input),
            ..agreed
        })
    })?;
    Some(Window {
        source: WindowSource::CatalogueByName,
        ..agreed
    })
}

/// What is found under the longest name of which a model is a release.
fn find_by_base_name<T>(model: &str, find: impl FnMut(&str) -> Option<T>) -> Option<T> {
    if model.len() > MAX_NAME_BYTES {
        return None;
    }
    release::base_names(&model.to_ascii_lowercase()).find_map(find)
}

/// The catalogue's name for a configured provider: by its host, which is what really answers,
/// else by the name the user gave it, in lower case.
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
    let is = |known: &str| host == known || (known.starts_with('.') && host.ends_with(known));
    if let Some((_, provider)) = HOSTS.iter().find(|(known, _)| is(known)) {
        return Some((*provider).to_owned());
    }
    let (name, ending) = host.strip_prefix("api.")?.split_once('.')?;
    let provider = resolve_alias(name);
    // Another ending may be that of a private network, whose hosts are called as they like.
    let known = API_HOST_ENDINGS.contains(&ending) && built_in_table().has_provider(&provider);
    known.then_some(provider)
}

#[cfg(test)]
mod tests;
