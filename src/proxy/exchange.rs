//! One request from its first byte to its last. Read this file first.
//!
//! `server/handle.rs` has found out who sent the request and who answers it (step 1), and calls
//! [`exchange_chat`] for a chat completion, which goes these steps:
//!
//! 1. who sent it, and who answers
//! 2. the body, within limits
//! 3. the index: where everything lies in it
//! 4. the model: who serves it, and how much it holds
//! 5. the session that it continues
//! 6. what recovery has due, and the guard's plan with it
//! 7. the summary of its older part, where it waits for one; back to 6 with it
//! 8. the provider; once more where it refuses what the proxy added
//! 9. the answer, back as it comes, while it is read. Calls of the proxy's tools are taken out of it;
//!    where nothing else is in it, back to 6 for the next turn. At its end it is judged, the clock
//!    advances, and the new state is stored
//!
//! Each step gives its values to the next: a [`ClientRequest`], made ready for one place as a
//! [`PlacedRequest`](super::fallbacks::PlacedRequest), with a [`PlannedRequest`] in it. An edited body is a rope of
//! the client's own bytes and new ones. Until an answer began nothing has reached the client, so a step may still
//! fail with an answer of the proxy's own; a stream that waits for its summary has its head before (step 7).

use std::sync::Arc;

use futures_util::FutureExt;
use http::{HeaderMap, Response, request::Parts};

use super::{
    App,
    client_request::{ClientRequest, ParsedRequest, SessionContext, parse_request},
    dispatch::{AnsweredRequest, send_with_fallbacks},
    fallbacks::Fallbacks,
    keepalive_stream::{WaitingRequest, answer_while_waiting},
    outgoing::chosen_provider,
    plan::PlannedRequest,
    provider_reply::is_stream,
    request_options::RequestOptions,
    response_headers::{TRAILERS, build_head_headers},
    settle::{AnswerEnd, settle_answer, settle_stream},
    summary_source::{SummarySource, keep_for_summary},
    tool_loop::ToolLoop,
    wait_for_summary::{begin_summary_wait, wait_for_summary},
};
use crate::{
    conversation::Format,
    error::Failure,
    http::{
        admission::{Client, allows_target, no_such_model},
        answer,
        body::RequestBody,
        limit::Hold,
    },
    provider::Target,
    relay::{
        self, AnswerFilter, AssistantTurn, BufferedAnswer, Ending, FooterOptions, PrecedingText,
        ResponseSummary, StreamFooter,
    },
    session::{self, InheritedSession, SessionHint},
    telemetry::record::RequestRecord,
    wire::{Body, model::find_model_in_query, shallow_parse::count_model_names, whole_body},
};

/// A chat completion, before its body is read.
pub struct IncomingChat<'a> {
    pub parts: Parts,
    pub body: &'a mut RequestBody,
    pub client: &'a Client,
    /// The provider that the path names.
    pub provider: Option<String>,
}

