//! Answers a client that asks for its conversation to be compacted, in place of a provider that may not know how.
//!
//! The answer is one entry whose text replaces the conversation. If compaction is on, the text is a summary, made by its
//! model and within its limits; else it is a ledger. No failure of a summary fails the request. A stream begins at once and
//! has comments while a summary is made. When the entry comes back, `Format::index_body` makes a message of it, so nothing
//! is kept here.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::keepalive_stream::stream_while_waiting;
use crate::{
    compaction::SummaryCost,
    conversation::Conversation,
    format::{responses::answer::CompactionReply, usage::Usage},
    guard,
    http::{answer::json_response, limit::Hold},
    proxy::{
        ClientRequest, ProviderRequest, SessionContext,
        plan::{guard_policy, summary_user},
        response_headers::{ACTIONS, build_early_headers, stream_comment},
        summary::begin_whole_summary_wait,
    },
    unix_time::unix_seconds_now,
    wire::{Body, whole_body},
};

/// Which shape the answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionShape {
    /// An answer with one entry, to a request that ends in an entry that asks to compact.
    Answer,
    /// The list of `/responses/compact`.
    List,
}

/// The text that replaces a conversation.
struct CompactedText {
    text: String,
    /// The value of the header of actions.
    action: HeaderValue,
    cost: SummaryCost,
}

/// Answers a request whose conversation is to be compacted. `hold`: the body's share of the bytes in flight.
pub(in crate::proxy) async fn answer_compaction(
    request: ClientRequest,
    prepared: ProviderRequest,
    shape: CompactionShape,
    hold: Hold,
) -> Response<Body> {
    let streams = request.parsed.streams && shape == CompactionShape::Answer;
    request.notes.facts().is_stream = streams;
    let mut head = build_early_headers(&request, &prepared);
    let made = async move {
        let compacted = compact_conversation(&request, prepared).await;
        drop(hold);
        (request, compacted)
    };
    if streams {
        return stream_while_waiting(head, made, async move |(request, compacted)| {
            let events = write_reply(&request, &compacted, shape);
            let actions = HeaderMap::from_iter([(ACTIONS, compacted.action)]);
            whole_body([stream_comment(&actions).as_bytes(), &events].concat())
        });
    }
    let (request, compacted) = Box::pin(made).await;
    let mut answer = json_response(StatusCode::OK, write_reply(&request, &compacted, shape));
    head.insert(ACTIONS, compacted.action);
    answer.headers_mut().extend(head);
    answer
}

/// Makes the text that replaces the conversation. If it is to be a summary, waits for the summary.
async fn compact_conversation(
    request: &ClientRequest,
    mut prepared: ProviderRequest,
) -> CompactedText {
    let app = &request.app;
    let wait = begin_whole_summary_wait(request, &mut prepared);
    let job = wait.as_ref().map(|wait| wait.job);
    let outcome = match wait {
        Some(wait) => wait.wait_for_outcome(app).await,
        None => None,
    };
    let summary = outcome.and_then(|outcome| outcome.summary);
    if let (Some(session), true) = (&request.session, summary.is_some()) {
        app.summary_jobs
            .mark_used(&summary_user(&session.inherited));
    }
    let (content, action) = match summary {
        Some(_) => ("summary", "compaction=summary"),
        None => ("ledger", "compaction=ledger"),
    };
    if let Some(session) = &request.session {
        note_compaction(session, content, action);
    }
    let policy = guard_policy(app, &prepared.target);
    let summary = summary.as_ref().map(|summary| &*summary.text);
    let conversation = request.parsed.conversation.as_deref();
    let write = |all: &Conversation| guard::write_compaction_note(all, &policy, summary);
    CompactedText {
        text: conversation.map(write).unwrap_or_default(),
        action: HeaderValue::from_static(action),
        cost: job.map_or_else(SummaryCost::default, |id| app.summary_jobs.find_cost(id)),
    }
}

fn note_compaction(session: &SessionContext, content: &'static str, action: &str) {
    let answered = &session.app.metrics.compactions;
    answered.with_label_values(&[content]).inc();
    session.notes.facts().actions = Some(action.to_owned());
    tracing::info!(
        session = %session.inherited.session,
        "compaction: answered the client with a {content} of its conversation"
    );
}

fn write_reply(
    request: &ClientRequest,
    compacted: &CompactedText,
    shape: CompactionShape,
) -> Bytes {
    let to_count = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
    let reply = CompactionReply {
        text: &compacted.text,
        model: &request.parsed.model,
        usage: Usage {
            prompt_tokens: to_count(compacted.cost.prompt_tokens),
            completion_tokens: Some(to_count(compacted.cost.completion_tokens)),
            cached_tokens: None,
            cache_written_tokens: None,
        },
        created_s: unix_seconds_now(),
    };
    match (shape, &request.parsed.conversation) {
        (CompactionShape::List, Some(conversation)) => reply.write_list(conversation),
        _ => reply.write_answer(request.parsed.streams),
    }
}
