//! A request as its client sent it, and the session that it continues: the same at every candidate.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use http::request::Parts;

use super::{App, plan::LastRequest, request_options::RequestOptions};
use crate::{
    conversation::{Conversation, Format, IndexError},
    error::Failure,
    format::PrefixesOfAccount,
    json::scan::{JsonKind, Span},
    session::InheritedSession,
    telemetry::record::RequestNotes,
    wire::model::shallow_parse,
};

/// The body of a request, as far as it is understood.
pub struct ParsedRequest {
    pub format: Format,
    /// As it came, except that compaction entries of the proxy became messages.
    pub bytes: Bytes,
    /// `None`: JSON, but no conversation that can be followed. It is forwarded as it came.
    pub conversation: Option<Arc<Conversation>>,
    /// Empty if there is none.
    pub model: String,
    /// Where the body names the model, with its quotes; `None` if it names none.
    pub model_span: Option<Span>,
    pub streams: bool,
}

impl ParsedRequest {
    /// Finds where the client names its model, if the provider is sent another name.
    pub fn find_renamed_model(&self, sent: &str) -> Option<Span> {
        self.model_span.filter(|_| self.model != sent)
    }

    /// Copies the model's name as the client spelt it, in quotes, if the provider is sent another name.
    pub fn copy_renamed_model(&self, sent: &str) -> Option<Bytes> {
        let span = self.find_renamed_model(sent)?;
        Some(Bytes::copy_from_slice(&self.bytes[span.range()]))
    }
}

/// The session that a request continues. Unlike the body, it is kept to the end of the answer.
pub struct SessionContext {
    pub app: Arc<App>,
    pub inherited: InheritedSession,
    pub options: RequestOptions,
    /// The request that this one repeats to keep the provider's cache warm.
    pub repeated: Option<Arc<LastRequest>>,
    /// The request says which reasoning the model reads.
    pub names_reasoning: bool,
    /// For the log, the metrics and the trace.
    pub notes: RequestNotes,
}

impl SessionContext {
    /// Notes that the provider reported an error in an answer whose status is a success.
    pub fn note_provider_failed(&self) {
        self.notes.facts().provider_failed = true;
    }
}

/// A client's request, with everything that is needed to send it once or again.
pub struct ClientRequest {
    pub app: Arc<App>,
    /// The head, as it came.
    pub parts: Parts,
    pub parsed: ParsedRequest,
    /// `None` where there is no conversation to follow.
    pub session: Option<SessionContext>,
    pub notes: RequestNotes,
}

/// A conversation and the session that it continues.
#[derive(Clone, Copy)]
pub struct FollowedConversation<'a> {
    pub session: &'a SessionContext,
    pub conversation: &'a Arc<Conversation>,
}

impl ClientRequest {
    /// Whether the request must not be sent twice, nor to another provider: see [`Conversation::continues_thread`].
    pub fn continues_thread(&self) -> bool {
        let conversation = self.parsed.conversation.as_ref();
        conversation.is_some_and(|it| it.continues_thread())
    }

    /// Returns the conversation and its session; `None` if there is no conversation to follow.
    pub fn followed_conversation(&self) -> Option<FollowedConversation<'_>> {
        Some(FollowedConversation {
            session: self.session.as_ref()?,
            conversation: self.parsed.conversation.as_ref()?,
        })
    }
}

/// Indexes a body.
///
/// # Errors
/// It is not JSON.
pub fn parse_request(
    format: Format,
    mut bytes: Bytes,
    prefixes: PrefixesOfAccount<'_>,
) -> Result<ParsedRequest, Failure> {
    let indexed = format.index_known_body(bytes.clone(), prefixes);
    let (conversation, model, model_span, streams) = match indexed {
        Ok(conversation) => {
            let odd = conversation.odd_annotations();
            if odd > 0 {
                tracing::warn!(
                    annotations = odd,
                    "annotations removed and not understood: {odd}; use an object with name (text) and priority \
                     (critical, high, medium or low)"
                );
            }
            bytes.clone_from(&conversation.body);
            let model = conversation.model();
            let model = model.map_or_else(String::new, Cow::into_owned);
            let named = conversation.find_field("model");
            let named = named.filter(|field| field.kind == JsonKind::String);
            let span = named.map(|field| field.value);
            let streams = conversation.asks_for_stream();
            (Some(Arc::new(conversation)), model, span, streams)
        }
        Err(IndexError::NotJson(position)) => return Err(Failure::NotJson(position)),
        Err(IndexError::Unguardable(reason)) => {
            tracing::warn!(%reason, "request forwarded without the guard: {reason}");
            let shallow = shallow_parse(&bytes);
            (
                None,
                shallow.named.model,
                shallow.named.span,
                shallow.streams,
            )
        }
    };
    Ok(ParsedRequest {
        format,
        bytes,
        conversation,
        model,
        model_span,
        streams,
    })
}
