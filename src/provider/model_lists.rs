//! The windows that a provider's own list of models names.
//!
//! Asked for in the background when a request comes to a provider whose list is wanted, at most once
//! an hour, after a failure once a minute, one question at a time. Only `GET /v1/models` waits for a first
//! list, a second at most; what fails is only a window that is not known better. Ids are matched exactly; but
//! a server that lists a single model, such as llama.cpp's, serves it under any name. A list is that of a
//! name and an address: other settings of the same provider keep it, another address does not.
//!
//! So the window of the only model of a list holds for names that the list does not have, where neither the
//! settings nor an error say anything of them and the provider is not of the catalogue.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use thiserror::Error;
use tokio::{sync::Notify, time::timeout};

use super::{
    Bounds, OutgoingRequest, Payload, Provider, UpstreamError, catalogue::SANE_WINDOWS, headers,
};

/// How long an answer holds, and how long is waited after a failure.
const FRESH_FOR: Duration = Duration::from_secs(3_600);
const PAUSE: Duration = Duration::from_secs(60);

/// The whole answer.
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
    #[error("its list of models is in no form that is known")]
    NotAList,
}

/// The lists of all providers, by their places.
#[derive(Debug, Default)]
pub(super) struct ModelLists {
    lists: Mutex<HashMap<Arc<str>, ModelList>>,
    /// An answer came, or a failure, or nobody waits for one any more.
    came: Notify,
}

/// What is known of one provider's list.
#[derive(Debug, Default)]
struct ModelList {
    asking: bool,
    /// When to ask again; `None` before the first answer or failure.
    due: Option<Instant>,
    models: BTreeMap<String, Bounds>,
}

impl ModelLists {
    /// What the provider said of a model; `None`: it lists none of that name.
    pub(super) fn find_bounds(&self, place: &str, model: &str) -> Option<Bounds> {
        self.lock_lists().get(place)?.models.get(model).copied()
    }

    /// What the provider said of the only model that it lists; `None`: it lists several, or none.
    pub(super) fn find_only_bounds(&self, place: &str) -> Option<Bounds> {
        let lists = self.lock_lists();
        let mut models = lists.get(place)?.models.values();
        let only = models.next()?;
        models.next().is_none().then_some(*only)
    }

    /// Whether the provider is being asked for the first time.
    pub(super) fn is_awaited(&self, place: &str) -> bool {
        self.lock_lists()
            .get(place)
            .is_some_and(ModelList::is_awaited)
    }

    /// The ids of all models that a provider has listed.
    pub(super) fn list_ids(&self, place: &str) -> Vec<String> {
        let lists = self.lock_lists();
        let list = lists.get(place);
        list.map_or_else(Vec::new, |list| list.models.keys().cloned().collect())
    }

    /// Whether it is time to ask; if so it counts as asked until [`Listed::ask`] is done.
    pub(super) fn begin_if_due(&self, place: &Arc<str>, now: Instant) -> bool {
        let mut lists = self.lock_lists();
        if !lists.get(place).is_none_or(|list| list.is_due(now)) {
            return false;
        }
        lists.entry(Arc::clone(place)).or_default().asking = true;
        true
    }

    /// Asks a provider and keeps what it says: how many models it listed.
    pub(super) async fn ask_provider(
        &self,
        provider: &Provider,
        client_keys: bool,
    ) -> Result<usize, ModelListError> {
        let listed = timeout(MAX_TIME, fetch_model_list(provider, client_keys)).await;
        let listed = listed.unwrap_or(Err(ModelListError::TooMuch));
        let mut lists = self.lock_lists();
        let list = lists.entry(Arc::clone(&provider.endpoint)).or_default();
        let taken = list.record_answer(listed, Instant::now());
        self.came.notify_waiters();
        taken
    }

    /// Forgets the lists of all other places.
    pub(super) fn keep_only(&self, places: &[&Arc<str>]) {
        self.lock_lists().retain(|place, _| places.contains(&place));
        self.came.notify_waiters();
    }

    /// Waits until nobody is being asked for the first time, but no longer than `limit`.
    pub(super) async fn wait_until_settled(&self, limit: Duration) {
        let settled = async {
            loop {
                // From before the look on, so that none is missed.
                let came = self.came.notified();
                if !self.lock_lists().values().any(ModelList::is_awaited) {
                    return;
                }
                came.await;
            }
        };
        // Whoever is still silent then is told of later.
        let _ = timeout(limit, settled).await;
    }

    fn lock_lists(&self) -> MutexGuard<'_, HashMap<Arc<str>, ModelList>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelList {
    fn is_awaited(&self) -> bool {
        self.asking && self.due.is_none()
    }

    /// What came of asking: how many models there are.
    fn record_answer(
        &mut self,
        listed: Result<BTreeMap<String, Bounds>, ModelListError>,
        now: Instant,
    ) -> Result<usize, ModelListError> {
        self.asking = false;
        self.due = Some(now + if listed.is_ok() { FRESH_FOR } else { PAUSE });
        self.models = listed?;
        Ok(self.models.len())
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.asking && self.due.is_none_or(|due| now >= due)
    }
}

async fn fetch_model_list(
    provider: &Provider,
    client_keys: bool,
) -> Result<BTreeMap<String, Bounds>, ModelListError> {
    if let Some(reason) = provider.why_list_not_asked() {
        return Err(ModelListError::NotAsked(reason));
    }
    let outgoing = OutgoingRequest {
        method: Method::GET,
        path: "/models".to_owned(),
        headers: headers::filter_for_provider(
            &HeaderMap::new(),
            &provider.config,
            client_keys,
            true,
        ),
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

/// Every model of a list, in any of the shapes seen at providers. `None`: it is no list.
fn parse_model_list(body: &[u8]) -> Option<BTreeMap<String, Bounds>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let list = match &body {
        Value::Array(list) => list,
        // llama.cpp has both, and its windows in the first.
        body => ["data", "models"]
            .into_iter()
            .find_map(|key| body.get(key)?.as_array())?,
    };
    let models = list.iter().filter_map(|model| {
        let id = ["id", "name", "model"]
            .into_iter()
            .find_map(|key| model.get(key)?.as_str())?;
        let sound = !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.contains(char::is_control);
        sound.then(|| (id.to_owned(), parse_bounds(model)))
    });
    Some(models.take(MAX_MODELS).collect())
}

/// The least of what is named: what a model could hold, and what it was loaded with, may stand side
/// by side. llama.cpp's `meta.n_ctx_train` is no window: the server may have been started with less.
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
    let input = tokens("/max_input_tokens");
    Bounds {
        window,
        input: input.filter(|input| window.is_none_or(|window| *input < window)),
    }
}

#[cfg(test)]
mod tests;
