//! What a summary needs of a request, without the client's connection.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, Response,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};

use super::{
    client_request::ClientRequest, fallbacks::PlacedRequest, outgoing::ChatHead,
    summary_due::may_begin_after_answer,
};
use crate::{
    compaction::{SummaryClient, choose_summary_model},
    conversation::{Conversation, edit::Rope},
    http::limit::Hold,
    provider::{Target, UpstreamError},
    telemetry::trace::Trace,
    wire::Body,
};

/// Names a request, so that the same one is not carried out twice: the request for a summary is another.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A conversation, and how the summary model is asked for its summary.
pub struct SummarySource {
    pub conversation: Arc<Conversation>,
    /// The summary model.
    pub target: Target,
    head: ChatHead,
    /// Room for the body.
    _hold: Hold,
}

impl SummaryClient for SummarySource {
    async fn send_request(
        &self,
        trace: &Trace,
        body: Bytes,
    ) -> Result<Response<Body>, UpstreamError> {
        self.head
            .send_chat(trace, &self.target, Rope::from(body))
            .await
    }
}

/// Keeps what a summary needs, where one may be begun after the answer to this request.
pub fn keep_for_summary(request: &ClientRequest, placed: &PlacedRequest) -> Option<SummarySource> {
    let (session, planned) = (request.session.as_ref()?, placed.planned.as_deref()?);
    may_begin_after_answer(session, planned).then(|| summary_source(request, &placed.target))?
}

/// `None` where there is no conversation to follow, or no room for the body among the bytes in flight.
///
/// SECURITY: what a client sends in its headers and its query is for the provider of its
/// conversation, whose key may stand under any name there. No other provider gets it.
pub(super) fn summary_source(request: &ClientRequest, own: &Target) -> Option<SummarySource> {
    let followed = request.followed_conversation()?;
    let (app, conversation) = (&request.app, followed.conversation);
    let mut hold = app.inflight_bytes.begin_hold();
    if !hold.grow(conversation.body.len()) {
        return None;
    }
    let seed = followed.session.inherited.session.seed();
    let target = choose_summary_model(&app.registry, &app.config.compaction, own, seed);
    let provider = &target.provider;
    let (mut bare, ()) = Request::new(()).into_parts();
    if let Some(agent) = request.parts.headers.get(USER_AGENT) {
        bare.headers.insert(USER_AGENT, agent.clone());
    }
    let same = provider.config.base_url == own.provider.config.base_url;
    let parts = if same { &request.parts } else { &bare };
    let mut head = ChatHead::new(app, parts, provider);
    let headers = &mut head.headers;
    headers.remove(IDEMPOTENCY_KEY);
    let json = HeaderValue::from_static("application/json");
    headers.insert(ACCEPT, json.clone());
    headers.insert(CONTENT_TYPE, json);
    Some(SummarySource {
        conversation: Arc::clone(conversation),
        target,
        head,
        _hold: hold,
    })
}
