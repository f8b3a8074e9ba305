//! Windows from the lists of models of providers.
//!
//! A list is requested in the background when a request comes to its provider, at most once an hour,
//! after a failure once a minute, and never twice at a time. Only `GET /v1/models` waits for a first
//! list, a second at most. A list belongs to a provider's name and address, and survives other changes
//! of the settings.
//!
//! An engine of one's own (`parse_list.rs`) is asked once a minute while requests come, also under the paths where it says more
//! of what runs. It is asked again within a second after a refusal, after it could not be reached, and a few times for a
//! model whose window is still unknown: it may have been restarted, or have loaded the model since. No question loads a
//! model, or keeps one loaded. If a window is another one than before, what refusals taught is forgotten.
//!
//! Ids are matched exactly. But a server that lists a single model, such as llama.cpp's, serves it under
//! any name, so its window also holds for names without a window in the settings, where the catalogue
//! does not have the provider.

mod kept_list;
mod parse_list;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Limited};
use serde_json::json;
use thiserror::Error;
use tokio::{sync::Notify, time::timeout};

use self::{
    kept_list::{ChangedWindow, ModelList, find_by_tag},
    parse_list::{Listed, ListedModel, parse_model_list},
};
use super::{
    Bounds, OutgoingRequest, Payload, Provider, UpstreamError, catalogue::table::built_in_table,
    headers, learnt_windows::LearntWindows,
};
use crate::conversation::edit::Rope;

/// Limits of one answer.
const MAX_BYTES: usize = 4 << 20;
const MAX_TIME: Duration = Duration::from_secs(10);

/// Where Ollama says how a model is set up, from the base URL. It loads nothing.
const OLLAMA_SHOW: &str = "/../api/show";

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

impl ModelLists {
    /// The listed bounds of a model; `None`: the list does not have it.
    pub(super) fn find_bounds(&self, endpoint: &str, model: &str) -> Option<Bounds> {
        self.lists.lock().get(endpoint)?.find_bounds(model)
    }

    /// The bounds of the only listed model; `None`: there are several, or none.
    pub(super) fn find_only_bounds(&self, endpoint: &str) -> Option<Bounds> {
        let lists = self.lists.lock();
        let list = lists.get(endpoint)?;
        let mut models = list.models.keys();
        let only = models.next()?;
        models.next().is_none().then(|| list.find_bounds(only))?
    }

    /// The smallest window with which an engine loads a model that sets none, in tokens; `None`: nothing is known of that.
    pub(super) fn find_smallest_window(&self, endpoint: &str, model: &str) -> Option<u32> {
        let lists = self.lists.lock();
        find_by_tag(&lists.get(endpoint)?.models, model)?.smallest_window
    }

    /// Whether the provider's list is that of an engine, so that one window holds for all of its clients.
    pub(super) fn is_engine(&self, endpoint: &str) -> bool {
        let lists = self.lists.lock();
        lists.get(endpoint).is_some_and(|list| list.is_engine)
    }

