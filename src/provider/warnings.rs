//! Warnings about settings that are valid and yet do not do what they seem to say.

use std::net::IpAddr;

use http::Uri;

use super::{ASSUMED_WINDOW, Registry, Target, WindowSource, registry::try_lend_credentials};
use crate::config::{
    Auth, ClientCompaction, Config, ModelConfig, Problem, ProviderConfig, find_nearest,
    names::{ModelNameError, ModelNames},
    profile::find_profile,
};

/// Models that are named in one line.
const SHOWN_NAMES: usize = 20;

/// Profiles whose providers have a path in their base URLs. A base URL without one is a mistake.
const PATH_NEEDED: [&str; 6] = [
    "anthropic",
    "lmstudio",
    "mistral",
    "ollama",
    "openai",
    "xai",
];

/// All warnings about a configuration that has passed its checks; `registry` is made from it.
pub fn collect_warnings(config: &Config, registry: &Registry) -> Vec<Problem> {
    let mut found = Vec::new();
    for (name, provider) in &config.providers {
        let base_url = provider.base_url.as_deref().unwrap_or_default();
        let mut warn = |message: &str| {
            found.push(Problem::for_key(&["providers", name, "base_url"], message));
        };
        if !matches!(provider.auth, Auth::None) && is_unencrypted(base_url) {
            warn("credentials go over the network unencrypted; use https");
        }
        let profile = provider.profile.name;
        let is_bare = base_url.parse::<Uri>().is_ok_and(|uri| uri.path() == "/");
        if is_bare && PATH_NEEDED.contains(&profile) {
            warn(&format!(
                "has no path, so that requests go to {base_url}/chat/completions and the like; providers of the profile \
                 {profile} answer at {base_url}/v1"
            ));
        }
        if base_url.contains("/v1/v1") {
            warn(
                "has /v1 twice, so that requests go to paths that the provider does not have; write it once",
            );
        }
        if base_url.contains("{model}") {
            warn(
                "contains the model, so that requests without a model cannot go there, and the provider is not asked for its list of models",
            );
        }
    }
    for (name, model) in &config.models {
        if config.aliases.contains_key(name) {
            let message = "has no effect, since an alias has that name";
            found.push(Problem::for_key(&["models", name], message));
        }
        warn_about_model(config, registry, name, &mut found);
        warn_about_windows(registry, name, model, &mut found);
        warn_about_credentials(registry, name, model, &mut found);
    }
    warn_about_shared_models(config, &mut found);
    warn_about_recovery(config, &mut found);
    warn_about_compaction(config, registry, &mut found);
    for (name, client) in &config.clients {
        if client.models.is_empty() {
            let message = "is empty, so this client may use no model; write [\"*\"] for all";
            found.push(Problem::for_key(&["clients", name, "models"], message));
        }
        if client.paths.is_empty() && !client.metrics {
            let message =
                "is empty, so this key opens nothing; with metrics = true it reads /metrics";
            found.push(Problem::for_key(&["clients", name, "paths"], message));
        }
    }
    found
}

/// Warns about models that several providers list, so that requests for their bare names are refused.
fn warn_about_shared_models(config: &Config, found: &mut Vec<Problem>) {
    let names = ModelNames::new(config);
    for (provider, settings) in &config.providers {
        for listed in &settings.models {
            let name = listed.trim_end_matches('*');
            let is_set = config
                .models
                .get(name)
                .is_some_and(|model| model.provider.is_some());
            let Err(ModelNameError::Ambiguous { candidates, .. }) = names.match_provider(name)
            else {
                continue;
            };
            // The first of them says it for all.
            if !is_set && candidates.split(", ").next() == Some(provider) {
                let message = format!(
                    "{listed:?} is listed by {candidates}, so that a request for it is refused unless it says \
                     PROVIDER/{listed}; set default_provider to one of them, or leave the name out of the others"
                );
                found.push(Problem::for_key(
                    &["providers", provider, "models"],
                    message,
                ));
            }
        }
    }
}

