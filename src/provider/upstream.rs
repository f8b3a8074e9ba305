//! A provider: its requests, and why an answer did not begin. It is reached over the network or built
//! in; callers see no difference.

use std::{
    io,
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Limited, combinators::BoxBody};
use lru::LruCache;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;

use super::{
    SIMULATED, Window, WindowSource,
    breaker::Breaker,
    catalogue::{self, table::WindowTable},
    marker_support::MarkerSupport,
    simulated,
    upstream_client::UpstreamClient,
    warnings,
};
use crate::{
    config::{Auth, CacheMarkers, ProviderConfig, profile::AnswerFilling},
    conversation::edit::Rope,
    error::{Failure, TimeoutStage},
    wire::Body,
};

/// Bytes of a streamed request that the simulated provider reads.
const MAX_SIMULATED_BODY: usize = 1 << 20;

/// Models of one provider of which it is remembered what they refuse.
const MAX_KNOWN_MODELS: NonZeroUsize = NonZeroUsize::new(1_024).expect("not zero");

/// Stands for the model's name in a base URL.
const MODEL_PLACEHOLDER: &str = "{model}";

/// The characters that are percent-encoded where a model's name becomes a segment of a path.
const SEGMENT_ENCODE_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

#[derive(Debug)]
pub struct Provider {
    pub name: Arc<str>,
    /// Name and address: the key of what is learnt about this provider. It outlives other settings.
    pub endpoint: Arc<str>,
    pub config: ProviderConfig,
    pub breaker: Breaker,
    /// When a server on this machine last could not be reached: milliseconds since 1970, 0 for never. What it had in its
    /// memory is gone since then.
    pub unreachable_ms: AtomicU64,
    /// The catalogue's name for this provider.
    catalogue_name: String,
    /// Models that refuse `stream_options`. In memory only: after a restart one request for each learns
    /// it again.
    usage_refused: Mutex<LruCache<Box<str>, ()>>,
    /// Models that refuse to be asked to drop thinking. In memory only, too.
    drop_refused: Mutex<LruCache<Box<str>, ()>>,
    /// What models taught of the members that are added to answers, whatever their names say. In memory only, too.
    answer_filling: Mutex<LruCache<Box<str>, AnswerFilling>>,
    marker_support: MarkerSupport,
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Remote(Box<UpstreamClient>),
    Simulated,
}

/// A request for a provider.
pub struct OutgoingRequest {
    pub method: Method,
    /// The part after the base URL, with the query.
    pub path: String,
    /// Made by [`super::headers::filter_for_provider`].
    pub headers: HeaderMap,
    pub body: Payload,
    /// Replaces `{model}` in the base URL.
    pub model: Option<String>,
}

pub enum Payload {
    Empty,
    /// Sent with its exact length.
    Whole(Rope),
    /// Sent as it comes, and so never twice.
    Stream(Upload),
}

/// Why no answer began.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpstreamError {
    #[error("{provider} could not be reached")]
    Unreachable { provider: String },
    #[error("{provider} did not answer in time")]
    Timeout {
        provider: String,
        wait: TimeoutStage,
        limit: Duration,
    },
    #[error("{provider} does not speak HTTP")]
    Garbage { provider: String },
    #[error("the request's body broke off")]
    BodyBroken,
    #[error("the request's body came too slowly")]
    BodySlow { limit: Duration },
    #[error("{provider} has the model in its address, and the request names none that fits there")]
    NoModel { provider: String },
}

impl UpstreamError {
    /// The name in traces.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Garbage { .. } => "no_http",
            Self::BodyBroken => "body_incomplete",
            Self::BodySlow { .. } => "body_timeout",
            Self::NoModel { .. } => "model_required",
        }
    }
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        use UpstreamError as Error;
        let what = "it does not speak HTTP";
        match error {
            Error::Unreachable { provider } => Self::ProviderUnreachable { provider },
            Error::Timeout {
                provider,
                wait,
                limit,
            } => Self::ProviderTimeout {
                provider,
                wait,
                limit,
            },
            Error::Garbage { provider } => Self::ProviderBadAnswer { provider, what },
            Error::BodyBroken => Self::BodyBroken,
            Error::BodySlow { limit } => Self::BodySlow { limit },
            Error::NoModel { provider } => Self::ModelMissing { provider },
        }
    }
}

