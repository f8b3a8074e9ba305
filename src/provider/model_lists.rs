//! Windows from the lists of models of providers.
//!
//! A list is requested in the background when a request comes to its provider, at most once an hour,
//! after a failure once a minute, and never twice at a time. Only `GET /v1/models` waits for a first
//! list, a second at most. A list belongs to a provider's name and address, and survives other changes
//! of the settings.
//!
//! Some engines load each model with a window of its own, and list these windows under another path. That path is asked
//! too, once a minute.
//!
//! Ids are matched exactly. But a server that lists a single model, such as llama.cpp's, serves it under
//! any name, so its window also holds for names without a window in the settings, where the catalogue
//! does not have the provider.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use thiserror::Error;
use tokio::{sync::Notify, time::timeout};

use super::{
    Bounds, OutgoingRequest, Payload, Provider, UpstreamError, catalogue::SANE_WINDOWS, headers,
};

/// The time to the next request, after a list and after a failure.
const FRESH_FOR: Duration = Duration::from_secs(3_600);
const PAUSE: Duration = Duration::from_secs(60);

/// Limits of one answer.
const MAX_BYTES: usize = 4 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);
const MAX_MODELS: usize = 10_000;
const MAX_ID_BYTES: usize = 256;

/// Why a provider gave no list.
#[derive(Debug, Error)]
pub enum ModelListError {
    #[error("not asked, since {0}")]
    NotAsked(&'static str),
    #[error(transparent)]
    Unsent(#[from] UpstreamError),
    #[error("it answered with status {0}")]
    Status(StatusCode),
    #[error("its list of models did not come within {} s and {MAX_BYTES} bytes", MAX_TIME.as_secs())]
    TooMuch,
    #[error("its list of models has an unknown form")]
    NotAList,
}

/// The lists of all providers, by endpoint.
#[derive(Debug, Default)]
pub(super) struct ModelLists {
    lists: Mutex<HashMap<Arc<str>, ModelList>>,
    /// The set of awaited lists became smaller.
    settled: Notify,
}

#[derive(Debug, Default)]
struct ModelList {
    asking: bool,
    /// When to ask again; `None` before the first answer or failure.
    due: Option<Instant>,
    models: BTreeMap<String, ListedModel>,
    /// The windows with which models were loaded last. A model that was unloaded is loaded with the same window again.
    loaded: BTreeMap<String, ListedModel>,
}

/// What a provider lists.
#[derive(Debug, Default)]
struct Listed {
    models: BTreeMap<String, ListedModel>,
    loaded: BTreeMap<String, ListedModel>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ListedModel {
    bounds: Bounds,
    /// It thinks, and refuses to be asked not to.
    always_thinks: bool,
}

impl ModelLists {
    /// The listed bounds of a model; `None`: the list does not have it.
    pub(super) fn find_bounds(&self, endpoint: &str, model: &str) -> Option<Bounds> {
        let lists = self.lists.lock();
        let list = lists.get(endpoint)?;
        let known = list.find_loaded(model);
        Some(known.or_else(|| list.models.get(model))?.bounds)
    }

    /// The bounds of the only listed model; `None`: there are several, or none.
    pub(super) fn find_only_bounds(&self, endpoint: &str) -> Option<Bounds> {
        let lists = self.lists.lock();
        let list = lists.get(endpoint)?;
        let mut models = list.models.iter();
        let (name, only) = models.next()?;
        let only = list.find_loaded(name).unwrap_or(only);
        models.next().is_none().then_some(only.bounds)
    }

    /// Whether the provider is being asked for the first time.
    pub(super) fn is_awaited(&self, endpoint: &str) -> bool {
        let lists = self.lists.lock();
        lists.get(endpoint).is_some_and(ModelList::is_awaited)
    }

    /// The ids of all models that a provider has listed.
    pub(super) fn list_ids(&self, endpoint: &str) -> Vec<String> {
        let lists = self.lists.lock();
        let list = lists.get(endpoint);
        list.map_or_else(Vec::new, |list| list.models.keys().cloned().collect())
    }

    /// Whether a request for the list is due. If so, the caller sends it by
    /// [`ModelLists::ask_provider`], and until then no other one is due.
    pub(super) fn begin_if_due(&self, endpoint: &Arc<str>, now: Instant) -> bool {
        let mut lists = self.lists.lock();
        let list = lists.entry(Arc::clone(endpoint)).or_default();
        let is_due = list.is_due(now);
        list.asking |= is_due;
        is_due
    }

    /// Requests a provider's list and keeps it: its number of models.
    pub(super) async fn ask_provider(&self, provider: &Provider) -> Result<usize, ModelListError> {
        let listed = timeout(MAX_TIME, fetch_model_list(provider)).await;
        let listed = listed.unwrap_or(Err(ModelListError::TooMuch));
        if let Ok(Listed { models, .. }) = &listed {
            note_traits(provider, models);
        }
        let mut lists = self.lists.lock();
        let list = lists.entry(Arc::clone(&provider.endpoint)).or_default();
        let fresh_for = match provider.config.profile.loaded_models {
            Some(_) => PAUSE,
            None => FRESH_FOR,
        };
        let models = list.record_answer(listed, Instant::now(), fresh_for);
        self.settled.notify_waiters();
        models
    }

    /// Forgets the lists of all other endpoints.
    pub(super) fn keep_only(&self, endpoints: &[&Arc<str>]) {
        self.lists
            .lock()
            .retain(|endpoint, _| endpoints.contains(&endpoint));
        self.settled.notify_waiters();
    }

    /// Waits until no first list is awaited, but no longer than `limit`.
    pub(super) async fn wait_until_settled(&self, limit: Duration) {
        let all_settled = async {
            loop {
                // Registered before the check, so that no notification is missed.
                let settled = self.settled.notified();
                if !self.lists.lock().values().any(ModelList::is_awaited) {
                    return;
                }
                settled.await;
            }
        };
        // A list that comes later is used then.
        let _ = timeout(limit, all_settled).await;
    }
}

impl ModelList {
    fn is_awaited(&self) -> bool {
        self.asking && self.due.is_none()
    }

    /// The window of a loaded model. Ollama calls it by its tag, also where the client does not.
    fn find_loaded(&self, model: &str) -> Option<&ListedModel> {
        let latest = || self.loaded.get(&format!("{model}:latest"));
        self.loaded.get(model).or_else(latest)
    }

    fn record_answer(
        &mut self,
        listed: Result<Listed, ModelListError>,
        now: Instant,
        fresh_for: Duration,
    ) -> Result<usize, ModelListError> {
        self.asking = false;
        self.due = Some(now + if listed.is_ok() { fresh_for } else { PAUSE });
        let Listed { models, loaded } = listed?;
        self.models = models;
        let loaded = loaded
            .into_iter()
            .filter(|(_, it)| it.bounds.window.is_some());
        self.loaded.extend(loaded);
        self.loaded.retain(|id, _| self.models.contains_key(id));
        Ok(self.models.len())
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.asking && self.due.is_none_or(|due| now >= due)
    }
}

/// Notes what the list says of its models beside their windows.
fn note_traits(provider: &Provider, models: &BTreeMap<String, ListedModel>) {
    for (id, model) in models {
        if provider.find_notes(id).always_thinks != model.always_thinks {
            provider.change_notes(id, |it| it.always_thinks = model.always_thinks);
        }
    }
}

async fn fetch_model_list(provider: &Provider) -> Result<Listed, ModelListError> {
    if let Some(reason) = provider.why_list_not_asked() {
        return Err(ModelListError::NotAsked(reason));
    }
    let models = fetch_models(provider, "/models").await?;
    let loaded = match provider.config.profile.loaded_models {
        // A server that has no such path has no loaded windows to tell.
        Some(path) => fetch_models(provider, path).await.unwrap_or_default(),
        None => BTreeMap::new(),
    };
    Ok(Listed { models, loaded })
}

async fn fetch_models(
    provider: &Provider,
    path: &str,
) -> Result<BTreeMap<String, ListedModel>, ModelListError> {
    let outgoing = OutgoingRequest {
        method: Method::GET,
        path: path.to_owned(),
        headers: headers::write_for_list(&provider.config),
        body: Payload::Empty,
        model: None,
    };
    let answer = provider.send_request(outgoing).await?;
    if answer.status() != StatusCode::OK {
        return Err(ModelListError::Status(answer.status()));
    }
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    let body = body.map_err(|_| ModelListError::TooMuch)?.to_bytes();
    parse_model_list(&body).ok_or(ModelListError::NotAList)
}

/// All models of a list, in any of the shapes seen at providers. `None`: it is no list.
fn parse_model_list(body: &[u8]) -> Option<BTreeMap<String, ListedModel>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    // llama.cpp has `models` too, but its windows only in `data`.
    let list = body.as_array().or_else(|| body.get("data")?.as_array());
    let list = list.or_else(|| body.get("models")?.as_array())?;
    let models = list.iter().filter_map(|model| {
        let mut keys = ["id", "name", "model"].into_iter();
        let id = keys.find_map(|key| model.get(key)?.as_str())?;
        let is_valid = (1..=MAX_ID_BYTES).contains(&id.len()) && !id.contains(char::is_control);
        let listed = || ListedModel {
            bounds: parse_bounds(model),
            always_thinks: always_thinks(model),
        };
        is_valid.then(|| (id.to_owned(), listed()))
    });
    Some(models.take(MAX_MODELS).collect())
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
    let tokens = |path: &str| {
        let tokens = u32::try_from(model.pointer(path)?.as_u64()?).ok()?;
        SANE_WINDOWS.contains(&tokens).then_some(tokens)
    };
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

#[cfg(test)]
mod tests;
