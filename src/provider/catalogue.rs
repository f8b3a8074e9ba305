//! Windows of known models, shipped with the binary.
//!
//! A model is looked for only within the provider that serves it: the same name means different
//! windows at different places. What is not found is not guessed; the caller says so.

pub(crate) mod fetched;

use std::{cmp::Ordering, ops::RangeInclusive, sync::OnceLock};

use http::Uri;

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
/// [`provider_of`]): the exact name, else the longest known name that it continues at a boundary
/// (`gpt-4o-2024-08-06` continues `gpt-4o`, and `gpt-4o` does not continue `gpt-4`).
pub fn lookup(provider: &str, model: &str) -> Option<Entry> {
    lookup_with(&fetched::Table::default(), Some(provider), provider, model)
}

/// The same, where newer rows come before those of the binary. `name`: the provider's own name, by
/// which newer rows may know one that the binary does not.
pub(super) fn lookup_with(
    newer: &fetched::Table,
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
    let shorter = model
        .rmatch_indices(['-', ':', '@', '_'])
        .map(|(end, _)| &model[..end]);
    let mut names = std::iter::once(model.as_str()).chain(shorter);
    names.find_map(|model| {
        let built_in = || exact(provider.as_deref()?, model);
        newer.exact(&name, model).or_else(built_in)
    })
}

/// The catalogue's name for a configured provider: by its host, which is what really answers,
/// else by the name the user gave it. `None`: nothing is known, and no model of it is found.
pub fn provider_of(name: &str, base_url: Option<&str>) -> Option<&'static str> {
    base_url.and_then(by_host).or_else(|| by_name(name))
}

fn by_host(base_url: &str) -> Option<&'static str> {
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

fn by_name(name: &str) -> Option<&'static str> {
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
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{ALIASES, Entry, HOSTS, TABLE, by_name, lookup, provider_of, rows};

    fn context(provider: &str, model: &str) -> Option<u32> {
        lookup(provider, model).map(|entry| entry.context)
    }

    #[test]
    fn every_line_of_the_table_is_a_row_and_none_comes_twice() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert!(lines > 1_000);
        assert_eq!(rows().len(), lines);
        for pair in rows().windows(2) {
            let names = |n: usize| (pair[n].provider, pair[n].model);
            assert!(names(0) < names(1), "{:?} comes twice", names(1));
        }
        for row in rows() {
            assert!(row.entry.context >= 1024, "{}/{}", row.provider, row.model);
            assert!(
                row.entry
                    .input
                    .is_none_or(|input| input < row.entry.context)
            );
            assert_eq!(row.model, row.model.to_ascii_lowercase());
        }
    }

    /// The table against the facts it was made of, where these are at hand.
    #[test]
    fn no_known_model_is_missing() {
        let Some(folder) = std::env::var_os("PLIMSOLL_DATA") else {
            println!("PLIMSOLL_DATA is not set: the table is not compared with its facts");
            return;
        };
        let path = std::path::Path::new(&folder).join("models.json");
        let facts: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let mut models = 0;
        for (provider, listed) in facts["providers"].as_object().unwrap() {
            for (model, facts) in listed.as_object().unwrap() {
                let tokens = |key: &str| u32::try_from(facts.get(key)?.as_u64()?).ok();
                let context = tokens("context").unwrap();
                // A window under 1,024 tokens is no chat model's.
                let expected = (context >= 1_024).then_some(Entry {
                    context,
                    input: tokens("input").filter(|input| *input < context),
                    output: tokens("output"),
                });
                assert_eq!(lookup(provider, model), expected, "{provider}/{model}");
                models += 1;
            }
        }
        assert!(models > 1_000, "{models}");
    }

    #[test]
    fn every_alias_and_host_leads_into_the_table() {
        for (name, provider) in ALIASES.iter().chain(HOSTS) {
            assert_eq!(by_name(provider), Some(*provider), "{name}");
        }
    }

    #[test]
    fn a_model_is_found_by_its_exact_name() {
        assert_eq!(context("openai", "gpt-4o"), Some(128_000));
        assert_eq!(context("openai", "gpt-4"), Some(8_192));
        assert_eq!(context("OpenAI", "GPT-4o"), Some(128_000));
        assert_eq!(context("openrouter", "openai/gpt-4o"), Some(128_000));
    }

    #[test]
    fn a_dated_name_continues_the_plain_one() {
        assert_eq!(
            lookup("openai", "gpt-4o-2019-01-01"),
            lookup("openai", "gpt-4o")
        );
        assert_eq!(
            lookup("openrouter", "openai/gpt-4o:nitro"),
            lookup("openrouter", "openai/gpt-4o")
        );
        assert_eq!(
            lookup("openai", "gpt-4-turbo-x"),
            lookup("openai", "gpt-4-turbo")
        );
        assert_ne!(lookup("openai", "gpt-4-turbo-x"), lookup("openai", "gpt-4"));
    }

    #[test]
    fn a_name_is_not_cut_inside_a_word() {
        assert_eq!(lookup("openai", "gpt-4x"), None);
        assert_eq!(lookup("openai", "gpt-4.25"), None);
        assert_eq!(lookup("openai", ""), None);
        assert_eq!(lookup("openai", "-"), None);
        assert_eq!(lookup("openai", "mine"), None);
    }

    #[test]
    fn a_model_of_another_provider_is_unknown() {
        assert_eq!(lookup("deepseek", "gpt-4o"), None);
        assert_eq!(lookup("nobody", "gpt-4o"), None);
        assert_eq!(lookup("openai", "openai/gpt-4o"), None);
    }

    #[test]
    fn the_host_decides_before_the_name() {
        for (name, base_url, provider) in [
            ("openai", None, Some("openai")),
            ("kimi", None, Some("moonshotai")),
            ("mine", Some("https://api.openai.com/v1"), Some("openai")),
            (
                "openai",
                Some("https://openrouter.ai/api/v1"),
                Some("openrouter"),
            ),
            (
                "x",
                Some("https://eu.openai.azure.com/openai/v1"),
                Some("azure"),
            ),
            ("openai", Some("https://gateway.example/v1"), Some("openai")),
            ("mine", Some("http://127.0.0.1:8080/v1"), None),
            ("mine", Some("https://api.openai.com.example/v1"), None),
            ("mine", Some("not a url"), None),
            ("ollama", Some("http://127.0.0.1:11434/v1"), None),
            ("simulated", None, None),
            ("", None, None),
        ] {
            assert_eq!(provider_of(name, base_url), provider, "{name} {base_url:?}");
        }
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(provider in ".*", model in ".*", url in ".*") {
            let _ = lookup(&provider, &model);
            let _ = lookup("openai", &model);
            let _ = provider_of(&provider, Some(&url));
        }

        #[test]
        fn every_continuation_finds_the_model_or_a_longer_one(
            n in 0usize..1_000, boundary in "[-:@_]", rest in "[a-z0-9]{1,8}",
        ) {
            let row = &rows()[n];
            let name = format!("{}{boundary}{rest}", row.model);
            prop_assert!(lookup(row.provider, &name).is_some());
            prop_assert_eq!(lookup(row.provider, row.model), Some(row.entry));
        }
    }
}