fn warn_about_recovery(config: &Config, found: &mut Vec<Problem>) {
    if config.recovery.enabled {
        if !config.guard.enabled {
            let message = "recovery cannot act without the guard; set guard.enabled = true, or \
                           recovery.enabled = false";
            found.push(Problem::for_key(&["recovery", "enabled"], message));
        }
        return;
    }
    for (name, model) in &config.models {
        if model.recovery == Some(true) {
            let message = "has no effect, since recovery.enabled is false";
            found.push(Problem::for_key(&["models", name, "recovery"], message));
        }
    }
}

fn warn_about_compaction(config: &Config, registry: &Registry, found: &mut Vec<Problem>) {
    if config.compaction.auto && !config.guard.enabled {
        let message = "nothing is summarised without the guard; set guard.enabled = true, or \
                       compaction.auto = false";
        found.push(Problem::for_key(&["compaction", "auto"], message));
    }
    if config.responses.compaction == ClientCompaction::Answer && !config.guard.enabled {
        let message = "the proxy compacts nothing without the guard; set guard.enabled = true, or \
                       responses.compaction = \"forward\"";
        found.push(Problem::for_key(&["responses", "compaction"], message));
    }
    let model = config.compaction.model.as_deref();
    let Some(target) = model.and_then(|model| registry.resolve_target(model, None).ok()) else {
        return;
    };
    let mut lent = None;
    try_lend_credentials(&mut lent, &target.provider);
    // The built-in provider needs no credentials, and gives no warning.
    let is_other = |provider: &ProviderConfig| {
        let is_lent = matches!(provider.auth, Auth::Client) && provider.base_url == lent;
        provider.base_url.is_some() && !is_lent
    };
    if lent.is_some() && config.providers.values().any(is_other) {
        let message = format!(
            "{} is asked only for conversations with its own provider, since the client's own \
             credentials go to one provider only; others are summarised by their own model",
            target.id()
        );
        found.push(Problem::for_key(&["compaction", "model"], message));
    }
}

/// Plain HTTP to another machine.
fn is_unencrypted(base_url: &str) -> bool {
    let Ok(uri) = base_url.parse::<Uri>() else {
        return false;
    };
    uri.scheme_str() == Some("http") && !is_on_this_machine(&uri)
}

