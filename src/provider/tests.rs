use std::{collections::BTreeMap, time::Duration};

use super::{ASSUMED_WINDOW, Registry, Source, Unknown};
use crate::{
    config::{Auth, ModelConfig, ProviderConfig},
    guard::profile,
};

pub(super) fn provider(base_url: &str, models: &[&str]) -> ProviderConfig {
    ProviderConfig {
        base_url: (!base_url.is_empty()).then(|| base_url.to_owned()),
        auth: Auth::None,
        key_header: None,
        headers: http::HeaderMap::new(),
        query: None,
        profile: profile::named("openai").unwrap(),
        models: models.iter().map(|&model| model.to_owned()).collect(),
        connect_timeout: Duration::from_secs(1),
        first_byte_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
        ask_models: Some(false),
        breaker_failures: 5,
        breaker_open: Duration::from_secs(30),
    }
}

fn registry(default: Option<&str>) -> Registry {
    let providers = BTreeMap::from([
        ("simulated".to_owned(), provider("", &[])),
        (
            "openai".to_owned(),
            provider("https://api.openai.com/v1", &["gpt-*", "shared"]),
        ),
        (
            "local".to_owned(),
            provider("http://127.0.0.1:9/v1", &["gpt-oss*", "shared"]),
        ),
    ]);
    let told = ModelConfig {
        provider: Some("local".to_owned()),
        context_length: Some(4_096),
        ..ModelConfig::default()
    };
    let models = BTreeMap::from([("org/told".to_owned(), told)]);
    let learnt = super::learnt::Learnt::new(Duration::from_secs(60));
    Registry::of(&providers, models, default.map(str::to_owned), learnt).unwrap()
}

#[test]
fn a_model_finds_its_provider() {
    let check = |default: Option<&str>, model: &str, chosen: Option<&str>, expected: &str| {
        let found = registry(default).resolve(model, chosen);
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
fn a_window_comes_from_config_then_catalogue_then_nowhere() {
    let registry = registry(None);
    let window = |model: &str| {
        let window = registry.resolve(model, None).unwrap().window;
        (window.tokens, window.source)
    };
    assert_eq!(window("org/told"), (4_096, Source::Config));
    assert_eq!(window("openai/gpt-4o"), (128_000, Source::Catalogue));
    assert_eq!(window("simulated/plimsoll-8k"), (8_192, Source::Catalogue));
    assert_eq!(window("local/gpt-4o"), (ASSUMED_WINDOW, Source::Assumed));
}

#[test]
fn who_gets_what_names_no_model() {
    assert!(matches!(
        registry(None).fallback(),
        Err(Unknown::Model { .. })
    ));
    assert_eq!(&*registry(Some("local")).fallback().unwrap().name, "local");
}
