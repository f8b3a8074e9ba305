use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use proptest::prelude::*;

use super::{ASSUMED_WINDOW, ModelNameError, Registry, Target, WindowSource};
use crate::{
    config::{Auth, CacheMarkers, Config, Deployment, ModelConfig, ProviderConfig},
    guard::profile,
};

pub(super) fn provider(base_url: &str, models: &[&str]) -> ProviderConfig {
    ProviderConfig {
        base_url: (!base_url.is_empty()).then(|| base_url.to_owned()),
        auth: Auth::None,
        formats: crate::conversation::FORMATS.to_vec(),
        cache_markers: CacheMarkers::Off,
        key_header: None,
        headers: http::HeaderMap::new(),
        query: None,
        profile: profile::find_profile("openai").unwrap(),
        models: models.iter().map(|&model| model.to_owned()).collect(),
        connect_timeout: Duration::from_secs(1),
        first_byte_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
        ask_models: Some(false),
        breaker_failures: 5,
        breaker_open: Duration::from_secs(30),
    }
}

fn config(default: Option<&str>) -> Config {
    let mut config = Config::default();
    let providers = [
        (
            "openai",
            provider("https://api.openai.com/v1", &["gpt-*", "shared"]),
        ),
        (
            "local",
            provider("http://127.0.0.1:9/v1", &["gpt-oss*", "shared"]),
        ),
    ];
    for (name, provider) in providers {
        config.providers.insert(name.to_owned(), provider);
    }
    config.default_provider = default.map(str::to_owned);
    configure(&mut config, "org/told", |settings| {
        settings.provider = Some("local".to_owned());
        settings.context_length = Some(4_096);
    });
    config
}

fn configure(config: &mut Config, name: &str, set: impl FnOnce(&mut ModelConfig)) {
    set(config.models.entry(name.to_owned()).or_default());
}

fn alias(config: &mut Config, name: &str, to: &str) {
    config.aliases.insert(name.to_owned(), to.to_owned());
}

fn deployments(of: &[(&str, u32)]) -> Vec<Deployment> {
    let made = of.iter().map(|(model, weight)| Deployment {
        model: (*model).to_owned(),
        weight: *weight,
    });
    made.collect()
}

fn registry(default: Option<&str>) -> Registry {
    Registry::new(&config(default)).unwrap()
}

/// The candidates for a model, in order.
fn order(registry: &Registry, model: &str, chosen: Option<&str>, seed: u64) -> Vec<String> {
    let choice = registry.choose_candidates(model, chosen).unwrap();
    choice.order_by_seed(seed).iter().map(Target::id).collect()
}

#[test]
fn a_model_finds_its_provider() {
    let check = |default: Option<&str>, model: &str, chosen: Option<&str>, expected: &str| {
        let found = registry(default).resolve_target(model, chosen);
        let found = found.map_or_else(
            |unknown| unknown.to_string(),
            |target| format!("{} {}", target.provider.name, target.model),
        );
        assert!(found.starts_with(expected), "{model} {chosen:?}: {found}");
    };
    check(None, "openai/gpt-4o", None, "openai gpt-4o");
    check(None, "local/org/m", None, "local org/m");
    check(None, "org/told", None, "local org/told");
    check(None, "gpt-4o", None, "openai gpt-4o");
    check(None, "gpt-oss-20b", None, "local gpt-oss-20b");
    check(
        None,
        "shared",
        None,
        "The model `shared` is served by local, openai",
    );
    check(None, "org/m", None, "The model `org/m` does not exist");
    check(Some("openai"), "org/m", None, "openai org/m");
    check(Some("openai"), "", None, "openai ");
    check(None, "gpt-4o", Some("local"), "local gpt-4o");
    check(None, "local/m", Some("local"), "local m");
    check(None, "openai/m", Some("local"), "local openai/m");
    check(None, "m", Some("nobody"), "There is no provider `nobody`");
    check(None, "simulated/plimsoll-8k", None, "simulated plimsoll-8k");
}

