//! What lists of models say, in any of the shapes seen at providers and engines.
//!
//! An engine of one's own lists the windows of what it runs, so that they change when it is restarted or loads a model.
//! The shapes, of November 2026: llama.cpp (`meta.n_ctx`, by slot; a router beside it `status.args`, with which a model that
//! is not loaded will be), llama-swap (`context_length` as configured, `/running` with commands), vLLM and SGLang
//! (`max_model_len`), LM Studio (`loaded_instances`, before 0.4 `loaded_context_length`) and Ollama (`/api/ps`, `/api/show`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::provider::{Bounds, catalogue::SANE_WINDOWS};

/// Limits of one list.
const MAX_MODELS: usize = 10_000;
const MAX_ID_BYTES: usize = 256;

/// What a provider lists.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) models: BTreeMap<String, ListedModel>,
    /// The windows with which models are loaded now, in tokens.
    pub(super) loaded: BTreeMap<String, u32>,
    /// The windows are those of an engine, and change with what it runs.
    pub(super) is_engine: bool,
    /// The path, from the base URL, at which the engine says more of what it runs. Asking there loads nothing.
    pub(super) details_path: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListedModel {
    pub(super) bounds: Bounds,
    /// It thinks, and refuses to be asked not to.
    pub(super) always_thinks: bool,
    /// The engine loads it with a window of its own choice: no less than this, in tokens.
    pub(super) smallest_window: Option<u32>,
}

/// All models of a list. `None`: it is no list.
pub(super) fn parse_model_list(body: &[u8]) -> Option<Listed> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let entries = list_entries(&body)?;
    let mut listed = Listed::default();
    for entry in entries.iter().take(MAX_MODELS) {
        let Some(id) = read_id(entry) else { continue };
        let mut model = ListedModel {
            bounds: parse_bounds(entry),
            always_thinks: always_thinks(entry),
            smallest_window: None,
        };
        listed.is_engine |= is_of_engine(entry);
        // A router of llama.cpp: with these a model will be loaded, or was. The rest is what runs.
        if let Some(args) = entry.pointer("/status/args").and_then(Value::as_array) {
            if let Some(window) = model.bounds.window {
                listed.loaded.insert(id.to_owned(), window);
            }
            let args: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
            model.bounds = Bounds {
                window: read_window_of_args(&args),
                ..Bounds::default()
            };
        }
        listed.models.insert(id.to_owned(), model);
    }
    listed.details_path = find_details_path(entries);
    Some(listed)
}

impl Listed {
    /// Adds the windows of loaded models. Returns whether the body names models.
    pub(super) fn add_loaded(&mut self, body: &[u8]) -> bool {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return false;
        };
        // The properties of a server of one model.
        let slot = read_tokens(&body, "/default_generation_settings/n_ctx");
        let mut found: Vec<_> = self.models.keys().cloned().zip(slot).collect();
        let Some(entries) = list_entries(&body).or(slot.map(|_| &[][..])) else {
            return false;
        };
        for entry in entries.iter().take(MAX_MODELS) {
            let Some(id) = read_id(entry) else { continue };
            let instances = entry.get("loaded_instances").and_then(Value::as_array);
            for instance in instances.into_iter().flatten() {
                let Some(window) = read_tokens(instance, "/config/context_length") else {
                    continue;
                };
                let names = [Some(id), read_id(instance)].into_iter().flatten();
                found.extend(names.map(|name| (name.to_owned(), window)));
            }
            let command = entry.get("cmd").and_then(Value::as_str);
            let args = command.map(|it| it.split_whitespace().collect::<Vec<_>>());
            let window = match args {
                Some(args) => read_window_of_args(&args),
                None => parse_bounds(entry).window,
            };
            found.extend(window.map(|window| (id.to_owned(), window)));
        }
        for (id, window) in found {
            // Of several instances, any may answer.
            let known = self.loaded.entry(id).or_insert(window);
            *known = window.min(*known);
        }
        true
    }

    /// Adds what Ollama's `/api/show` says of a model. `smallest_window`: that with which the engine loads a model
    /// that sets none, in tokens.
    pub(super) fn add_settings(&mut self, id: &str, body: &[u8], smallest_window: Option<u32>) {
        let shown = serde_json::from_slice::<Value>(body).ok();
        let (Some(shown), Some(model)) = (shown, self.models.get_mut(id)) else {
            return;
        };
        let facts = shown.get("model_info").and_then(Value::as_object);
        let mut facts = facts.into_iter().flatten();
        let trained = facts.find(|(name, _)| name.ends_with(".context_length"));
        let trained = trained.and_then(|(_, value)| read_tokens(value, ""));
        let parameters = shown.get("parameters").and_then(Value::as_str);
        let words = parameters.unwrap_or_default().lines().map(|line| {
            let mut words = line.split_whitespace();
            (words.next(), words.next())
        });
        let mut set = words.filter_map(|(name, value)| value.filter(|_| name == Some("num_ctx")));
        let set = set.next().and_then(|value| value.parse().ok());
        let at_most = |window: u32| window.min(trained.unwrap_or(u32::MAX));
        let is_remote = |host: &Value| host.as_str().is_some_and(|host| !host.is_empty());
        if shown.get("remote_host").is_some_and(is_remote) {
            // Models of the cloud have their largest window.
            model.bounds.window = trained;
        } else if let Some(set) = set {
            model.bounds.window = Some(at_most(set)).filter(|it| SANE_WINDOWS.contains(it));
        } else {
            model.smallest_window = smallest_window.map(at_most);
        }
    }
}

