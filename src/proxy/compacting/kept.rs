//! What a summary needs of a request, kept until its answer is there.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderName, HeaderValue, Request,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
    request::Parts,
};

use crate::{
    http::{body, inflight_bytes::Hold},
    provider::Provider,
    proxy::{
        App,
        dispatch::Dispatch,
        outgoing::{outgoing_headers, with_query},
    },
    wire::chat::Conversation,
};

/// Names a request, so that the same one is not carried out twice: a summary is another.
const IDEMPOTENCY: HeaderName = HeaderName::from_static("idempotency-key");

/// One request, without its connection.
pub struct Kept {
    pub(super) conversation: Arc<Conversation>,
    /// As the client sent it: its address and its headers.
    parts: Parts,
    /// Room for the body.
    _hold: Hold,
}

impl Kept {
    /// `None` where there is no room for the body among the bytes in flight.
    fn new(app: &App, conversation: &Arc<Conversation>, parts: &Parts) -> Option<Self> {
        let mut hold = app.flight.hold();
        if !hold.grow(conversation.body.len()) {
            return None;
        }
        // What else stands in the parts belongs to the client's connection.
        let (mut own, ()) = Request::new(()).into_parts();
        own.uri = parts.uri.clone();
        own.headers = parts.headers.clone();
        Some(Self {
            conversation: Arc::clone(conversation),
            parts: own,
            _hold: hold,
        })
    }

    /// The path and the headers for a provider: as the request's own, with its credentials where
    /// that provider gets them.
    ///
    /// SECURITY: what a client says in its headers and its query is for the provider of its
    /// conversation, `own`, whose key may stand under any name there. No other one is told.
    pub(super) fn way(
        &self,
        app: &App,
        own: &Provider,
        provider: &Provider,
    ) -> (String, HeaderMap) {
        let (mut bare, ()) = Request::new(()).into_parts();
        let agent = self.parts.headers.get(USER_AGENT);
        bare.headers
            .extend(agent.map(|agent| (USER_AGENT, agent.clone())));
        let same = provider.config.base_url == own.config.base_url;
        let parts = if same { &self.parts } else { &bare };
        let path = with_query(app, "/chat/completions", parts, provider);
        let mut headers = outgoing_headers(app, parts, provider, true);
        body::without_encoding(&mut headers);
        headers.remove(IDEMPOTENCY);
        let json = HeaderValue::from_static("application/json");
        headers.insert(ACCEPT, json.clone());
        headers.insert(CONTENT_TYPE, json);
        (path, headers)
    }
}

impl Dispatch {
    /// Keeps what a summary needs, where one may come of this request once its answer is there.
    pub fn keep(&self) -> Option<Kept> {
        let generation = self.generation.as_ref()?;
        generation.may_compact().then(|| self.kept())?
    }

    /// Keeps it in any case.
    pub(super) fn kept(&self) -> Option<Kept> {
        let conversation = self.asked.conversation.as_ref()?;
        Kept::new(&self.app, conversation, &self.parts)
    }
}
