mod deployments;

use std::time::Duration;

use super::{ASSUMED_WINDOW, ModelNameError, Registry, Target, WindowSource};
use crate::{
    config::{
        Auth, CacheMarkers, Config, Deployment, ModelConfig, ProviderConfig, ProxySetting, Threads,
    },
    guard::profile,
};

pub(super) fn provider(base_url: &str, models: &[&str]) -> ProviderConfig {
    ProviderConfig {
        forwarded_headers: false,
        base_url: (!base_url.is_empty()).then(|| base_url.to_owned()),
        auth: Auth::None,
        formats: crate::conversation::FORMATS.to_vec(),
        cache_markers: CacheMarkers::Off,
        threads: Threads::Pass,
        key_header: None,
        headers: http::HeaderMap::new(),
        query: None,
        profile: profile::find_profile("openai").unwrap(),
        models: models.iter().map(|&model| model.to_owned()).collect(),
        is_known: false,
        proxy: ProxySetting::Environment,
        connect_timeout: Duration::from_secs(1),
        first_byte_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
        ask_models: Some(false),
        listed: true,
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
        Err(ModelNameError::Unnamed { .. })
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
