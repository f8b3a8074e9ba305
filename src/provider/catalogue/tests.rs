use std::{cmp::Ordering, collections::BTreeMap};

use proptest::prelude::*;
use serde_json::Value;

use super::{
    HOSTS, PROVIDER_ALIASES, find_provider_name, look_up_family_floor, look_up_window_by_name,
    look_up_window_by_prefix,
    table::{BUILT_IN, WindowTable, built_in_date, built_in_table, parse_table},
};
use crate::{
    config::{Environment, Flags, load_config},
    provider::{Window, WindowSource},
};

/// Provider and model of each line of the table.
fn rows() -> Vec<(&'static str, &'static str)> {
    let lines = BUILT_IN.iter().flat_map(|part| part.lines());
    let lines = lines.filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| {
        let (provider, rest) = line.split_once('\t')?;
        Some((provider, rest.split_once('\t')?.0))
    });
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

fn exact(provider: &str, model: &str) -> Option<Window> {
    built_in_table().find_exact(provider, model)
}

fn lookup(provider: &str, model: &str) -> Option<Window> {
    super::look_up_window(built_in_table(), provider, model)
}

fn context(provider: &str, model: &str) -> Option<u32> {
    lookup(provider, model).map(|entry| entry.tokens)
}

/// The proxy passes on every name of these two providers, though its settings have none.
#[test]
fn known_providers_serve_all_their_models_of_the_catalogue() {
    let loaded = load_config(&Flags::default(), &Environment::default()).unwrap();
    let mut count = 0;
    for (provider, name) in rows() {
        let known = loaded.config.providers.get(provider);
        if let Some(known) = known.filter(|known| known.is_known) {
            assert!(known.may_serve(name), "{provider} {name}");
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn the_table_has_every_line_of_its_file_once() {
    let rows = rows();
    assert!(rows.len() > 1_000);
    assert_eq!(built_in_table().rows, rows.len());
    for pair in rows.windows(2) {
        assert!(pair[0] < pair[1], "{:?} comes twice", pair[1]);
    }
    for (provider, model) in rows {
        let line = BUILT_IN
            .iter()
            .flat_map(|part| part.lines())
            .find(|line| line.starts_with(&format!("{provider}\t{model}\t")));
        let numbers = line.unwrap().split('\t').skip(2).take(2);
        let numbers: Vec<Option<u32>> = numbers.map(|number| number.parse().ok()).collect();
        let entry = exact(provider, model).unwrap();
        let read = [Some(entry.tokens), entry.input];
        assert_eq!(read[..numbers.len()], numbers, "{provider}/{model}");
    }
}

/// Compares the table with the data it was made from, where this is available.
#[test]
fn no_known_model_is_missing() {
    let Some(folder) = std::env::var_os("PLIMSOLL_DATA") else {
        println!("PLIMSOLL_DATA is not set: the table is not compared with its data");
        return;
    };
    let path = std::path::Path::new(&folder).join("models.json");
    let facts: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut models = 0;
    for (provider, listed) in facts["providers"].as_object().unwrap() {
        let listed = listed.as_object().unwrap();
        for (model, facts) in listed {
            // Of names that differ by case only, that in lower case counts.
            let lower = model.to_ascii_lowercase();
            let facts = listed.get(&lower).unwrap_or(facts);
            let tokens = |key: &str| u32::try_from(facts.get(key)?.as_u64()?).ok();
            let context = tokens("context").unwrap();
            // litellm's prefix is no part of the name that the provider takes.
            let model = model.strip_prefix("vertex_ai/").unwrap_or(model);
            // A window under 1,024 tokens is no chat model's.
            let expected = (context >= 1_024).then_some(Window {
                tokens: context,
                input: tokens("input").filter(|input| *input < context),
                taught: None,
                source: WindowSource::Catalogue,
            });
            assert_eq!(lookup(provider, model), expected, "{provider}/{model}");
            models += 1;
        }
    }
    assert!(models > 1_000, "{models}");
}

#[test]
fn every_alias_and_host_names_a_provider_of_the_table() {
    for (name, provider) in PROVIDER_ALIASES.iter().chain(HOSTS) {
        assert!(built_in_table().has_provider(provider), "{name}");
    }
}

#[test]
fn hosts_with_the_name_of_their_provider_are_known() {
    for (host, provider) in [
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
    ] {
        let found = find_provider_name("mine", Some(&format!("https://{host}/v1")));
        assert_eq!(found, provider, "{host}");
        assert!(built_in_table().has_provider(&found), "{host}");
    }
}

#[test]
fn a_model_is_found_by_its_exact_name() {
    assert_eq!(context("openai", "gpt-4o"), Some(128_000));
    assert_eq!(context("openai", "gpt-4"), Some(8_192));
    assert_eq!(
        context(&find_provider_name("OpenAI", None), "GPT-4o"),
        Some(128_000)
    );
    assert_eq!(context("openrouter", "openai/gpt-4o"), Some(128_000));
}

#[test]
fn a_release_has_the_window_of_its_model() {
    for (provider, release, model) in [
        ("openai", "gpt-4o-2019-01-01", "gpt-4o"),
        ("openrouter", "openai/gpt-4o:nitro", "openai/gpt-4o"),
        ("openai", "gpt-4-turbo-preview", "gpt-4-turbo"),
    ] {
        assert_eq!(lookup(provider, release), lookup(provider, model));
    }
}

#[test]
fn common_models_are_known_with_and_without_a_date() {
    for (provider, model, tokens) in [
        ("anthropic", "claude-3-5-sonnet", 200_000),
        ("anthropic", "claude-3-5-sonnet-20241022", 200_000),
        ("anthropic", "claude-3-5-sonnet-latest", 200_000),
        ("anthropic", "claude-3-5-haiku-latest", 200_000),
        ("anthropic", "claude-3-7-sonnet-latest", 200_000),
        ("anthropic", "claude-3-opus", 200_000),
        ("anthropic", "claude-3-opus-latest", 200_000),
        ("anthropic", "claude-3-haiku", 200_000),
        ("anthropic", "claude-3-haiku-20240307", 200_000),
        ("google", "gemini-1.5-pro", 2_097_152),
        ("google", "gemini-1.5-pro-latest", 2_097_152),
        ("google", "gemini-1.5-pro-002", 2_097_152),
        ("google", "gemini-1.5-flash", 1_048_576),
        ("google", "gemini-1.5-flash-latest", 1_048_576),
        ("google", "gemini-1.5-flash-8b", 1_048_576),
        ("google", "gemini-1.5-flash-8b-001", 1_048_576),
        ("google", "gemini-1.5-flash-exp-0827", 1_048_576),
        ("openai", "gpt-4-32k", 32_768),
        ("openai", "gpt-4-32k-0613", 32_768),
        ("openai", "gpt-4-0613", 8_192),
        ("openai", "gpt-4-1106-preview", 128_000),
        ("openai", "o1-mini", 128_000),
        ("openai", "o1-mini-2024-09-12", 128_000),
        ("openai", "o1-preview-2024-09-12", 128_000),
        ("openai", "o1-2024-12-17", 200_000),
        (
            "amazon-bedrock",
            "anthropic.claude-3-5-sonnet-20241022-v2:0",
            200_000,
        ),
        ("google-vertex", "claude-3-5-sonnet-v2@20241022", 200_000),
    ] {
        assert_eq!(context(provider, model), Some(tokens), "{provider}/{model}");
    }
}

#[test]
fn models_of_2026_are_known_by_the_names_that_users_write() {
    let window = |tokens, input, source| {
        Some(Window {
            tokens,
            input,
            taught: None,
            source,
        })
    };
    for (provider, model) in [
        ("anthropic", "claude-fable-5-1"),
        ("anthropic", "claude-fable-5-2"),
        ("anthropic", "claude-haiku-5-5"),
        ("anthropic", "claude-haiku-5-5-20260921"),
        ("anthropic", "claude-opus-5"),
        ("anthropic", "claude-opus-5-20260724"),
        ("anthropic", "claude-opus-5-5"),
        ("anthropic", "claude-sonnet-5-5-latest"),
        ("amazon-bedrock", "anthropic.claude-opus-5-5"),
        ("amazon-bedrock", "eu.anthropic.claude-sonnet-5-5"),
        (
            "amazon-bedrock",
            "global.anthropic.claude-haiku-5-5-20260921-v1:0",
        ),
        ("amazon-bedrock", "us.anthropic.claude-fable-5-1"),
        ("amazon-bedrock", "us.anthropic.claude-opus-5-5-v1:0"),
        ("google-vertex", "claude-fable-5-1@default"),
        ("google-vertex", "claude-haiku-5-5@20260921"),
        ("google-vertex", "claude-opus-5"),
        ("google-vertex", "claude-sonnet-5-5@20260921"),
        ("openrouter", "anthropic/claude-fable-5.1"),
        ("openrouter", "anthropic/claude-haiku-5.5:nitro"),
        ("openrouter", "anthropic/claude-opus-5"),
        ("openrouter", "anthropic/claude-opus-5.5"),
        ("openrouter", "anthropic/claude-sonnet-5.5"),
    ] {
        let known = window(1_000_000, None, WindowSource::Catalogue);
        assert_eq!(lookup(provider, model), known, "{provider}/{model}");
        let by_name = window(1_000_000, None, WindowSource::CatalogueByName);
        let found = look_up_window_by_name(built_in_table(), model);
        assert_eq!(found, by_name, "{model}");
    }
    let gpt = window(1_050_000, Some(922_000), WindowSource::Catalogue);
    for model in [
        "gpt-5.6-luna",
        "gpt-5.6-sol",
        "gpt-5.6-terra",
        "gpt-6-astra",
        "gpt-6-luna",
        "gpt-6-sol",
        "gpt-6-sol-2026-09-22",
        "gpt-6.1-sol",
        "gpt-6.1-terra",
        "gpt-6.2-astra",
        "gpt-6.2-sol",
    ] {
        assert_eq!(lookup("openai", model), gpt, "{model}");
        assert_eq!(lookup("azure", model), gpt, "{model}");
    }
    for (provider, model) in [
        ("amazon-bedrock", "openai.gpt-6-sol"),
        ("openrouter", "openai/gpt-5.6-sol"),
        ("openrouter", "openai/gpt-6-astra"),
        ("openrouter", "openai/gpt-6.2-astra"),
        ("openrouter", "openai/gpt-6.2-sol:nitro"),
        ("vercel", "openai/gpt-6.2-sol"),
    ] {
        assert_eq!(lookup(provider, model), gpt, "{provider}/{model}");
    }
    for (provider, model, tokens) in [
        ("deepseek", "deepseek-v4-flash", 1_000_000),
        ("deepseek", "deepseek-v4-pro", 1_000_000),
        ("google", "gemini-3.8-flash", 1_048_576),
        ("google", "gemini-4-argon", 1_048_576),
        ("google-vertex", "gemini-3.8-flash", 1_048_576),
        ("moonshotai", "kimi-k3", 1_048_576),
        ("openrouter", "google/gemini-3.8-flash", 1_048_576),
        ("openrouter", "google/gemini-4-argon", 1_048_576),
        ("openrouter", "moonshotai/kimi-k3", 1_048_576),
        ("openrouter", "x-ai/grok-4.7", 500_000),
        ("openrouter", "z-ai/glm-5.3", 1_048_576),
        ("xai", "grok-4.5", 500_000),
        ("xai", "grok-4.6", 500_000),
        ("xai", "grok-4.7", 500_000),
        ("zai", "glm-5.3", 1_000_000),
    ] {
        let known = window(tokens, None, WindowSource::Catalogue);
        assert_eq!(lookup(provider, model), known, "{provider}/{model}");
    }
}

#[test]
fn the_head_of_the_table_tells_its_date_and_sources() {
    let date = built_in_date();
    assert!(date >= "2026-11-24" && date.len() == 10, "{date}");
    let head = BUILT_IN[0].lines().take_while(|line| line.starts_with('#'));
    let sources = head.filter(|line| line.starts_with("# from: "));
    for source in sources.clone() {
        assert!(source.ends_with("(MIT)"), "{source}");
    }
    assert!(sources.count() > 0);
}

#[test]
fn a_model_of_another_size_is_unknown() {
    for (provider, model) in [
        ("openai", "gpt-4-64k"),
        ("openai", "gpt-4-turbo-x"),
        ("openai", "gpt-4-mini"),
        ("openai", "o3-nano"),
        ("anthropic", "claude-opus-4-5-lite"),
        ("anthropic", "claude-opus-4-5-1"),
        ("google", "gemini-2.5-pro-8b"),
        ("openrouter", "openai/gpt-4o:extended"),
    ] {
        assert_eq!(lookup(provider, model), None, "{provider}/{model}");
    }
}

#[test]
fn a_window_on_which_all_providers_agree_is_known_by_name() {
    let context =
        |model: &str| look_up_window_by_name(built_in_table(), model).map(|entry| entry.tokens);
    assert_eq!(context("gpt-4o"), Some(128_000));
    assert_eq!(context("GPT-4o-2024-08-06"), Some(128_000));
    assert_eq!(context("gpt-4o-2031-01-01"), Some(128_000));
    assert_eq!(context("openai/gpt-4o"), Some(128_000));
    assert_eq!(context("claude-3-5-sonnet-latest"), Some(200_000));
    assert_eq!(context("gpt-4o-mine"), None);
    assert_eq!(context(""), None);
    // Azure's window differs, and a shorter name would be another model.
    assert_eq!(context("gpt-5"), None);
    assert_eq!(context("gpt-5-2031-08-07"), None);
    assert_eq!(context("gpt-3.5-turbo-0613"), None);
    // The least of the largest prompts: Azure names none for this one.
    let codex = look_up_window_by_name(built_in_table(), "gpt-5-codex").unwrap();
    assert_eq!((codex.tokens, codex.input), (400_000, Some(272_000)));
}

#[test]
fn a_newer_list_can_agree_and_disagree() {
    let list = |tokens: u32| {
        let text = format!(
            r#"{{"openai":{{"models":{{"gpt-4o":{{"limit":{{"context":{tokens}}}}}}}}},
                "mine":{{"models":{{"gpt-new":{{"limit":{{"context":{tokens}}}}}}}}}}}"#
        );
        parse_table(text.as_bytes()).unwrap()
    };
    let context =
        |list: &WindowTable, model: &str| look_up_window_by_name(list, model).map(|one| one.tokens);
    assert_eq!(context(&list(128_000), "gpt-4o"), Some(128_000));
    assert_eq!(context(&list(222_222), "gpt-4o"), None);
    assert_eq!(context(&list(222_222), "gpt-new"), Some(222_222));
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
        ("openai", None, "openai"),
        ("kimi", None, "moonshotai"),
        ("mine", Some("https://api.openai.com/v1"), "openai"),
        ("openai", Some("https://openrouter.ai/api/v1"), "openrouter"),
        ("x", Some("https://eu.openai.azure.com/openai/v1"), "azure"),
        ("openai", Some("https://gateway.example/v1"), "openai"),
        ("mine", Some("http://127.0.0.1:8080/v1"), "mine"),
        ("mine", Some("https://api.openai.com.example/v1"), "mine"),
        ("mine", Some("https://api.nobody.example/v1"), "mine"),
        ("mine", Some("https://openai.example/v1"), "mine"),
        ("mine", Some("http://api.llama.lan:8080/v1"), "mine"),
        ("Mine", Some("not a url"), "mine"),
        ("ollama", Some("http://127.0.0.1:11434/v1"), "ollama"),
        ("simulated", None, "simulated"),
        ("", None, ""),
    ] {
        let found = find_provider_name(name, base_url);
        assert_eq!(found, provider, "{name} {base_url:?}");
    }
    for unknown in ["mine", "ollama", "simulated", ""] {
        assert!(!built_in_table().has_provider(unknown), "{unknown}");
    }
}