/// Whether an address is `localhost` or a loopback address.
pub(super) fn is_on_this_machine(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or("").trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn warn_about_model(config: &Config, registry: &Registry, name: &str, found: &mut Vec<Problem>) {
    let model = &config.models[name];
    // Its windows are those of its deployments, or of the names that match the pattern.
    if !model.deployments.is_empty() || name.ends_with('*') {
        return;
    }
    let mut warn = |key, message| found.push(Problem::for_key(&["models", name, key], message));
    let Ok(target) = registry.resolve_target(name, model.provider.as_deref()) else {
        let message = "no provider serves it; name one here, or set default_provider";
        return warn("provider", message.to_owned());
    };
    if let Some((left, _)) = name.split_once('/')
        && model.provider.is_none()
        && *target.model == *name
        && !matches!(ModelNames::new(config).match_provider(name), Ok(Some(_)))
        && target.provider.config.profile.name != "openrouter"
    {
        let known: Vec<&str> = config.providers.keys().map(String::as_str).collect();
        let near = find_nearest(left, &known).map(|near| format!("; did you mean {near:?}?"));
        let is_known = find_profile(left).is_some();
        if let Some(near) = near.or_else(|| is_known.then(|| ".".to_owned())) {
            let asked = &target.provider.name;
            let message = format!(
                "there is no provider {left:?}{near} As it stands, {asked} is asked for {name:?}; if that is meant, write \
                 provider = {asked:?} here"
            );
            warn("provider", message);
        }
    }
    let window = target.window.tokens;
    if let Some(input) = model.input_length
        && input > window
    {
        let message = format!("{input} is above the window of {window} and has no effect");
        warn("input_length", message);
    }
    let limits = target.compute_limits(&config.guard, None);
    let optimal = limits.optimal_max_tokens;
    let Some(critical) = limits.critical_max_tokens else {
        if model.critical_max_tokens.is_some() {
            let message = "has no effect, since the window is unknown; set context_length too";
            warn("critical_max_tokens", message.to_owned());
        }
        return;
    };
    if critical > window {
        let message = format!("{critical} is above the window of {window}; critical cannot occur");
        warn("critical_max_tokens", message);
    }
    let above = match (optimal >= critical, optimal > window) {
        (true, _) => format!("not under critical_max_tokens, {critical}"),
        (false, true) => format!("above the window of {window}"),
        (false, false) => return,
    };
    let message = format!("{optimal} is {above}; caution cannot occur");
    warn("optimal_max_tokens", message);
}

/// Warns about deployments with different windows, and about a `larger` model that is not larger.
fn warn_about_windows(
    registry: &Registry,
    name: &str,
    model: &ModelConfig,
    found: &mut Vec<Problem>,
) {
    let path = |key| ["models", name, key];
    let targets: Vec<Target> = match registry.look_up_candidates(name, model.provider.as_deref()) {
        Ok(choice) if !name.ends_with('*') => {
            let deployments = choice.deployments().iter();
            deployments.map(|(target, _)| target.clone()).collect()
        }
        _ => Vec::new(),
    };
    let windows = targets.iter().map(|target| target.window.tokens);
    if windows.clone().min() != windows.max() {
        let describe = |target: &Target| format!("{} {}", target.id(), target.window.tokens);
        let windows = targets.iter().map(describe).collect::<Vec<_>>().join(", ");
        let message = format!(
            "the deployments have different windows ({windows}), so that how much a session may \
             hold depends on which one serves it"
        );
        found.push(Problem::for_key(&path("deployments"), message));
    }
    let larger = model.larger.as_deref();
    let larger = larger.and_then(|larger| registry.resolve_target(larger, None).ok());
    if let Some(larger) = larger
        && let window = larger.window.tokens
        && let Some(target) = targets.iter().find(|target| target.window.tokens >= window)
    {
        let (larger, id, tokens) = (larger.id(), target.id(), target.window.tokens);
        let message =
            format!("{larger} holds {window} tokens, and {id} holds {tokens}; it is never used");
        found.push(Problem::for_key(&path("larger"), message));
    }
}

/// SECURITY: a client's own credentials are for one provider, so that of several that would get them
/// all but the first are never used.
fn warn_about_credentials(
    registry: &Registry,
    name: &str,
    model: &ModelConfig,
    found: &mut Vec<Problem>,
) {
    let deployments = model.deployments.iter();
    let deployments = deployments.map(|next| ("deployments", &next.model));
    let fallback = model.fallback.iter().map(|name| ("fallback", name));
    let larger = model.larger.iter().map(|name| ("larger", name));
    let mut lent = None;
    if model.deployments.is_empty() {
        // The names that match a pattern are served by the provider of its beginning.
        let start = name.trim_end_matches('*');
        if let Ok(target) = registry.resolve_target(start, model.provider.as_deref()) {
            try_lend_credentials(&mut lent, &target.provider);
        }
    }
    for (key, model) in deployments.chain(fallback).chain(larger) {
        if let Ok(target) = registry.resolve_target(model, None)
            && !try_lend_credentials(&mut lent, &target.provider)
        {
            let id = target.id();
            let message = format!(
                "{id} is never used: the client's own credentials go to one provider only, so name \
                 one with api_key_env here"
            );
            found.push(Problem::for_key(&["models", name, key], message));
        }
    }
}

/// The models of the settings and lists whose windows are unknown, in one line. Apart from
/// [`collect_warnings`], since their providers may still list them: a running proxy logs it at the
/// first request.
pub fn find_unknown_windows(registry: &Registry) -> Option<Problem> {
    let mut offered = registry.list_offered_models();
    offered.retain(|model| {
        !model.is_configured && model.target.window.source == WindowSource::Assumed
    });
    let mut names: Vec<String> = offered.into_iter().map(|model| model.id).collect();
    let more = names.len().saturating_sub(SHOWN_NAMES);
    names.truncate(SHOWN_NAMES);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let message = format!(
        "is not set for {}, and no other source names it: {ASSUMED_WINDOW} tokens are assumed. \
         Nothing is cut by that where the provider refuses what is too long, and health never becomes critical",
        names.join(", ")
    );
    (!names.is_empty()).then(|| Problem::for_key(&["models", "NAME", "context_length"], message))
}