/// A streamed request body. Its errors are those of the client that sends it.
pub type Upload = BoxBody<Bytes, UpstreamError>;

impl Provider {
    /// # Errors
    /// The TLS roots of this machine cannot be read.
    pub(super) fn new(name: &str, config: &ProviderConfig) -> io::Result<Self> {
        let transport = match &config.base_url {
            Some(base_url) => Transport::Remote(Box::new(UpstreamClient::new(base_url, config)?)),
            None => Transport::Simulated,
        };
        Ok(Self {
            name: name.into(),
            endpoint: format!("{name} {}", config.base_url.as_deref().unwrap_or_default()).into(),
            catalogue_name: catalogue::find_provider_name(name, config.base_url.as_deref()),
            config: config.clone(),
            breaker: Breaker::new(config.breaker_failures, config.breaker_open),
            unreachable_ms: AtomicU64::new(0),
            usage_refused: Mutex::new(LruCache::new(MAX_KNOWN_MODELS)),
            drop_refused: Mutex::new(LruCache::new(MAX_KNOWN_MODELS)),
            answer_filling: Mutex::new(LruCache::new(MAX_KNOWN_MODELS)),
            marker_support: MarkerSupport::new(MAX_KNOWN_MODELS),
            transport,
        })
    }

    /// Whether the server runs on this machine, so that its memory is gone once it was away.
    pub fn is_on_this_machine(&self) -> bool {
        let address = self.config.base_url.as_deref().map(str::parse);
        matches!(address, Some(Ok(ref uri)) if warnings::is_on_this_machine(uri))
    }

    /// Whether a model refused `stream_options`.
    pub fn refuses_usage(&self, model: &str) -> bool {
        self.usage_refused.lock().get(model).is_some()
    }

    /// A model refused `stream_options`: its streams are not asked for usage again.
    pub fn note_usage_refused(&self, model: &str) {
        let provider = &*self.name;
        tracing::info!(
            provider,
            model,
            "stream_options refused; streams go on without usage"
        );
        self.usage_refused.lock().put(model.into(), ());
    }

    /// Whether a model refused to be asked to drop thinking that does not fit any more.
    pub fn refuses_to_drop_thinking(&self, model: &str) -> bool {
        self.drop_refused.lock().get(model).is_some()
    }

    /// A model refused it: it is not asked again.
    pub fn note_drop_refused(&self, model: &str) {
        self.drop_refused.lock().put(model.into(), ());
    }

    /// Which answers of a request get members that they lack: a model may have refused an answer without, or with them.
    pub fn answer_filling(&self, model: &str) -> AnswerFilling {
        let known = self.answer_filling.lock().get(model).copied();
        known.unwrap_or_default()
    }

    /// A model took a request only so.
    pub fn note_answer_filling(&self, model: &str, filling: AnswerFilling) {
        self.answer_filling.lock().put(model.into(), filling);
    }

    /// Whether the proxy may add cache markers to the requests of a model: as configured, and where it is not known to
    /// refuse them.
    pub fn may_add_markers(&self, model: &str, now: Instant) -> bool {
        self.config.cache_markers == CacheMarkers::Auto
            && self.marker_support.takes_markers(model, now) != Some(false)
    }

    /// Whether a model is known to take cache markers of the proxy.
    pub fn takes_markers(&self, model: &str, now: Instant) -> bool {
        self.marker_support.takes_markers(model, now) == Some(true)
    }