proptest! {
    #[test]
    fn any_name_is_looked_up_without_a_panic(provider in ".*", model in ".*", url in ".*") {
        let _ = lookup(&provider, &model);
        let _ = lookup("openai", &model);
        let _ = look_up_window_by_name(built_in_table(), &model);
        let _ = find_provider_name(&provider, Some(&url));
    }

    #[test]
    fn every_release_finds_its_model_or_a_longer_name(
        n in 0usize..1_000, boundary in "[-:@_]", rest in "latest|preview|2031-01-01|20310101|009",
    ) {
        let (provider, model) = rows()[n];
        let name = format!("{model}{boundary}{rest}");
        prop_assert!(lookup(provider, &name).is_some());
        prop_assert_eq!(lookup(provider, model), exact(provider, model));
    }

    #[test]
    fn another_size_never_takes_the_window_of_the_model(
        n in 0usize..1_000, boundary in "[-:@_]",
        size in "32k|1m|[1-9][0-9]?b|mini|nano|lite|small|large|flash|pro|max|turbo|high|vision",
        release in "|-latest|-2024-12-17",
    ) {
        let (provider, model) = rows()[n];
        let sized = format!("{model}{boundary}{size}");
        let own = exact(provider, &sized).or(exact(provider, &format!("{sized}{release}")));
        prop_assert_eq!(lookup(provider, &format!("{sized}{release}")), own);
    }
}

