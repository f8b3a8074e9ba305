//! Settings that are allowed and yet do not do what they seem to say.

use http::Uri;

use super::{
    Auth, Config,
    problem::{Problem, dotted},
};
use crate::{
    health::limits::{Limits, limits},
    provider::{Registry, Source, Window},
};

/// Everything doubtful in a configuration that has passed its checks; `registry` is made of it.
pub fn warnings(config: &Config, registry: &Registry) -> Vec<Problem> {
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
        model(config, registry, name, &mut found);
    }
    recovery(config, &mut found);
    for (name, client) in &config.clients {
        if client.models.is_empty() {
            let message = "is empty, so this client may use no model; write [\"*\"] for all";
            found.push(doubt(&["clients", name, "models"], message.to_owned()));
        }
    }
    found
}

fn recovery(config: &Config, found: &mut Vec<Problem>) {
    if config.recovery.enabled {
        if !config.guard.enabled {
            let message = "recovery cannot act without the guard; set guard.enabled = true, or \
                           recovery.enabled = false";
            found.push(doubt(&["recovery", "enabled"], message.to_owned()));
        }
        return;
    }
    for (name, model) in &config.models {
        if model.recovery == Some(true) {
            let message = "has no effect, since recovery.enabled is false";
            found.push(doubt(&["models", name, "recovery"], message.to_owned()));
        }
    }
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

fn model(config: &Config, registry: &Registry, name: &str, found: &mut Vec<Problem>) {
    let model = &config.models[name];
    let path = |key| ["models", name, key];
    // Its windows are those of its places.
    if !model.deployments.is_empty() {
        return;
    }
    let Ok(target) = registry.resolve(name, model.provider.as_deref()) else {
        let message = "no provider serves it; name one here, or set default_provider";
        found.push(doubt(&path("provider"), message.to_owned()));
        return;
    };
    let Window {
        tokens: window,
        input,
        source,
    } = target.window;
    if let Some(input) = model.input_length
        && input > window
    {
        let message = format!("{input} is above the window of {window} and has no effect");
        found.push(doubt(&path("input_length"), message));
    }
    if source == Source::Assumed {
        let message = format!(
            "its window is in no catalogue, so {window} tokens are assumed and its health never \
             becomes critical; set context_length"
        );
        found.push(doubt(&path("context_length"), message));
        return;
    }
    let inside = target.provider.config.profile.answer_inside_window;
    let Limits {
        optimal_max_tokens: optimal,
        critical_max_tokens: critical,
    } = limits(window, input, inside, &config.guard, model, None);
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