#[test]
fn a_window_comes_from_settings_then_catalogue_then_name() {
    let registry = registry(None);
    let window = |model: &str| {
        let window = registry.resolve_target(model, None).unwrap().window;
        (window.tokens, window.source)
    };
    assert_eq!(window("org/told"), (4_096, WindowSource::Config));
    assert_eq!(window("openai/gpt-4o"), (128_000, WindowSource::Catalogue));
    assert_eq!(
        window("simulated/plimsoll-8k"),
        (8_192, WindowSource::Catalogue)
    );
    assert_eq!(
        window("local/gpt-4o"),
        (128_000, WindowSource::CatalogueByName)
    );
    assert_eq!(
        window("local/gpt-5"),
        (ASSUMED_WINDOW, WindowSource::Assumed)
    );
    assert_eq!(
        window("local/mine"),
        (ASSUMED_WINDOW, WindowSource::Assumed)
    );
    assert_eq!(
        window("simulated/gpt-4o"),
        (ASSUMED_WINDOW, WindowSource::Assumed)
    );
}

#[test]
fn a_request_without_a_model_goes_to_the_default_provider() {
    assert!(matches!(
        registry(None).find_default_provider(),
        Err(ModelNameError::Model { .. })
    ));
    assert_eq!(
        &*registry(Some("local"))
            .find_default_provider()
            .unwrap()
            .name,
        "local"
    );
}

#[test]
fn an_alias_stands_for_a_model() {
    let mut config = config(None);
    for (name, to) in [
        ("fast", "openai/gpt-4o-mini"),
        ("quick", "fast"),
        ("router-*", "openai/*"),
        ("router-local-*", "local/*"),
        ("router-fixed", "local/fixed"),
        ("any-*", "local/one"),
        ("openai/old", "openai/gpt-4o"),
    ] {
        alias(&mut config, name, to);
    }
    let registry = Registry::new(&config).unwrap();
    let check = |model: &str, chosen: Option<&str>, expected: &str, configured: bool| {
        assert_eq!(order(&registry, model, chosen, 7), [expected], "{model}");
        let choice = registry.choose_candidates(model, chosen).unwrap();
        assert_eq!(choice.asked_is_configured, configured, "{model}");
        assert_eq!(
            registry.resolve_target(model, chosen).unwrap().id(),
            expected
        );
    };
    check("fast", None, "openai/gpt-4o-mini", true);
    check("quick", None, "openai/gpt-4o-mini", true);
    check("router-gpt-4.1", None, "openai/gpt-4.1", true);
    check("router-local-x/y", None, "local/x/y", true);
    check("router-fixed", None, "local/fixed", true);
    check("router-", None, "openai/", true);
    check("any-thing", None, "local/one", true);
    check("openai/old", None, "openai/gpt-4o", true);
    check("openai/gpt-4o-mini", None, "openai/gpt-4o-mini", false);
    // A provider that was named may have a model of that name itself.
    check("fast", Some("openai"), "openai/gpt-4o-mini", true);
    check("fast", Some("local"), "local/fast", false);
    check("router-*", None, "openai/*", true);
}

#[test]
fn an_alias_for_every_name_is_followed_once() {
    let mut config = config(Some("openai"));
    alias(&mut config, "*", "local/one");
    let registry = Registry::new(&config).unwrap();
    assert_eq!(order(&registry, "gpt-4o", None, 0), ["local/one"]);
    assert_eq!(order(&registry, "local/one", None, 0), ["local/one"]);
    // The alias does not match a missing model.
    assert_eq!(registry.resolve_target("", None).unwrap().id(), "openai/");
}

#[test]
fn circular_aliases_are_bounded() {
    let mut config = config(Some("openai"));
    alias(&mut config, "a", "b");
    alias(&mut config, "b", "a");
    alias(&mut config, "grow*", "growing*");
    let registry = Registry::new(&config).unwrap();
    assert!(registry.resolve_target("a", None).is_ok());
    assert!(registry.resolve_target("grow", None).is_ok());
}