    /// A model answered a request with cache markers of the proxy, or (not `taken`) the same request only without them.
    pub fn note_markers(&self, model: &str, taken: bool, now: Instant) {
        self.marker_support.note_markers(model, taken, now);
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

    /// The window of a model in the built-in list, else in the catalogue.
    pub(super) fn find_window(&self, model: &str, catalogue: &WindowTable) -> Option<Window> {
        let mut built_in = self.built_in_models().iter();
        match built_in.find(|(name, _)| *name == model) {
            Some(&(_, tokens)) => Some(Window {
                tokens,
                input: None,
                source: WindowSource::Catalogue,
            }),
            None => catalogue::look_up_window(catalogue, &self.catalogue_name, model),
        }
    }

    /// The window on which all providers in the catalogue agree, for that name or the longest known beginning of it, else
    /// that of the newest known model of the family. The last two are guesses. `None` for servers that drop the front of a long prompt in silence:
    /// their window depends on how they were started, and no error would correct a wrong one.
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
        // What other providers say of a name may not hold for a server on this machine.
        let by_name = || catalogue::look_up_window_by_name(catalogue, model);
        let named = Some(())
            .filter(|()| self.is_remote())
            .and_then(|()| by_name());
        let found = named.or_else(|| by_prefix(Some(name)));
        if found.is_some() || !self.is_remote() {
            return found;
        }
        by_prefix(None).or_else(|| catalogue::look_up_family_floor(catalogue, name, model))
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
            Transport::Remote(client) => client.send_request(&self.name, outgoing).await,
            Transport::Simulated => simulate_answer(outgoing).await,
        }
    }
}

/// The address of a path (with its query) below a base URL; the model replaces `{model}`. `None`: the
/// base URL needs a model, and the request has none that fits.
///
/// SECURITY: a name cannot leave its segment of the path: separators are encoded. A name of dots alone
/// is refused, since servers read it as a dot segment in any encoding.
pub(super) fn build_address(base_url: &str, path: &str, model: Option<&str>) -> Option<String> {
    if !base_url.contains(MODEL_PLACEHOLDER) {
        return Some(format!("{base_url}{path}"));
    }
    let model = model.filter(|model| !model.chars().all(|c| c == '.'))?;
    let model = utf8_percent_encode(model, SEGMENT_ENCODE_SET).to_string();
    Some(base_url.replace(MODEL_PLACEHOLDER, &model) + path)
}

async fn simulate_answer(outgoing: OutgoingRequest) -> Result<Response<Body>, UpstreamError> {
    let body = match outgoing.body {
        Payload::Empty => Bytes::new(),
        Payload::Whole(rope) => rope.to_bytes(),
        Payload::Stream(upload) => Limited::new(upload, MAX_SIMULATED_BODY)
            .collect()
            .await
            .map_err(|_| UpstreamError::BodyBroken)?
            .to_bytes(),
    };
    let uri = format!("/v1{}", outgoing.path);
    let request = Request::builder().method(outgoing.method).uri(uri);
    let provider = SIMULATED.to_owned();
    let mut request = request
        .body(body)
        .map_err(|_| UpstreamError::Unreachable { provider })?;
    *request.headers_mut() = outgoing.headers;
    Ok(simulated::answer_request(request).await)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::Url;

    use super::build_address;

    const AZURE: &str = "https://mine.openai.azure.com/openai/deployments/{model}";

    #[test]
    fn the_model_is_put_into_the_address() {
        let check = |base_url: &str, model: Option<&str>, expected: Option<&str>| {
            let found = build_address(base_url, "/chat/completions?a=b", model);
            assert_eq!(found.as_deref(), expected, "{base_url} {model:?}");
        };
        let plain = "https://api.openai.com/v1";
        let full = Some("https://api.openai.com/v1/chat/completions?a=b");
        check(plain, Some("gpt-4o"), full);
        check(plain, None, full);
        let start = "https://mine.openai.azure.com/openai/deployments";
        let full = format!("{start}/gpt-4.1_x~y/chat/completions?a=b");
        check(AZURE, Some("gpt-4.1_x~y"), Some(&full));
        let full = format!("{start}/a%2Fb%3Fc%23d%25%20%C3%A9/chat/completions?a=b");
        check(AZURE, Some("a/b?c#d% é"), Some(&full));
        for none in [None, Some(""), Some("."), Some("..")] {
            check(AZURE, none, None);
        }
    }

    proptest! {
        #[test]
        fn a_model_never_leaves_its_segment(model in ".*") {
            if let Some(address) = build_address(AZURE, "/x", Some(&model)) {
                let url = Url::parse(&address).unwrap();
                let path: Vec<_> = url.path().split('/').collect();
                prop_assert_eq!(path.len(), 5, "{}", url);
                prop_assert_eq!(&path[..3], ["", "openai", "deployments"]);
                prop_assert_eq!(path[4], "x");
                prop_assert_eq!(url.host_str(), Some("mine.openai.azure.com"));
                prop_assert!(url.query().is_none() && url.fragment().is_none());
            }
        }
    }
}