/// Answers a chat completion.
///
/// # Errors
/// The proxy answers it, with an error.
pub async fn exchange_chat(
    app: &Arc<App>,
    request: IncomingChat<'_>,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let IncomingChat {
        parts,
        body,
        client,
        provider,
    } = request;

    // 2. The body, within limits.
    let limits = &app.config.server;
    let received = body
        .read_unpacked(&parts.headers, limits, &app.inflight_bytes)
        .await?;

    // 3. The index.
    let parsed = parse_request(Format::Chat, received.bytes)?;
    record.set_model(&parsed.model);

    // 4. The model.
    let chosen = provider
        .as_deref()
        .or_else(|| chosen_provider(&parts.headers));
    let mut choice = app.registry.choose_candidates(&parsed.model, chosen)?;
    // SECURITY: a key for some models must not reach another by a parser's choice of two names, nor
    // by one in the query, which some gateways prefer to the body's.
    let in_query = find_model_in_query(parts.uri.query().unwrap_or_default());
    let one = in_query.is_certain && in_query.model.is_none();
    let plain = client.is_unlimited() || (one && count_model_names(&parsed.bytes) == 1);
    let made = choice.asked_is_configured;
    let may_use =
        |target: &Target| allows_target(&app.registry, client, &parsed.model, made, target);
    if !plain || !choice.retain_permitted(may_use) {
        return Err(no_such_model(&parsed.model));
    }

    // 5. The session.
    let inherited = {
        let _child = record.notes().trace.begin_child("plimsoll.store.find");
        find_session(app, &parsed, &parts, client).await
    };
    if let Some(inherited) = &inherited {
        pull_from_replicas(app, inherited).await;
    }

    // 6. What is due, and the plan. A session stays where its cache is warm.
    let mut targets = choice.order_by_seed(inherited.as_ref().map_or(0, |it| it.session.seed()));
    // Looked up again after waiting: whoever heard of a smaller window meanwhile may be another request.
    for target in &mut targets {
        target.window = app.registry.current_window(target);
    }
    let notes = record.notes().clone();
    let options = RequestOptions::from_headers(&parts.headers, client.has_recovery());
    let session = inherited.map(|inherited| SessionContext {
        app: Arc::clone(app),
        inherited,
        options,
        notes: notes.clone(),
    });
    let request = ClientRequest {
        app: Arc::clone(app),
        parts,
        parsed,
        session,
        notes,
    };
    // Planned for the first place; for the others only once they are asked.
    let mut fallbacks = Fallbacks::new(&request, targets);
    let mut placed = fallbacks
        .plan_first_candidate(&request)
        .ok_or_else(|| no_such_model(&request.parsed.model))?;

    // 7. Its summary first, where that is waited for. A stream begins at once.
    if let Some(wait) = begin_summary_wait(&request, &mut placed) {
        if request.parsed.streams {
            let waiting = WaitingRequest {
                request,
                placed,
                fallbacks,
                wait,
            };
            let relay = |request, answered| relay_stream(request, answered, received.hold);
            return Ok(answer_while_waiting(waiting, relay));
        }
        wait_for_summary(&request, &mut placed, wait).await;
    }

    // 8. The provider.
    let answered = Box::pin(send_with_fallbacks(&request, placed, fallbacks)).await?;

    // 9. The answer.
    if is_stream(&answered.reply.answer, request.parsed.streams) {
        Ok(relay_stream(request, answered, received.hold))
    } else {
        Box::pin(relay_whole(request, answered, received.hold)).await
    }
}

/// Step 5. `None` where there is no conversation to follow.
async fn find_session(
    app: &App,
    parsed: &ParsedRequest,
    parts: &Parts,
    client: &Client,
) -> Option<InheritedSession> {
    let conversation = parsed.conversation.as_ref()?;
    let client = session::ClientIdentity::from_headers(client.name.as_deref(), &parts.headers);
    let tenants = app.sessions.tenants();
    let tenant = tenants.derive_tenant(client, &parts.headers, Some(conversation));
    let hint = SessionHint::from_request(&parts.headers, Some(conversation));
    Some(
        app.sessions
            .inherit_session(conversation, &tenant, hint.as_ref())
            .await,
    )
}

/// Step 5, what no session owns: takes over what other replicas learnt.
async fn pull_from_replicas(app: &App, inherited: &InheritedSession) {
    // Where the store does not answer, it is not waited for twice.
    if !inherited.store_failed {
        let passed = !inherited.lineage.probes().is_empty();
        app.replica_sync.pull(&app.registry, passed).await;
    }
}

