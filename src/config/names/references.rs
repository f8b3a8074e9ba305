//! That every name which one setting gives for another leads somewhere, that of who summarises too.
//!
//! Names are followed by the registry's own rules, so that what passes here is found there. Only a
//! name that nobody claims is looked at more closely than a client's would be: with a default
//! provider every misspelt name leads somewhere.

use std::collections::BTreeMap;

use super::{ModelNameError, ModelNames, ServedModel};
use crate::config::{
    Config, ModelConfig, problem::find_nearest, section::Section, setting::Visibility,
};

/// Names of models that stand for others.
pub(in crate::config) fn read_aliases(root: &mut Section) -> BTreeMap<String, String> {
    root.read_entries("aliases", |s, name| {
        let stands_for: String = s.read_option(name, Visibility::Plain)?;
        s.check_pattern(name, name, "a model's name");
        s.check_pattern(name, &stands_for, "a model's name");
        if stands_for.ends_with('*') && !name.ends_with('*') {
            let message = "must be one model, since the alias has no * of its own";
            s.refuse_text(name, &stands_for, message);
        }
        Some(stands_for)
    })
}

/// That whatever one model or alias names is there.
pub(in crate::config) fn check_references(config: &Config, s: &mut Section) {
    let names = ModelNames::new(config);
    for (name, stands_for) in &config.aliases {
        let led = match find_alias_loop(&names, name) {
            Some(way) => Err(format!("leads back to itself: {}", way.join(" -> "))),
            None => check_name_resolves(&names, stands_for, config),
        };
        note_dangling_name(s, &["aliases", name], stands_for, led);
    }
    for (name, model) in &config.models {
        check_model(name, model, &names, config, s);
    }
    let summariser = config.compaction.model.as_deref();
    // That there must be one is said where it is read.
    if let Some(wanted) = summariser.filter(|name| !name.is_empty()) {
        let led = check_name_resolves(&names, wanted, config);
        note_dangling_name(s, &["compaction", "model"], wanted, led);
    }
}

/// Notes that the name which a setting gives leads nowhere.
fn note_dangling_name(s: &mut Section, path: &[&str], wanted: &str, led: Result<(), String>) {
    if let Err(problem) = led {
        s.refuse_at(path, Some(format!("{wanted:?}")), problem);
    }
}

/// The same of one model.
fn check_model(
    name: &str,
    model: &ModelConfig,
    names: &ModelNames,
    config: &Config,
    s: &mut Section,
) {
    let own = (!name.ends_with('*'))
        .then(|| list_provider_models(names, name, model.provider.as_deref()));
    let own = own.unwrap_or_default();
    if name.ends_with('*') && !model.deployments.is_empty() {
        let message = "are the places of one model; a name with a * stands for many";
        s.refuse_at(&["models", name, "deployments"], None, message);
    }
    for deployment in &model.deployments {
        let wanted = &deployment.model;
        let plain = names.resolve_aliases(wanted, None);
        let led = if *plain == *name {
            Err("is the model itself; name provider/model".to_owned())
        } else if names.has_deployments(&plain) {
            Err("has deployments of its own; name those".to_owned())
        } else {
            check_name_resolves(names, wanted, config)
        };
        note_dangling_name(s, &["models", name, "deployments"], wanted, led);
    }
    let others = model.fallback.iter().map(|other| ("fallback", other));
    let others = others.chain(model.larger.iter().map(|other| ("larger", other)));
    for (key, wanted) in others {
        let plain = names.resolve_aliases(wanted, None);
        let found = list_provider_models(names, &plain, None);
        let is_same = !found.is_empty() && found.iter().all(|place| own.contains(place));
        let led = if wanted.is_empty() || wanted.contains('*') {
            Err("must be the name of one model".to_owned())
        } else if *plain == *name || is_same {
            Err("is the model itself; name another".to_owned())
        } else {
            check_name_resolves(names, wanted, config)
        };
        note_dangling_name(s, &["models", name, key], wanted, led);
    }
}

/// Every place of a name without aliases; none where nobody serves it.
fn list_provider_models(
    names: &ModelNames,
    name: &str,
    provider: Option<&str>,
) -> Vec<ServedModel> {
    let found = names
        .resolve_deployments(name, provider)
        .unwrap_or_default();
    found.into_iter().map(|one| one.served_model).collect()
}

/// What is wrong with a name that one setting gives for another.
fn check_name_resolves(names: &ModelNames, name: &str, config: &Config) -> Result<(), String> {
    let plain = names.resolve_aliases(name, None);
    let known: Vec<_> = config.providers.keys().map(String::as_str).collect();
    match names.resolve_deployments(&plain, None) {
        Ok(_) if names.is_claimed(&plain) => Ok(()),
        Ok(_) => suggest_provider(&plain, &known).map_or(Ok(()), Err),
        Err(ModelNameError::Ambiguous { candidates, .. }) => Err(format!(
            "is served by {candidates}; name one of them: provider/model"
        )),
        Err(_) => Err(suggest_provider(&plain, &known).unwrap_or_else(|| {
            let known = known.join(", ");
            format!("leads to nobody; write provider/model, with one of {known}")
        })),
    }
}

/// A provider's name with a slip in it, which would go to the default provider as a model's.
fn suggest_provider(name: &str, known: &[&str]) -> Option<String> {
    let (left, right) = name.split_once('/')?;
    let near = find_nearest(left, known)?;
    let meant = format!("{near}/{right}");
    Some(format!(
        "there is no provider {left:?}; did you mean {meant:?}?"
    ))
}

/// The way from an alias that goes round, or to no end at all. An alias is followed as a name is, a `*` at its
/// end standing for whatever follows: names that go round do so from that alias among theirs which looks at
/// most of a name.
fn find_alias_loop(names: &ModelNames, first: &str) -> Option<Vec<String>> {
    let mut way = vec![first.to_owned()];
    if names.aliases.get(first).is_some_and(|to| to == first) {
        way.push(first.to_owned());
        return Some(way);
    }
    while let Some(next) = names.resolve_alias(way.last()?) {
        let is_back = way.contains(&next);
        way.push(next);
        if is_back || way.len() > names.aliases.len() + 1 {
            return Some(way);
        }
    }
    None
}
