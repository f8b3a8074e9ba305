//! Deployments and fallbacks of a model, their order and their shares.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

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
