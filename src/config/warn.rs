//! Settings that are allowed and yet do not do what they seem to say.

use http::Uri;

use super::{
    Auth, Config,
    problem::{Problem, dotted},
};
use crate::{
    health::limits::{Limits, limits},
    provider::catalogue,
};

/// Everything doubtful in a configuration that has passed its checks.
pub(super) fn warnings(config: &Config) -> Vec<Problem> {
    let mut found = Vec::new();
    for (name, provider) in &config.providers {
        if let Some(base_url) = &provider.base_url
            && !matches!(provider.auth, Auth::None)
            && in_the_open(base_url)
        {
            let message = "credentials go over the network unencrypted; use https";
            found.push(doubt(&["providers", name, "base_url"], message.to_owned()));
        }
    }
    for name in config.models.keys() {
        model(config, name, &mut found);
    }
    for (name, client) in &config.clients {
        if client.models.is_empty() {
            let message = "is empty, so this client may use no model; write [\"*\"] for all";
            found.push(doubt(&["clients", name, "models"], message.to_owned()));
        }
    }
    found
}

fn doubt(path: &[&str], message: String) -> Problem {
    Problem {
        origin: None,
        key: dotted(path),
        value: None,
        message,
    }
}

/// Plain HTTP to another machine.
fn in_the_open(base_url: &str) -> bool {
    let Ok(uri) = base_url.parse::<Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or("").trim_matches(['[', ']']);
    let loopback = host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback());
    uri.scheme_str() == Some("http") && !loopback
}

fn model(config: &Config, name: &str, found: &mut Vec<Problem>) {
    let model = &config.models[name];
    let path = |key| ["models", name, key];
    let Some((provider_name, own_name)) = served_by(config, name) else {
        let message = "no provider serves it; name one here, or set default_provider";
        found.push(doubt(&path("provider"), message.to_owned()));
        return;
    };
    let Some(provider) = config.providers.get(provider_name) else {
        return;
    };
    let known = catalogue::provider_of(provider_name, provider.base_url.as_deref())
        .and_then(|known| catalogue::lookup(known, own_name));
    let input = model.input_length.or(known.and_then(|entry| entry.input));
    let window = model.context_length.or(known.map(|entry| entry.context));
    if let (Some(window), Some(input)) = (window, model.input_length)
        && input > window
    {
        let message = format!("{input} is above the window of {window} and has no effect");
        found.push(doubt(&path("input_length"), message));
    }
    let Some(window) = window.or(input) else {
        return;
    };
    let inside = provider.profile.answer_inside_window;
    let Limits {
        optimal_max_tokens: optimal,
        critical_max_tokens: critical,
    } = limits(window, input, inside, &config.guard, model);
    if critical > window {
        let message = format!("{critical} is above the window of {window}; critical cannot occur");
        found.push(doubt(&path("critical_max_tokens"), message));
    }
    if optimal >= critical {
        let message =
            format!("{optimal} is not under critical_max_tokens, {critical}; caution cannot occur");
        found.push(doubt(&path("optimal_max_tokens"), message));
    } else if optimal > window {
        let message = format!("{optimal} is above the window of {window}; caution cannot occur");
        found.push(doubt(&path("optimal_max_tokens"), message));
    }
}

/// The provider of a configured model, and the model's name there.
fn served_by<'a>(config: &'a Config, name: &'a str) -> Option<(&'a str, &'a str)> {
    if let Some(provider) = &config.models[name].provider {
        let own = name.strip_prefix(provider.as_str());
        let own = own.and_then(|rest| rest.strip_prefix('/')).unwrap_or(name);
        return Some((provider, own));
    }
    if let Some((prefix, own)) = name.split_once('/')
        && let Some((provider, _)) = config.providers.get_key_value(prefix)
    {
        return Some((provider, own));
    }
    let claims = |pattern: &String| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    };
    let mut claiming = config
        .providers
        .iter()
        .filter(|(_, provider)| provider.models.iter().any(claims))
        .map(|(provider, _)| provider.as_str());
    match (claiming.next(), claiming.next()) {
        (Some(only), None) => Some((only, name)),
        _ => Some((config.default_provider.as_deref()?, name)),
    }
}
