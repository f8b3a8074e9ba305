//! A provider. It is reached over the network or built in; callers see no difference.

mod model_notes;

use std::{
    io,
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

use parking_lot::Mutex;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use lru::LruCache;

use self::model_notes::ModelNotes;
use super::{
    OutgoingRequest, Payload, SIMULATED, UpstreamError, Window, WindowSource,
    breaker::Breaker,
    catalogue::{self, table::WindowTable},
    simulated,
    upstream_client::{MODEL_PLACEHOLDER, UpstreamClient},
    warnings,
};
use crate::{
    config::{Auth, CacheMarkers, Outgoing, ProviderConfig, profile::Profile},
    wire::Body,
};

/// Bytes of a streamed request that the simulated provider reads.
const MAX_SIMULATED_BODY: usize = 1 << 20;

/// Models of one provider that have notes.
const MAX_KNOWN_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");

#[derive(Debug)]
pub struct Provider {
    pub name: Arc<str>,
    /// Name and address: the key of what is learnt about this provider. It outlives other settings.
    pub endpoint: Arc<str>,
    pub config: ProviderConfig,
    pub breaker: Breaker,
    /// When a server on this machine last could not be reached: milliseconds since 1970, 0 for never. It may have lost
    /// then what it keeps in memory.
    pub unreachable_ms: AtomicU64,
    /// The catalogue's name for this provider.
    catalogue_name: String,
    /// In memory only, with a bounded number of models: after a restart one request for each teaches it again.
    notes: Mutex<LruCache<Box<str>, ModelNotes>>,
    /// The profile of each model by its name, since the rules of models are many.
    profiles: Mutex<LruCache<Box<str>, &'static Profile>>,
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Remote(Box<UpstreamClient>),
    Simulated,
}

impl Provider {
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub(super) fn new(
        name: &str,
        config: &ProviderConfig,
        outgoing: &Outgoing,
    ) -> io::Result<Self> {
        let transport = match &config.base_url {
            Some(base_url) => {
                Transport::Remote(Box::new(UpstreamClient::new(base_url, config, outgoing)?))
            }
            None => Transport::Simulated,
        };
        Ok(Self {
            name: name.into(),
            endpoint: format!("{name} {}", config.base_url.as_deref().unwrap_or_default()).into(),
            catalogue_name: catalogue::find_provider_name(name, config.base_url.as_deref()),
            config: config.clone(),
            breaker: Breaker::new(config.breaker_failures, config.breaker_open),
            unreachable_ms: AtomicU64::new(0),
            notes: Mutex::new(LruCache::new(MAX_KNOWN_MODELS)),
            profiles: Mutex::new(LruCache::new(MAX_KNOWN_MODELS)),
            transport,
        })
    }

    /// Whether the server runs on this machine, so that its memory is gone once it was away.
    pub fn is_on_this_machine(&self) -> bool {
        let address = self.config.base_url.as_deref().map(str::parse);
        matches!(address, Some(Ok(ref uri)) if warnings::is_on_this_machine(uri))
    }

    /// The provider's profile, as a model of that name has it.
    pub fn find_profile(&self, model: &str) -> &'static Profile {
        let mut profiles = self.profiles.lock();
        if let Some(known) = profiles.get(model) {
            return known;
        }
        let profile = self.config.profile.for_model(model);
        profiles.put(model.into(), profile);
        profile
    }

    /// What answers taught about a model.
    pub fn find_notes(&self, model: &str) -> ModelNotes {
        let known = self.notes.lock().get(model).copied();
        known.unwrap_or_default()
    }

    pub fn change_notes(&self, model: &str, change: impl FnOnce(&mut ModelNotes)) {
        let mut notes = self.notes.lock();
        change(notes.get_or_insert_mut(model.into(), ModelNotes::default));
    }

    /// A model refused `stream_options`: its streams are not asked for usage again.
    pub fn note_usage_refused(&self, model: &str) {
        let provider = &*self.name;
        tracing::info!(
            provider,
            model,
            "stream_options refused; streams go on without usage"
        );
        self.change_notes(model, |it| it.refuses_usage = true);
    }

    /// Whether the proxy may add cache markers to the requests of a model: the settings allow it, and the model is not known
    /// to refuse them.
    pub fn may_add_markers(&self, model: &str, now: Instant) -> bool {
        self.config.cache_markers == CacheMarkers::Auto
            && self.find_notes(model).takes_markers(now) != Some(false)
    }

    /// Whether a model is known to take cache markers of the proxy.
    pub fn takes_markers(&self, model: &str, now: Instant) -> bool {
        self.find_notes(model).takes_markers(now) == Some(true)
    }

    /// A model answered a request with cache markers of the proxy, or (not `taken`) the same request only without them.
    pub fn note_markers(&self, model: &str, taken: bool, now: Instant) {
        self.change_notes(model, |it| it.note_markers(taken, now));
        if !self.may_add_markers(model, now) {
            let provider = &*self.name;
            tracing::warn!(
                provider,
                model,
                "cache markers refused; requests go on without them"
            );
        }
    }

    pub(super) fn is_remote(&self) -> bool {
        matches!(self.transport, Transport::Remote(_))
    }

    /// Names and windows of the models of the built-in provider.
    pub(super) fn built_in_models(&self) -> &'static [(&'static str, u32)] {
        match self.transport {
            Transport::Simulated => simulated::MODELS,
            Transport::Remote(_) => &[],
        }
    }

    /// Why the list of models may not be requested; `None`: it may. It never is with a client's
    /// credentials: these are for the client's requests only.
    pub(super) fn why_list_not_asked(&self) -> Option<&'static str> {
        let config = &self.config;
        match &config.base_url {
            None => Some("it is built in"),
            Some(_) if config.ask_models == Some(false) => Some("ask_models is false"),
            Some(base_url) if base_url.contains(MODEL_PLACEHOLDER) => {
                Some("its address has a model in it")
            }
            Some(_) if matches!(config.auth, Auth::Client) => {
                Some("its credentials are the client's")
            }
            Some(_) => None,
        }
    }

    /// Whether the catalogue has models of this provider.
    pub(super) fn is_catalogued(&self, catalogue: &WindowTable) -> bool {
        catalogue.has_provider(&self.catalogue_name)
    }

    /// Its models in the catalogue.
    pub(super) fn list_catalogue_models<'c>(
        &self,
        catalogue: &'c WindowTable,
    ) -> impl Iterator<Item = &'c str> {
        catalogue.list_models(&self.catalogue_name)
    }

    /// The window of a model in the built-in list, else in the catalogue.
    pub(super) fn find_window(&self, model: &str, catalogue: &WindowTable) -> Option<Window> {
        let mut built_in = self.built_in_models().iter();
        match built_in.find(|(name, _)| *name == model) {
            Some(&(_, tokens)) => Some(Window {
                tokens,
                input: None,
                taught: None,
                source: WindowSource::Catalogue,
            }),
            None => catalogue::look_up_window(catalogue, &self.catalogue_name, model),
        }
    }

    /// The window on which all providers in the catalogue agree, for that name or the longest known beginning of it, else
    /// that of the newest known model of the family. All but the first are guesses. `None` for servers that drop the front of
    /// a long prompt in silence: their window depends on how they were started, and no error would correct a wrong one.
    pub(super) fn find_window_elsewhere(
        &self,
        model: &str,
        catalogue: &WindowTable,
    ) -> Option<Window> {
        if !self.config.profile.refuses_overflow {
            return None;
        }
        let name = &*self.catalogue_name;
        let by_prefix = |provider| catalogue::look_up_window_by_prefix(catalogue, provider, model);
        let own = || by_prefix(Some(name));
        if !self.is_remote() {
            return own();
        }
        catalogue::look_up_window_by_name(catalogue, model)
            .or_else(own)
            .or_else(|| by_prefix(None))
            .or_else(|| catalogue::look_up_family_floor(catalogue, name, model))
    }

    /// Whether the built-in list or the catalogue has a model of exactly that name.
    pub(super) fn has_exact_model(&self, model: &str, catalogue: &WindowTable) -> bool {
        let mut built_in = self.built_in_models().iter();
        built_in.any(|(name, _)| *name == model)
            || catalogue.find_exact(&self.catalogue_name, model).is_some()
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// No answer began.
    pub async fn send_request(
        &self,
        outgoing: OutgoingRequest,
    ) -> Result<Response<Body>, UpstreamError> {
        match &self.transport {
            Transport::Remote(client) => client.send_with_resend(&self.name, outgoing).await,
            Transport::Simulated => simulate_answer(outgoing).await,
        }
    }
}

async fn simulate_answer(outgoing: OutgoingRequest) -> Result<Response<Body>, UpstreamError> {
    let body = match outgoing.body {
        Payload::Empty => Bytes::new(),
        Payload::Whole(rope) | Payload::Once(rope) => rope.to_bytes(),
        Payload::Stream(upload) => Limited::new(upload, MAX_SIMULATED_BODY)
            .collect()
            .await
            .map_err(|_| UpstreamError::BodyBroken)?
            .to_bytes(),
    };
    let uri = format!("/v1{}", outgoing.path);
    let request = Request::builder().method(outgoing.method).uri(uri);
    let provider = SIMULATED.to_owned();
    let mut request = request.body(body).map_err(|_| UpstreamError::Unreachable {
        provider,
        cause: String::new(),
        connected: false,
    })?;
    *request.headers_mut() = outgoing.headers;
    Ok(simulated::answer_request(request).await)
}