fn list_entries(body: &Value) -> Option<&[Value]> {
    // llama.cpp has `models` too, but its windows only in `data`.
    let mut keys = ["data", "models", "running"].into_iter();
    let entries = body.as_array();
    let entries = entries.or_else(|| keys.find_map(|key| body.get(key)?.as_array()));
    entries.map(Vec::as_slice)
}

fn read_id(entry: &Value) -> Option<&str> {
    let mut keys = ["id", "model", "name", "key"].into_iter();
    let id = keys.find_map(|key| entry.get(key)?.as_str())?;
    let is_valid = (1..=MAX_ID_BYTES).contains(&id.len()) && !id.contains(char::is_control);
    is_valid.then_some(id)
}

/// Whether an entry is that of an engine: no cloud has these members, but one that runs vLLM.
fn is_of_engine(entry: &Value) -> bool {
    const MEMBERS: [&str; 5] = [
        "/meta/n_ctx",
        "/meta/n_ctx_train",
        "/status/value",
        "/max_model_len",
        "/loaded_context_length",
    ];
    MEMBERS.iter().any(|path| entry.pointer(path).is_some())
}

/// Where an engine says more, if its list does not say enough. Never by a model's name: a router, and llama-swap, load what is
/// asked for, and keep it loaded.
fn find_details_path(entries: &[Value]) -> Option<&'static str> {
    let first = entries.first()?;
    match first.get("owned_by")?.as_str()? {
        "llama-swap" => Some("/../running"),
        "llamacpp" if entries.len() == 1 && first.get("status").is_none() => {
            // Older servers list no window.
            parse_bounds(first).window.is_none().then_some("/../props")
        }
        _ => None,
    }
}

/// The window that the arguments of llama.cpp's or vLLM's server ask for, in tokens: a claim, since a server takes less where
/// the model has less. Slots share it evenly, unless they share one cache.
fn read_window_of_args(args: &[&str]) -> Option<u32> {
    let find = |names: &[&str]| {
        let mut values = args.iter().enumerate().filter_map(|(at, arg)| {
            let (name, value) = arg.split_once('=').unzip();
            let is_asked = names.contains(&name.unwrap_or(arg));
            is_asked.then(|| value.or_else(|| args.get(at + 1).copied()))?
        });
        values.next_back()?.parse::<u32>().ok()
    };
    let window = find(&["-c", "--ctx-size", "--max-model-len"])?;
    let slots = find(&["-np", "--parallel"]).unwrap_or(1).max(1);
    let is_shared = args.iter().any(|it| ["-kvu", "--kv-unified"].contains(it));
    let window = if is_shared { window } else { window / slots };
    SANE_WINDOWS.contains(&window).then_some(window)
}

/// Whether a list in the form of Anthropic's says that a model thinks, and that a request which switches thinking off gets
/// a 400 (`capabilities`; the reference of the models' API, November 2026). Without these members it does not say so.
fn always_thinks(model: &Value) -> bool {
    let is_supported = |path| model.pointer(path).and_then(Value::as_bool);
    is_supported("/capabilities/thinking/supported") == Some(true)
        && is_supported("/capabilities/thinking/types/disabled/supported") == Some(false)
}

/// The least of the named windows: a model's largest window and the loaded one may be side by side.
/// llama.cpp's `meta.n_ctx_train` is no window: the server may have been started with less. Anthropic names the whole window
/// by its largest prompt.
fn parse_bounds(model: &Value) -> Bounds {
    const CONTEXT: [&str; 6] = [
        "/context_length",
        "/max_model_len",
        "/context_window",
        "/loaded_context_length",
        "/top_provider/context_length",
        "/meta/n_ctx",
    ];
    let tokens = |path: &str| read_tokens(model, path);
    let window = CONTEXT.into_iter().filter_map(tokens).min();
    let input = tokens("/max_input_tokens").or_else(|| tokens("/input_length"));
    let is_anthropic = model.get("type").is_some_and(|kind| kind == "model");
    let window = window.or(input.filter(|_| is_anthropic));
    Bounds {
        window,
        input: input.filter(|input| window.is_none_or(|window| *input < window)),
        named_input: None,
    }
}

/// A number of tokens that can be a window.
fn read_tokens(value: &Value, path: &str) -> Option<u32> {
    let tokens = u32::try_from(value.pointer(path)?.as_u64()?).ok()?;
    SANE_WINDOWS.contains(&tokens).then_some(tokens)
}