    /// Notes that an engine refused a prompt: it is asked again with the next look at its windows.
    pub(super) fn mark_stale(&self, endpoint: &str) {
        if let Some(list) = self.lists.lock().get_mut(endpoint) {
            list.stale = true;
        }
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

    /// Whether a request for the list is due; `named`: a request names this model. If so, the caller sends it by
    /// [`ModelLists::ask_provider`], and until then no other one is due.
    pub(super) fn begin_if_due(
        &self,
        provider: &Provider,
        named: Option<&str>,
        now: Instant,
    ) -> bool {
        let mut lists = self.lists.lock();
        let list = lists.entry(Arc::clone(&provider.endpoint)).or_default();
        let may_learn = named.is_some_and(|model| list.note_named(model));
        if list.asking
            || list
                .asked
                .is_some_and(|asked| now < asked + list.pause(provider, may_learn))
        {
            return false;
        }
        if let Some(tries) = named.and_then(|model| list.named.get_mut(model)) {
            *tries = tries.saturating_add(1);
        }
        (list.asking, list.stale) = (true, false);
        true
    }

    /// Requests a provider's list and keeps it: its number of models. If an engine's windows changed, what was learnt of it
    /// is forgotten.
    pub(super) async fn ask_provider(
        &self,
        provider: &Provider,
        learnt: &LearntWindows,
    ) -> Result<usize, ModelListError> {
        let listed = timeout(MAX_TIME, self.fetch_model_list(provider)).await;
        let listed = listed.unwrap_or(Err(ModelListError::TooMuch));
        if let Ok(Listed { models, .. }) = &listed {
            note_traits(provider, models);
        }
        let mut lists = self.lists.lock();
        let list = lists.entry(Arc::clone(&provider.endpoint)).or_default();
        let changed = list.record_answer(listed, Instant::now());
        let (models, is_engine) = (list.models.len(), list.is_engine);
        drop(lists);
        self.settled.notify_waiters();
        let changed = changed?;
        if is_engine && !changed.is_empty() {
            learnt.forget_lessons(&provider.endpoint, None);
        }
        for ChangedWindow { id, before, now } in
            changed.into_iter().filter(|it| it.before.is_some())
        {
            let provider = &*provider.name;
            tracing::info!(
                provider,
                model = id,
                before,
                now,
                "the window of {id} that {provider} lists has changed"
            );
        }
        Ok(models)
    }

    async fn fetch_model_list(&self, provider: &Provider) -> Result<Listed, ModelListError> {
        if let Some(reason) = provider.why_list_not_asked() {
            return Err(ModelListError::NotAsked(reason));
        }
        let profile = provider.config.profile;
        let path = if provider.config.is_for_anthropic() {
            // All models in one page, of which there are 20 by default (Anthropic's API reference, List Models).
            "/models?limit=1000"
        } else {
            "/models"
        };
        let list = ask_path(provider, path, None).await?;
        let mut listed = parse_model_list(&list).ok_or(ModelListError::NotAList)?;
        // Some clouds list what their engines say.
        listed.is_engine &=
            provider.is_on_this_machine() || !provider.is_catalogued(built_in_table());
        listed.is_engine |= profile.is_engine();
        let details = listed.details_path.filter(|_| listed.is_engine);
        for path in profile.loaded_model_paths.iter().copied().chain(details) {
            // A server that has no such path has no loaded windows to tell.
            let told = ask_path(provider, path, None).await;
            if told.is_ok_and(|told| listed.add_loaded(&told)) {
                break;
            }
        }
        if profile.ollama_api {
            for id in self.list_named(provider, &listed) {
                let question = json!({ "model": id }).to_string();
                if let Ok(shown) = ask_path(provider, OLLAMA_SHOW, Some(question)).await {
                    listed.add_settings(&id, &shown, profile.smallest_window);
                }
            }
        }
        Ok(listed)
    }

    /// The listed models that requests named and that are not loaded.
    fn list_named(&self, provider: &Provider, listed: &Listed) -> Vec<String> {
        let lists = self.lists.lock();
        let list = lists.get(&provider.endpoint);
        let named = list.into_iter().flat_map(|list| list.named.keys());
        let ids = named.filter_map(|name| {
            let tagged = format!("{name}:latest");
            let mut names = [name, &tagged].into_iter();
            names
                .find(|name| listed.models.contains_key(*name))
                .cloned()
        });
        ids.filter(|id| !listed.loaded.contains_key(id)).collect()
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

impl ModelListError {
    /// Whether the server is away, or still loads its model.
    fn may_end_soon(&self) -> bool {
        matches!(
            self,
            Self::Unsent(_) | Self::Status(StatusCode::SERVICE_UNAVAILABLE)
        )
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

/// Asks a provider, by a POST if there is a `question`: its answer.
async fn ask_path(
    provider: &Provider,
    path: &str,
    question: Option<String>,
) -> Result<Bytes, ModelListError> {
    let mut headers = headers::write_for_list(&provider.config);
    let (method, body) = match question {
        Some(question) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            (
                Method::POST,
                Payload::Whole(Rope::from(Bytes::from(question))),
            )
        }
        None => (Method::GET, Payload::Empty),
    };
    let outgoing = OutgoingRequest {
        method,
        path: path.to_owned(),
        headers,
        body,
        model: None,
    };
    let answer = provider.send_request(outgoing).await?;
    if answer.status() != StatusCode::OK {
        return Err(ModelListError::Status(answer.status()));
    }
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    Ok(body.map_err(|_| ModelListError::TooMuch)?.to_bytes())
}

#[cfg(test)]
mod tests;
