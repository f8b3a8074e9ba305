//! Which models a client is told of, with their windows: from the running proxy, else from the settings.

use super::{
    super::{
        CommandError,
        ask_proxy::AskedProxy,
        block_on,
        clients::{Client, RunSetup, Values},
        table::group_digits,
    },
    Config,
};
use crate::{
    config::{OPEN_WEIGHTS, names::matches_pattern},
    conversation::Format,
    provider::Registry,
};

/// More are left out where nobody names them: a client's file is no catalogue.
const MAX_MODELS: usize = 20;

#[derive(clap::Args, Clone, Debug)]
pub(in crate::cli) struct ModelArgs {
    /// A model for the client, the first one to begin with [default: the proxy's, or the client's own]
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) model: Vec<String>,
    /// The window that the client is told, in tokens; above the model's, only the proxy keeps to it [default: the model's]
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) window: Option<u64>,
}

/// Where models are looked for.
pub(in crate::cli) struct ModelSource<'s> {
    pub(in crate::cli) proxy: &'s AskedProxy,
    pub(in crate::cli) config: &'s Config,
}

/// What a client is told.
pub(in crate::cli) struct Chosen {
    /// One for each model; one without a model where the client has names of its own.
    pub(in crate::cli) values: Vec<Values>,
    /// The client's name of each model, its window, and which one the client is told.
    pub(super) rows: Vec<[String; 3]>,
    pub(super) source: String,
    /// What `plimsoll run` says about it.
    pub(in crate::cli) said: Option<String>,
}

/// What there is to choose from.
struct Offer {
    registry: Registry,
    models: Vec<Offered>,
    source: String,
}

#[derive(Clone)]
struct Offered {
    id: String,
    /// Tokens. `None`: not known, or only assumed.
    context_length: Option<u32>,
}

