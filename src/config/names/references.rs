//! Reads aliases, and checks that every model name in aliases, models and `compaction.model` leads to a provider.
//!
//! The names are resolved by the rules that requests follow. One check is stricter: with a default provider every
//! misspelt name leads somewhere, so a name that only falls to the default provider is compared with the names of
//! the providers.

use std::collections::BTreeMap;

use super::{ModelNameError, ModelNames, ServedModel};
use crate::config::{
    Config, ModelConfig,
    loading::{
        problem::find_nearest,
        section::{Section, is_pattern},
        setting::Visibility,
    },
};

pub(crate) fn read_aliases(root: &mut Section) -> BTreeMap<String, String> {
    root.read_entries("aliases", |s, name| {
        let to: String = s.read_option(name, Visibility::Plain)?;
        s.check_pattern(name, name, "a model's name");
        s.check_pattern(name, &to, "a model's name");
        if to.ends_with('*') && !name.ends_with('*') {
            s.refuse_text(name, &to, "must be one model, since the alias has no *");
        }
        Some(to)
    })
}

/// Checks all names of models that stand in the values of settings.
pub(crate) fn check_references(config: &Config, s: &mut Section) {
    let names = ModelNames::new(config);
    for (name, to) in &config.aliases {
        let result = match find_alias_loop(&names, name) {
            Some(path) => Err(format!(
                "is an alias that leads back to itself: {}; write a model's name",
                path.join(" -> ")
            )),
            None => check_name_resolves(&names, to, config),
        };
        note_dangling_name(s, &["aliases", name], to, result);
    }
    for (name, model) in &config.models {
        check_model(name, model, &names, config, s);
    }
    // An empty name was refused when it was read.
    let summary_model = config.compaction.model.as_deref();
    if let Some(wanted) = summary_model.filter(|name| !name.is_empty()) {
        let result = check_name_resolves(&names, wanted, config);
        note_dangling_name(s, &["compaction", "model"], wanted, result);
    }
}

/// Records the error of a name in the value at `path`.
fn note_dangling_name(s: &mut Section, path: &[&str], wanted: &str, result: Result<(), String>) {
    if let Err(problem) = result {
        s.refuse_at(path, Some(format!("{wanted:?}")), problem);
    }
}

fn check_model(
    name: &str,
    model: &ModelConfig,
    names: &ModelNames,
    config: &Config,
    s: &mut Section,
) {
    if !is_pattern(name) {
        let message = "must be a model's name, or its beginning with one * at the end";
        s.refuse_at(&["models", name], None, message);
    }
    let has_star = name.ends_with('*');
    if has_star && !model.deployments.is_empty() {
        let message =
            "belong to one model, and a name with a * matches many; write one model's name";
        s.refuse_at(&["models", name, "deployments"], None, message);
    }
    for deployment in &model.deployments {
        let wanted = &deployment.model;
        let plain = names.resolve_aliases(wanted, None);
        let result = if *plain == *name {
            Err("is the model itself; name provider/model".to_owned())
        } else if names.has_deployments(&plain) {
            Err("has deployments of its own; name those".to_owned())
        } else {
            check_name_resolves(names, wanted, config)
        };
        note_dangling_name(s, &["models", name, "deployments"], wanted, result);
    }
    let served = if has_star {
        Vec::new()
    } else {
        list_served_models(names, name, model.provider.as_deref())
    };
    let fallbacks = model.fallback.iter().map(|other| ("fallback", other));
    let larger = model.larger.iter().map(|other| ("larger", other));
    for (key, wanted) in fallbacks.chain(larger) {
        let plain = names.resolve_aliases(wanted, None);
        let found = list_served_models(names, &plain, None);
        let is_same = !found.is_empty() && found.iter().all(|other| served.contains(other));
        let result = if wanted.is_empty() || wanted.contains('*') {
            Err("must be the name of one model".to_owned())
        } else if *plain == *name || is_same {
            Err("is the model itself; name another".to_owned())
        } else {
            check_name_resolves(names, wanted, config)
        };
        note_dangling_name(s, &["models", name, key], wanted, result);
    }
}

/// Every deployment of a name without aliases; none where no provider serves it.
fn list_served_models(names: &ModelNames, name: &str, provider: Option<&str>) -> Vec<ServedModel> {
    let found = names.resolve_deployments(name, provider);
    let found = found.unwrap_or_default().into_iter();
    found.map(|deployment| deployment.served_model).collect()
}

/// An error says why the name cannot be the value of a setting, and what to write.
fn check_name_resolves(names: &ModelNames, name: &str, config: &Config) -> Result<(), String> {
    let plain = names.resolve_aliases(name, None);
    let known: Vec<_> = config.providers.keys().map(String::as_str).collect();
    match names.resolve_deployments(&plain, None) {
        Ok(_) if names.is_claimed(&plain) => Ok(()),
        Ok(_) => suggest_provider(&plain, &known).map_or(Ok(()), Err),
        Err(ModelNameError::Ambiguous { candidates, .. }) => Err(format!(
            "is served by {candidates}; name one of them: provider/model"
        )),
        Err(_) if known.is_empty() => Err(
            "is served by no provider, since none is configured; add [providers.NAME]".to_owned(),
        ),
        Err(_) => Err(suggest_provider(&plain, &known).unwrap_or_else(|| {
            let known = known.join(", ");
            format!("is served by no provider; write provider/model, with one of {known}")
        })),
    }
}

/// The message for a name that begins with a misspelt provider, which would go to the default provider.
fn suggest_provider(name: &str, known: &[&str]) -> Option<String> {
    let (left, right) = name.split_once('/')?;
    let near = find_nearest(left, known)?;
    let meant = format!("{near}/{right}");
    let message = format!("there is no provider {left:?}; did you mean {meant:?}?");
    Some(message)
}

/// The names that an alias leads through, if they repeat or never end; `None` if it leads to a model. Names are
/// followed as in requests: the longest pattern that matches counts, and a `*` keeps the rest of the name.
fn find_alias_loop(names: &ModelNames, first: &str) -> Option<Vec<String>> {
    let mut path = vec![first.to_owned()];
    if names.aliases.get(first).is_some_and(|to| to == first) {
        path.push(first.to_owned());
        return Some(path);
    }
    while let Some(next) = names.resolve_alias(path.last()?) {
        let is_repeated = path.contains(&next);
        path.push(next);
        if is_repeated || path.len() > names.aliases.len() + 1 {
            return Some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_provider_can_serve_is_refused() {
        let mut config = Config::default();
        let check = |config: &Config| {
            check_name_resolves(&ModelNames::new(config), "m", config).unwrap_err()
        };
        assert_eq!(
            check(&config),
            "is served by no provider; write provider/model, with one of simulated"
        );
        config.providers.clear();
        assert_eq!(
            check(&config),
            "is served by no provider, since none is configured; add [providers.NAME]"
        );
    }
}