/// What each rule says of a model that the catalogue does not know: each model of these makers in turn is taken out of its
/// maker's list. The last rule is the window that is assumed. `--nocapture` prints how many are right, too small and too large.
#[test]
fn most_windows_that_are_found_without_the_models_own_row_are_right() {
    const ASSUMED: u32 = 96_000;
    let makers = [
        "openai",
        "anthropic",
        "google",
        "xai",
        "mistral",
        "deepseek",
        "moonshotai",
        "zai",
        "alibaba",
        "cohere",
        "minimax",
    ];
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for maker in makers {
        let rows: Vec<&str> = built_in_table().list_models(maker).collect();
        for &model in &rows {
            let mut table = WindowTable::default();
            for &other in rows.iter().filter(|other| **other != model) {
                table.add_row(maker, other, exact(maker, other).unwrap().tokens, None);
            }
            table.index_families();
            let base = || super::look_up_window(&table, maker, model);
            let prefix = || look_up_window_by_prefix(&table, Some(maker), model);
            let family = || look_up_family_floor(&table, maker, model);
            let found = [
                ("1 release of a known name", base()),
                ("2 prefix", prefix()),
                ("3 family", family()),
            ];
            let first = found
                .into_iter()
                .find_map(|(rule, it)| Some((rule, it?.tokens)));
            let (rule, said) = first.unwrap_or(("4 assumed", ASSUMED));
            let truth = exact(maker, model).unwrap().tokens;
            let at = match said.cmp(&truth) {
                Ordering::Equal => 0,
                Ordering::Less => 1,
                Ordering::Greater => 2,
            };
            counts.entry(rule).or_default()[at] += 1;
        }
    }
    println!("rule: right, too small, too large\n{counts:#?}");
    let found = counts.iter().filter(|(rule, _)| !rule.starts_with('4'));
    let [right, small, large] = found.fold([0; 3], |sum, (_, counts)| {
        [0, 1, 2].map(|at| sum[at] + counts[at])
    });
    let all = right + small + large;
    assert!(
        10 * right >= 7 * all && 6 * large <= all,
        "{right} of {all}, {large} too large"
    );
}