impl ModelSource<'_> {
    /// For `plimsoll connect`: the named models, else all where the client has no names of its own.
    ///
    /// # Errors
    /// No provider serves a model that is named, or none is there to choose.
    pub(super) fn choose(&self, client: &Client, args: &ModelArgs) -> Result<Chosen, CommandError> {
        if args.model.is_empty() && client.has_own_model_names {
            return Ok(self.tell_none(None));
        }
        let offer = self.ask()?;
        let models = if args.model.is_empty() {
            self.list_own(&offer)
        } else {
            offer.find_named(&args.model)?
        };
        if models.is_empty() {
            let (title, source) = (client.title, offer.source);
            return Err(CommandError::Command(format!(
                "{title} needs a model, and there is none to choose among those {source}: name one with --model"
            )));
        }
        Ok(self.tell(client, models, args, offer.source))
    }

    /// For `plimsoll run`: the named models, else those of the proxy where no provider serves the client's own names and the
    /// user has chosen none (`has_choice`).
    ///
    /// # Errors
    /// No provider serves a model that is named.
    pub(in crate::cli) fn choose_for_run(
        &self,
        client: Option<(&Client, &RunSetup)>,
        args: &ModelArgs,
        has_choice: bool,
    ) -> Result<Chosen, CommandError> {
        let Some((client, run)) = client.filter(|(_, run)| !run.own_models.is_empty()) else {
            if args.model.is_empty() && args.window.is_none() {
                return Ok(self.tell_none(None));
            }
            return Err(CommandError::Command(
                "this program cannot be told a model here: name it by its own arguments".to_owned(),
            ));
        };
        if !args.model.is_empty() {
            let offer = self.ask()?;
            let models = offer.find_named(&args.model)?;
            return Ok(self.tell(client, models, args, offer.source));
        }
        if has_choice || self.names_own(run, &[]) {
            return Ok(self.tell_none(client.told_window(args.window)));
        }
        let offer = self.ask()?;
        if self.names_own(run, &offer.models) || !offer.refuses_own(client, run, self.config) {
            return Ok(self.tell_none(client.told_window(args.window)));
        }
        let mut models = self.list_own(&offer);
        models.retain(|model| offer.is_spoken(client, &model.id));
        let names: Vec<&str> = models.iter().map(|model| &*model.id).collect();
        let (title, path) = (client.title, client.asks_for);
        let lack = format!("no provider here serves the names that {title} asks for");
        let program = client.programs.first().unwrap_or(&client.name);
        match names.as_slice() {
            [] => {
                let mut chosen = self.tell_none(None);
                chosen.said = Some(format!("{lack}, nor is there another model for {path}"));
                Ok(chosen)
            }
            [_, _, ..] if client.has_own_model_names => {
                let mut chosen = self.tell_none(None);
                let names = names.join(", ");
                chosen.said = Some(format!(
                    "{lack}: choose a model by `plimsoll run --model NAME {program}`, one of {names}"
                ));
                Ok(chosen)
            }
            [first, ..] => {
                let said = format!(
                    "{lack}: it begins with {first} (--model NAME before {program} chooses)"
                );
                let mut chosen = self.tell(client, models, args, offer.source);
                chosen.said = Some(said);
                Ok(chosen)
            }
        }
    }

    fn tell_none(&self, window: Option<u64>) -> Chosen {
        let alone = Values {
            base: self.proxy.base.clone(),
            window,
            ..Values::default()
        };
        Chosen {
            values: vec![alone],
            rows: Vec::new(),
            source: String::new(),
            said: None,
        }
    }

    fn tell(
        &self,
        client: &Client,
        models: Vec<Offered>,
        args: &ModelArgs,
        source: String,
    ) -> Chosen {
        let (mut values, mut rows) = (Vec::new(), Vec::new());
        for Offered { id, context_length } in models {
            let window = context_length.map(u64::from);
            let told = client.told_window(args.window.or(window));
            let model = Values {
                base: self.proxy.base.clone(),
                model: Some(id),
                window: told,
                ..Values::default()
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
        Chosen {
            values,
            rows,
            source,
            said: None,
        }
    }

    /// All names, of a running proxy if there is one.
    fn ask(&self) -> Result<Offer, CommandError> {
        let registry = Registry::new(self.config).map_err(CommandError::Start)?;
        let (models, source) = match block_on(self.proxy.list_models())? {
            Ok(listed) => {
                let listed = listed.into_iter().map(|model| Offered {
                    id: model.id,
                    context_length: model.context_length,
                });
                let source = format!("of the proxy at {}", self.proxy.base);
                (listed.collect(), source)
            }
            Err(why) => {
                let why = why.shorten();
                (list_offered(&registry), format!("of the settings ({why})"))
            }
        };
        Ok(Offer {
            registry,
            models,
            source,
        })
    }

    /// Those that are no second names, and not of the built-in provider, which is for a first try and asked for by its name.
    fn list_own(&self, offer: &Offer) -> Vec<Offered> {
        let is_bare = |id: &str| {
            let ending = format!("/{id}");
            offer.models.iter().any(|model| model.id.ends_with(&ending))
        };
        let is_simulated = |id: &str| {
            let provider = id.split_once('/');
            let provider = provider.and_then(|(name, _)| self.config.providers.get(name));
            provider.is_some_and(|it| it.base_url.is_none())
        };
        let is_own = |model: &&Offered| !is_bare(&model.id) && !is_simulated(&model.id);
        let own = offer.models.iter().filter(is_own);
        own.take(MAX_MODELS).cloned().collect()
    }

    /// Whether the settings or these models name one that the client asks for by itself, or one of the same maker.
    fn names_own(&self, run: &RunSetup, offered: &[Offered]) -> bool {
        let config = self.config;
        let listed = config.providers.values().flat_map(|it| &it.models);
        let mut names = listed
            .chain(config.models.keys())
            .chain(offered.iter().map(|model| &model.id));
        let is_own = |name: &String| {
            let name = name.rsplit('/').next().unwrap_or(name);
            let mut makers = run
                .own_models
                .iter()
                .map(|own| own.split_inclusive('-').next());
            !name.contains(OPEN_WEIGHTS)
                && makers.any(|maker| maker.is_some_and(|maker| name.starts_with(maker)))
        };
        let is_alias =
            |alias: &String| run.own_models.iter().any(|own| matches_pattern(alias, own));
        names.any(is_own) || config.aliases.keys().any(is_alias)
    }
}

impl Offer {
    fn find_named(&self, names: &[String]) -> Result<Vec<Offered>, CommandError> {
        let find = |name: &String| match self.models.iter().find(|model| model.id == *name) {
            Some(model) => Ok(model.clone()),
            None => self.registry.explain_name(name).map(|found| Offered {
                id: name.clone(),
                context_length: found.target.window.known_tokens(),
            }),
        };
        let found: Result<_, String> = names.iter().map(find).collect();
        found.map_err(CommandError::Command)
    }

    /// Whether all names that the client asks for by itself lead nowhere: to no provider, or to one that does not speak the
    /// client's format, or that lists its models and has none of them.
    fn refuses_own(&self, client: &Client, run: &RunSetup, config: &Config) -> bool {
        run.own_models.iter().all(|own| {
            let Ok(found) = self.registry.explain_name(own) else {
                return true;
            };
            let provider = &found.target.provider;
            let of_provider = format!("{}/", provider.name);
            let is_simulated = config.providers.get(&*provider.name);
            is_simulated.is_some_and(|it| it.base_url.is_none())
                || !self.is_spoken(client, own)
                || self
                    .models
                    .iter()
                    .any(|model| model.id.starts_with(&of_provider))
        })
    }

    /// Whether the provider of a model speaks the format that a client asks for.
    fn is_spoken(&self, client: &Client, model: &str) -> bool {
        let path = client.asks_for.strip_prefix("/v1");
        let format = path.and_then(Format::from_path);
        let found = self.registry.explain_name(model);
        let formats = found.map(|found| found.target.provider.config.formats.clone());
        format.is_none_or(|format| formats.is_ok_and(|formats| formats.contains(&format)))
    }
}

fn list_offered(registry: &Registry) -> Vec<Offered> {
    let offered = registry.list_offered_models().into_iter();
    let offered = offered.map(|model| Offered {
        context_length: model.target.window.known_tokens(),
        id: model.id,
    });
    offered.collect()
}