#[test]
fn settings_are_found_by_name_and_then_by_pattern() {
    let mut config = config(None);
    for (name, tokens) in [
        ("openai/gpt-*", 10_000),
        ("openai/gpt-4*", 20_000),
        ("openai/gpt-4o", 30_000),
        ("gpt-5", 40_000),
        ("*", 5_000),
    ] {
        configure(&mut config, name, |settings| {
            settings.context_length = Some(tokens)
        });
    }
    configure(&mut config, "mistral-*", |settings| {
        settings.provider = Some("local".to_owned());
        settings.context_length = Some(50_000);
    });
    let registry = Registry::new(&config).unwrap();
    let check = |model: &str, id: &str, tokens: u32| {
        let target = registry.resolve_target(model, None).unwrap();
        assert_eq!((target.id(), target.window.tokens), (id.to_owned(), tokens));
        assert_eq!(target.window.source, WindowSource::Config);
    };
    check("openai/gpt-3", "openai/gpt-3", 10_000);
    check("gpt-4", "openai/gpt-4", 20_000);
    check("gpt-4o", "openai/gpt-4o", 30_000);
    check("openai/gpt-4o-mini", "openai/gpt-4o-mini", 20_000);
    check("gpt-5", "openai/gpt-5", 40_000);
    check("openai/gpt-5", "openai/gpt-5", 40_000);
    check("local/llama", "local/llama", 5_000);
    check("mistral-small", "local/mistral-small", 50_000);
    check("org/told", "local/org/told", 4_096);
    // Settings of another provider's model of that name do not apply.
    check("openai/mistral-small", "openai/mistral-small", 5_000);
    check("openai/org/told", "openai/org/told", 5_000);
}

#[test]
fn deployments_come_before_fallbacks_and_none_twice() {
    let mut config = config(None);
    alias(&mut config, "fast", "openai/gpt-4o-mini");
    configure(&mut config, "balanced", |settings| {
        settings.deployments = deployments(&[("openai/gpt-4o", 1), ("local/a", 1), ("gpt-4o", 5)]);
        settings.fallback = ["fast", "spread", "local/a", "nobody/here", "local/last"]
            .map(str::to_owned)
            .into();
        settings.critical_max_tokens = Some(7);
    });
    configure(&mut config, "spread", |settings| {
        settings.deployments = deployments(&[("local/b", 1), ("local/c", 1), ("local/a", 1)]);
        settings.fallback = vec!["local/never".to_owned()];
    });
    configure(&mut config, "local/a", |settings| {
        settings.context_length = Some(9_000);
        settings.fallback = vec!["local/never".to_owned()];
    });
    let registry = Registry::new(&config).unwrap();
    for seed in 0..100 {
        let order = order(&registry, "balanced", None, seed);
        let mut parts = [&order[..2], &order[2..3], &order[3..5], &order[5..]].map(<[_]>::to_vec);
        parts.iter_mut().for_each(|part| part.sort());
        let [direct, fast, spread, last] = parts;
        assert_eq!(direct, ["local/a", "openai/gpt-4o"]);
        assert_eq!(fast, ["openai/gpt-4o-mini"]);
        assert_eq!(spread, ["local/b", "local/c"]);
        assert_eq!(last, ["local/last"]);
    }
    let choice = registry.choose_candidates("balanced", None).unwrap();
    assert!(choice.asked_is_configured);
    let first = &choice.targets().next().unwrap().settings;
    assert_eq!(first.critical_max_tokens, Some(7));
    let targets: HashMap<_, _> = choice
        .deployments()
        .iter()
        .map(|(t, _)| (t.id(), t))
        .collect();
    assert_eq!(targets["local/a"].window.tokens, 9_000);
    assert_eq!(targets["openai/gpt-4o"].window.tokens, 128_000);
    // Only fallbacks at the chosen provider.
    let chosen = order(&registry, "balanced", Some("openai"), 1);
    assert_eq!(chosen, ["openai/gpt-4o", "openai/gpt-4o-mini"]);
    let chosen = order(&registry, "balanced", Some("simulated"), 1);
    assert_eq!(chosen, ["simulated/balanced"]);
    let choice = registry
        .choose_candidates("balanced", Some("simulated"))
        .unwrap();
    assert!(!choice.asked_is_configured);
}

