//! Windows of known models, shipped with the binary.
//!
//! A model is looked for within the provider that serves it, since the same name can mean different
//! windows at different places. Where that provider is not known, or not this model of it, `by_name`
//! takes what all others agree on. What is not found is not guessed; the caller says so.

pub(super) mod by_name;
pub(crate) mod fetched;
mod release;
pub(crate) mod table;

use std::{cmp::Ordering, ops::RangeInclusive, sync::OnceLock};

use http::Uri;

use super::Source;

const TABLE: &str = include_str!("catalogue.tsv");

/// Longer names than this are no model's; it bounds the search.
const MAX_NAME_BYTES: usize = 256;

/// Windows that can be true, in tokens.
pub(super) const SANE: RangeInclusive<u32> = 1_024..=100_000_000;

/// What is known of one model, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Prompt and answer together.
    pub context: u32,
    /// The largest prompt, where it is lower than the window.
    pub input: Option<u32>,
    /// The largest answer.
    pub output: Option<u32>,
}

/// What the catalogue says of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) entry: Entry,
    /// Whether other providers say it of a model of that name, and nothing is known of this one's.
    pub(super) by_name: bool,
}

impl Found {
    pub(super) const fn source(self) -> Source {
        match self.by_name {
            true => Source::CatalogueByName,
            false => Source::Catalogue,
        }
    }
}

struct Row {
    provider: &'static str,
    model: &'static str,
    entry: Entry,
}

/// Other names that people give these providers.
const ALIASES: &[(&str, &str)] = &[
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

/// Hosts of their APIs; one with a leading dot stands for all below it.
const HOSTS: &[(&str, &str)] = &[
    ("ai-gateway.vercel.sh", "vercel"),
    (".openai.azure.com", "azure"),
    (".services.ai.azure.com", "azure"),
    (".amazonaws.com", "amazon-bedrock"),
    ("aiplatform.googleapis.com", "google-vertex"),
    ("api.anthropic.com", "anthropic"),
    ("api.cerebras.ai", "cerebras"),
    ("api.cohere.ai", "cohere"),
    ("api.cohere.com", "cohere"),
    ("api.deepinfra.com", "deepinfra"),
    ("api.deepseek.com", "deepseek"),
    ("api.fireworks.ai", "fireworks-ai"),
    ("api.groq.com", "groq"),
    ("api.llama.com", "llama"),
    ("api.minimax.io", "minimax"),
    ("api.mistral.ai", "mistral"),
    ("api.moonshot.ai", "moonshotai"),
    ("api.moonshot.cn", "moonshotai"),
    ("api.novita.ai", "novita-ai"),
    ("api.openai.com", "openai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.siliconflow.cn", "siliconflow"),
    ("api.siliconflow.com", "siliconflow"),
    ("api.stepfun.com", "stepfun"),
    ("api.together.ai", "togetherai"),
    ("api.together.xyz", "togetherai"),
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

/// What is known of a model of that provider, by the catalogue's name for it (see
/// [`provider_of`]): the exact name, else the longest known name of which it is a release
/// (`gpt-4o-2024-08-06` is one of `gpt-4o`, and `gpt-4-32k` is none of `gpt-4`).
pub fn lookup(provider: &str, model: &str) -> Option<Entry> {
    lookup_with(&table::Table::default(), Some(provider), provider, model)
}

/// The same, where newer rows come before those of the binary. `name`: the provider's own name, by
/// which newer rows may know one that the binary does not.
pub(super) fn lookup_with(
    newer: &table::Table,
    provider: Option<&str>,
    name: &str,
    model: &str,
) -> Option<Entry> {
    let provider = provider.map(str::to_ascii_lowercase);
    let name = provider
        .clone()
        .unwrap_or_else(|| name.to_ascii_lowercase());
    if name.len() > MAX_NAME_BYTES || model.len() > MAX_NAME_BYTES {
        return None;
    }
    let model = model.to_ascii_lowercase();
    release::names(&model).find_map(|model| {
        let built_in = || exact(provider.as_deref()?, model);
        newer.exact(&name, model).or_else(built_in)
    })
}

/// Whether a model is known by exactly that name, spelt in lower case; for the rest as above.
pub(super) fn has(newer: &table::Table, provider: Option<&str>, name: &str, model: &str) -> bool {
    let built_in = || provider.is_some_and(|provider| exact(provider, model).is_some());
    let name = provider.unwrap_or(name).to_ascii_lowercase();
    newer.exact(&name, model).is_some() || built_in()
}

/// The catalogue's name for a configured provider: by its host, which is what really answers,
/// else by the name the user gave it. `None`: nothing is known, and no model of it is found.
pub fn provider_of(name: &str, base_url: Option<&str>) -> Option<&'static str> {
    base_url
        .and_then(provider_by_host)
        .or_else(|| provider_by_name(name))
}

fn provider_by_host(base_url: &str) -> Option<&'static str> {
    let uri: Uri = base_url.parse().ok()?;
    let host = uri.host()?.to_ascii_lowercase();
    let is = |known: &str| match known.strip_prefix('.') {
        Some(_) => host.ends_with(known),
        None => host == known,
    };
    HOSTS
        .iter()
        .find(|(known, _)| is(known))
        .map(|(_, provider)| *provider)
}

fn provider_by_name(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let wanted = alias.map_or(name.as_str(), |(_, provider)| provider);
    let rows = rows();
    let first = rows.partition_point(|row| row.provider < wanted);
    let row = rows.get(first)?;
    (row.provider == wanted).then_some(row.provider)
}

fn exact(provider: &str, model: &str) -> Option<Entry> {
    let rows = rows();
    let order = |row: &Row| -> Ordering { (row.provider, row.model).cmp(&(provider, model)) };
    let found = rows.binary_search_by(order).ok()?;
    Some(rows[found].entry)
}

/// The table, read once. It is sorted here too, so that a search never depends on the file.
fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let mut rows: Vec<Row> = TABLE.lines().filter_map(row).collect();
        rows.sort_unstable_by_key(|row| (row.provider, row.model));
        rows
    })
}

/// One line; comments and empty lines are none.
fn row(line: &'static str) -> Option<Row> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = line.split('\t');
    let (provider, model) = (fields.next()?, fields.next()?);
    let context = fields.next()?.parse().ok()?;
    let mut optional = || fields.next().and_then(|field| field.parse().ok());
    let (input, output) = (optional(), optional());
    let entry = Entry {
        context,
        input,
        output,
    };
    Some(Row {
        provider,
        model,
        entry,
    })
}

#[cfg(test)]
mod tests;
