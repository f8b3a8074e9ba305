//! Which models a client is told of, with their windows: from the running proxy, else from the settings.

use super::{
    super::{
        CommandError,
        ask_proxy::AskedProxy,
        block_on,
        clients::{Client, Values},
        table::group_digits,
    },
    Config, ConnectArgs,
};
use crate::provider::Registry;

/// More are left out where nobody names them: a client's file is no catalogue.
const MAX_MODELS: usize = 20;

/// What a client is told.
pub(super) struct Chosen {
    /// One for each model; one without a model where the client has names of its own.
    pub(super) values: Vec<Values>,
    /// The client's name of each model, its window, and which one the client is told.
    pub(super) rows: Vec<[String; 3]>,
    pub(super) source: String,
}

#[derive(Clone)]
struct Offered {
    id: String,
    /// Tokens. `None`: not known, or only assumed.
    context_length: Option<u32>,
}

/// # Errors
/// No provider serves a model that is named, or none is there to choose.
pub(super) fn choose(
    client: &Client,
    args: &ConnectArgs,
    proxy: &AskedProxy,
    config: &Config,
) -> Result<Chosen, CommandError> {
    let base = &proxy.base;
    let alone = Values {
        base: base.clone(),
        ..Values::default()
    };
    if args.model.is_empty() && client.has_own_model_names {
        return Ok(Chosen {
            values: vec![alone],
            rows: Vec::new(),
            source: String::new(),
        });
    }
    let registry = Registry::new(config).map_err(CommandError::Start)?;
    let (offered, source) = match block_on(proxy.list_models())? {
        Ok(listed) => {
            let listed = listed.into_iter().map(|model| Offered {
                id: model.id,
                context_length: model.context_length,
            });
            (listed.collect(), format!("of the proxy at {base}"))
        }
        Err(why) => {
            let why = why.shorten();
            (list_offered(&registry), format!("of the settings ({why})"))
        }
    };
    let find = |name: &String| match offered.iter().find(|model| model.id == *name) {
        Some(model) => Ok(model.clone()),
        None => registry.explain_name(name).map(|found| Offered {
            id: name.clone(),
            context_length: found.target.window.known_tokens(),
        }),
    };
    let models: Vec<Offered> = if args.model.is_empty() {
        let is_bare = |id: &str| {
            let ending = format!("/{id}");
            offered.iter().any(|model| model.id.ends_with(&ending))
        };
        // The built-in provider is for a first try, which is asked for by its name.
        let is_simulated = |id: &str| {
            let provider = id
                .split_once('/')
                .and_then(|(name, _)| config.providers.get(name));
            provider.is_some_and(|it| it.base_url.is_none())
        };
        let is_own = |model: &&Offered| !is_bare(&model.id) && !is_simulated(&model.id);
        let own = offered.iter().filter(is_own);
        own.take(MAX_MODELS).cloned().collect()
    } else {
        let found: Result<_, String> = args.model.iter().map(find).collect();
        found.map_err(CommandError::Command)?
    };
    if models.is_empty() {
        let title = client.title;
        return Err(CommandError::Command(format!(
            "{title} needs a model, and there is none to choose among those {source}: name one with --model"
        )));
    }
    let (mut values, mut rows) = (Vec::new(), Vec::new());
    for Offered { id, context_length } in models {
        let window = context_length.map(u64::from);
        let told = client.told_window(args.window.or(window));
        let model = Values {
            model: Some(id),
            window: told,
            ..alone.clone()
        };
        let name = model.expand(client.model).unwrap_or_default();
        let tokens = |window: Option<u64>, unknown: &str| match window {
            Some(tokens) => format!("{} tokens", group_digits(tokens)),
            None => unknown.to_owned(),
        };
        let window = format!("window {}", tokens(window, "not known"));
        rows.push([name, window, format!("told {}", tokens(told, "nothing"))]);
        values.push(model);
    }
    Ok(Chosen {
        values,
        rows,
        source,
    })
}

fn list_offered(registry: &Registry) -> Vec<Offered> {
    let offered = registry.list_offered_models().into_iter();
    let offered = offered.map(|model| Offered {
        context_length: model.target.window.known_tokens(),
        id: model.id,
    });
    offered.collect()
}