#[test]
fn the_heaviest_deployment_stands_for_a_model() {
    let mut config = config(None);
    configure(&mut config, "m", |settings| {
        settings.deployments = deployments(&[("local/a", 1), ("local/b", 3), ("local/c", 3)]);
    });
    let registry = Registry::new(&config).unwrap();
    assert_eq!(registry.resolve_target("m", None).unwrap().id(), "local/b");
}

#[test]
fn a_deployment_is_also_a_model_by_its_full_name() {
    let mut config = config(None);
    configure(&mut config, "gpt-4o", |settings| {
        settings.deployments = deployments(&[("openai/gpt-4o", 1), ("local/gpt-4o", 1)]);
        settings.fallback = vec!["local/last".to_owned()];
    });
    let registry = Registry::new(&config).unwrap();
    assert_eq!(order(&registry, "gpt-4o", None, 0).len(), 3);
    assert_eq!(
        order(&registry, "openai/gpt-4o", None, 0),
        ["openai/gpt-4o"]
    );
}

#[test]
fn a_larger_model_has_a_larger_window() {
    let mut config = config(None);
    let mut larger = |name: &str, tokens: u32, to: &str| {
        configure(&mut config, name, |settings| {
            settings.context_length = Some(tokens);
            settings.larger = Some(to.to_owned());
        });
    };
    larger("local/small", 8_000, "openai/gpt-4o");
    larger("local/big", 500_000, "openai/gpt-4o");
    larger("local/lost", 8_000, "nobody/x");
    let mut registry = Registry::new(&config).unwrap();
    let found = |registry: &Registry, model: &str, chosen: Option<&str>| {
        let target = registry.resolve_target(model, chosen).unwrap();
        registry.find_larger(&target).map(|larger| larger.id())
    };
    let gpt = Some("openai/gpt-4o".to_owned());
    assert_eq!(found(&registry, "local/small", None), gpt);
    assert_eq!(found(&registry, "local/big", None), None);
    assert_eq!(found(&registry, "local/lost", None), None);
    assert_eq!(found(&registry, "openai/gpt-4o", None), None);
    assert_eq!(found(&registry, "small", Some("local")), None);
    // A client's credentials for one provider are not shown to another.
    for provider in config.providers.values_mut() {
        provider.auth = Auth::Client;
    }
    registry = Registry::new(&config).unwrap();
    assert_eq!(found(&registry, "local/small", None), None);
}

#[test]
fn credentials_of_a_client_are_for_one_provider_only() {
    let mut config = config(None);
    for provider in config.providers.values_mut() {
        provider.auth = Auth::Client;
    }
    let twin = config.providers["openai"].clone();
    config.providers.insert("twin".to_owned(), twin);
    config
        .providers
        .insert("free".to_owned(), provider("http://127.0.0.1:7/v1", &[]));
    configure(&mut config, "openai/m", |settings| {
        settings.fallback = ["local/m", "twin/m", "free/m"].map(str::to_owned).into();
    });
    let registry = Registry::new(&config).unwrap();
    let found = order(&registry, "openai/m", None, 0);
    assert_eq!(found, ["openai/m", "twin/m", "free/m"]);
}