/// Step 9, streamed. What precedes the first byte of the stream is said here; what its end tells
/// comes in trailers, or in a comment.
fn relay_stream(request: ClientRequest, answered: AnsweredRequest, hold: Hold) -> Response<Body> {
    let AnsweredRequest { mut reply, placed } = answered;
    request.notes.facts().is_stream = true;
    let (Some(session), Some(planned)) = (&request.session, &placed.planned) else {
        return relay::stream_answer(reply.answer, Ending::without_effects());
    };
    let foot = FooterOptions {
        trailers: match answer::accepts_trailers(&request.parts.headers) {
            true => TRAILERS,
            false => &[],
        },
        max_wait: request.app.config.store.save_timeout(),
    };
    let head = build_head_headers(session, planned, &reply);
    reply.answer.headers_mut().extend(head);
    let sifting = planned.answer_filter();
    if sifting.is_active() {
        let continuing = ToolLoop {
            request,
            placed,
            streamed: true,
            // The request may go out again, so that its body is kept.
            hold: Some(hold),
        };
        let continuing = Box::new(continuing);
        return relay::stream_filtered_answer(
            reply.answer,
            sifting,
            continuing,
            reply.asked_usage,
            foot,
        );
    }
    let left_out = placed.left_out_tokens(&request.app.config.guard);
    let source = keep_for_summary(&request, &placed);
    // The body is let go.
    let (session, planned) = (request.session, placed.planned);
    let ending = Ending {
        strip_usage: reply.asked_usage,
        left_out,
        footer: foot,
        on_end: Box::new(move |heard| end_stream(session, planned, heard, source).boxed()),
    };
    relay::stream_answer(reply.answer, ending)
}

/// The end of a stream of which nothing was taken out.
async fn end_stream(
    session: Option<SessionContext>,
    planned: Option<Box<PlannedRequest>>,
    heard: ResponseSummary,
    source: Option<SummarySource>,
) -> StreamFooter {
    let (Some(session), Some(planned)) = (session, planned) else {
        return StreamFooter::default();
    };
    let end = AnswerEnd {
        heard: &heard,
        last: &AssistantTurn::default(),
        before: PrecedingText::default(),
        source,
    };
    settle_stream(&session, *planned, end).await
}

/// Step 9, in one piece: all of it is known before its head is released.
async fn relay_whole(
    request: ClientRequest,
    answered: AnsweredRequest,
    mut hold: Hold,
) -> Result<Response<Body>, Failure> {
    let AnsweredRequest { reply, placed } = answered;
    let mut left = request.app.config.server.max_body_bytes;
    let room = |bytes| {
        left = left.saturating_sub(bytes);
        left > 0 && hold.grow(bytes)
    };
    let provider = placed.target.provider.name.clone();
    let mut head_of_first = HeaderMap::new();
    let mut sifting = AnswerFilter::default();
    if let (Some(session), Some(planned)) = (&request.session, &placed.planned) {
        head_of_first = build_head_headers(session, planned, &reply);
        sifting = planned.answer_filter();
    }
    let mut continuing = ToolLoop {
        request,
        placed,
        streamed: false,
        hold: None,
    };
    let (read, last, before) = if sifting.is_active() {
        relay::buffer_filtered_answer(reply.answer, sifting, &mut continuing, &provider, room)
            .await?
    } else {
        let read = relay::buffer_answer(reply.answer, &provider, room).await?;
        (read, AssistantTurn::default(), PrecedingText::default())
    };
    let ToolLoop {
        request, placed, ..
    } = continuing;
    let (mut answer, heard) = match read {
        BufferedAnswer::Complete {
            mut head,
            body,
            summary: heard,
        } => {
            let is_success = head.status.is_success();
            let left_out = placed
                .left_out_tokens(&request.app.config.guard)
                .filter(|_| is_success);
            let body = relay::add_left_out_tokens(&mut head.headers, body, left_out);
            let heard = (is_success && !heard.error).then_some(heard);
            (
                Response::from_parts(head, whole_body(hold.attach_to_bytes(body))),
                heard,
            )
        }
        BufferedAnswer::Overlong(answer) => (answer.map(|body| hold.attach_to_body(body)), None),
    };
    let source = keep_for_summary(&request, &placed);
    let (Some(session), Some(planned)) = (&request.session, placed.planned) else {
        return Ok(answer);
    };
    if answer.status().is_success() && heard.is_none() {
        session.note_provider_failed();
    }
    let headers = answer.headers_mut();
    headers.extend(head_of_first);
    if let Some(heard) = heard {
        let end = AnswerEnd {
            heard: &heard,
            last: &last,
            before,
            source,
        };
        let foot = settle_answer(session, *planned, end).await;
        for name in TRAILERS {
            headers.remove(*name);
        }
        headers.extend(foot);
    }
    Ok(answer)
}
