//! The parts of a request that a summary job needs. They outlive the client's connection.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, Response,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};

use crate::{
    compaction::{SummaryAsk, SummaryClient, choose_summary_model},
    conversation::{Conversation, edit::Rope},
    format::beta_header::Beta,
    http::limit::Hold,
    provider::{Payload, Target, UpstreamError},
    proxy::{
        ClientRequest, ProviderRequest,
        outgoing::{RequestHead, send_traced},
        plan::summary_due::may_begin_after_answer,
    },
    telemetry::{Operation, trace::Trace},
    wire::Body,
};

/// Keeps a provider from executing a request twice. The request for a summary is a different one, so it must not have this
/// header.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A conversation, and the request head for the summary model.
pub struct SummarySource {
    pub conversation: Arc<Conversation>,
    /// The summary model.
    pub target: Target,
    head: RequestHead,
    /// The provider's cache was filled at markers of the proxy, and is read only at such markers.
    adds_markers: bool,
    /// The betas that the header must name for the conversation as it is sent.
    pub betas: Vec<Beta>,
    /// The body's share of the bytes in flight.
    _hold: Hold,
}

impl SummaryClient for SummarySource {
    async fn send_summary_request(
        &self,
        trace: &Trace,
        body: Bytes,
        ask: SummaryAsk,
    ) -> Result<Response<Body>, UpstreamError> {
        let body = Rope::from(body);
        // No later request begins with a transcript, so a cache of it would never be read.
        let repeats = ask != SummaryAsk::OfTranscript;
        let marked = (self.adds_markers && repeats)
            .then(|| self.conversation.add_cache_markers(&body, false));
        let body = marked.flatten().unwrap_or(body);
        let mut betas = self.betas.clone();
        betas.retain(|_| repeats);
        betas.extend((ask == SummaryAsk::OfProvider).then_some(Beta::Compaction));
        let body = Payload::Whole(body);
        let outgoing = self.head.to_request(&self.target, body, &betas);
        send_traced(
            trace,
            &self.target.provider,
            Some(Operation::Chat),
            outgoing,
        )
        .await
    }
}

/// Keeps what a summary needs, if one may begin after the answer to this request.
pub(in crate::proxy) fn keep_for_summary(
    request: &ClientRequest,
    prepared: &ProviderRequest,
) -> Option<SummarySource> {
    let (session, planned) = (request.session.as_ref()?, prepared.planned.as_deref()?);
    may_begin_after_answer(session, planned).then(|| summary_source(request, &prepared.target))?
}

/// Collects what a summary needs. Returns `None` if there is no conversation to follow, or no room among the bytes in
/// flight. `chat`: the target of the conversation.
///
/// SECURITY: the client's headers and query may hold that provider's key, so no other provider gets them.
pub(super) fn summary_source(request: &ClientRequest, chat: &Target) -> Option<SummarySource> {
    let followed = request.followed_conversation()?;
    let (app, conversation) = (&request.app, followed.conversation);
    let mut hold = app.inflight_bytes.begin_hold();
    if !hold.grow(conversation.body.len()) {
        return None;
    }
    let seed = followed.session.inherited.session.seed();
    let target = choose_summary_model(
        &app.registry,
        &app.config.compaction,
        chat,
        conversation.format,
        seed,
    );
    let provider = &target.provider;
    let (mut bare, ()) = Request::new(()).into_parts();
    let version = conversation.format.rules().client_header;
    let version = version.map(HeaderName::from_static);
    for name in version.into_iter().chain([USER_AGENT]) {
        if let Some(value) = request.parts.headers.get(&name) {
            bare.headers.insert(name, value.clone());
        }
    }
    let same_provider = provider.config.base_url == chat.provider.config.base_url;
    let now = Instant::now();
    // A refused summary is not asked for again, so markers are added only if they are known to be taken.
    let adds_markers = same_provider
        && target.model == chat.model
        && provider.may_add_markers(&target.model, now)
        && provider.takes_markers(&target.model, now);
    let parts = if same_provider { &request.parts } else { &bare };
    let mut head = RequestHead::new(app, parts, provider, conversation.format);
    let headers = &mut head.headers;
    headers.remove(IDEMPOTENCY_KEY);
    let json = HeaderValue::from_static("application/json");
    headers.insert(ACCEPT, json.clone());
    headers.insert(CONTENT_TYPE, json);
    Some(SummarySource {
        conversation: Arc::clone(conversation),
        target,
        head,
        adds_markers,
        betas: Vec::new(),
        _hold: hold,
    })
}