#[test]
fn weights_are_shares_of_the_seeds() {
    let mut config = config(None);
    configure(&mut config, "m", |settings| {
        settings.deployments = deployments(&[("local/a", 5), ("local/b", 3), ("local/c", 2)]);
    });
    let registry = Registry::new(&config).unwrap();
    let mut firsts: BTreeMap<String, u32> = BTreeMap::new();
    let mut seconds: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..10_000 {
        let order = order(&registry, "m", None, seed);
        *firsts.entry(order[0].clone()).or_default() += 1;
        if order[0] == "local/a" {
            *seconds.entry(order[1].clone()).or_default() += 1;
        }
    }
    for (id, share) in [("local/a", 5_000), ("local/b", 3_000), ("local/c", 2_000)] {
        assert!(firsts[id].abs_diff(share) < 250, "{firsts:?}");
    }
    // Without the first, the others have its seeds by their own weights.
    let of = firsts["local/a"];
    assert!(seconds["local/b"].abs_diff(of * 3 / 5) < 250, "{seconds:?}");
}

proptest! {
    #[test]
    fn without_a_deployment_only_its_own_seeds_move(
        seed: u64,
        weights in proptest::collection::vec(1u32..=1_000, 2..6),
        gone: prop::sample::Index,
    ) {
        let names: Vec<_> = (0..weights.len()).map(|n| format!("local/{n}")).collect();
        let all: Vec<_> = names.iter().map(String::as_str).zip(weights).collect();
        let gone = gone.index(all.len());
        let mut fewer = all.clone();
        fewer.remove(gone);
        let mut config = config(None);
        configure(&mut config, "all", |settings| settings.deployments = deployments(&all));
        configure(&mut config, "fewer", |settings| settings.deployments = deployments(&fewer));
        let registry = Registry::new(&config).unwrap();
        let mut before = order(&registry, "all", None, seed);
        prop_assert_eq!(&before, &order(&registry, "all", None, seed));
        before.retain(|id| *id != names[gone]);
        prop_assert_eq!(before, order(&registry, "fewer", None, seed));
    }
}

#[test]
fn every_name_that_is_spelt_out_is_offered() {
    let mut config = config(None);
    alias(&mut config, "fast", "openai/gpt-4o-mini");
    alias(&mut config, "router-*", "openai/*");
    configure(&mut config, "balanced", |settings| {
        settings.deployments = deployments(&[("openai/gpt-4o", 1), ("local/a", 1)]);
        settings.larger = Some("openai/gpt-4.1".to_owned());
    });
    configure(&mut config, "local/a", |settings| {
        settings.context_length = Some(9_000)
    });
    let registry = Registry::new(&config).unwrap();
    let offered = registry.list_offered_models();
    let ids: Vec<_> = offered.iter().map(|one| one.id.as_str()).collect();
    let expected = [
        "balanced",
        "fast",
        "local/a",
        "local/org/told",
        "local/shared",
        "openai/gpt-4.1",
        "openai/gpt-4o",
        "openai/gpt-4o-mini",
        "openai/shared",
    ];
    let (simulated, others): (Vec<&str>, Vec<&str>) =
        ids.iter().partition(|id| id.starts_with("simulated/"));
    assert_eq!(others, expected);
    assert!(simulated.len() >= 3, "{simulated:?}");
    // The deployment with the smallest window.
    assert_eq!(offered[0].target.id(), "local/a");
    assert!(offered[0].is_configured && offered[1].is_configured && !offered[2].is_configured);
}

#[test]
fn an_unknown_model_is_not_offered() {
    let mut config = config(Some("local"));
    alias(&mut config, "router-*", "local/*");
    let registry = Registry::new(&config).unwrap();
    let found = |id: &str| registry.find_offered(id).map(|one| one.target.id());
    assert_eq!(found("openai/gpt-4o").as_deref(), Some("openai/gpt-4o"));
    assert_eq!(found("gpt-4o").as_deref(), Some("openai/gpt-4o"));
    assert_eq!(found("local/shared").as_deref(), Some("local/shared"));
    assert_eq!(found("router-x").as_deref(), Some("local/x"));
    assert_eq!(found("never-heard-of"), None);
    assert_eq!(found("nobody/x"), None);
    assert_eq!(found(""), None);
}
