//! One request from its first byte to its last. Read this file first.
//!
//! `server/handle.rs` finds the client and the route (step 1), and calls [`exchange_conversation`] for one with a
//! conversation, which goes these steps:
//!
//! 1. the client and the route
//! 2. the body, within limits
//! 3. the index: where every field and message lies in the body
//! 4. the model: its candidates and their windows
//! 5. the session that the conversation continues
//! 6. the plan: what recovery adds, and what the guard cuts. A request by which the client compacts its conversation,
//!    where the proxy does that, is answered here
//! 7. the summary of the older part, where the request waits for one; back to 6 with it
//! 8. the provider; again where it refuses what the proxy added
//! 9. the answer, relayed as it comes. Calls of the proxy's tools are taken out of it; where it calls nothing else,
//!    back to 6 for the next turn. At its end its usage is judged, recovery's clock advances, and the new state is
//!    stored
//!
//! Each step passes its values to the next: a [`ClientRequest`], made ready for one candidate as a
//! [`PlacedRequest`](super::PlacedRequest), with a [`PlannedRequest`](super::PlannedRequest) in it. An edited body is
//! a rope of the client's bytes and new ones. Before an answer begins nothing has reached the client, so a step may
//! still fail with an error of the proxy. The exception is a stream that waits for its summary (step 7).

use std::sync::Arc;

use futures_util::FutureExt;
use http::{HeaderMap, Response, request::Parts};

use super::{
    App, ClientRequest, CompactionShape, GuardMode, SessionContext,
    answer_compaction::answer_compaction,
    client_request::{ParsedRequest, parse_request},
    dispatch::{AnsweredRequest, send_with_fallbacks},
    fallbacks::Fallbacks,
    keepalive_stream::answer_while_waiting,
    outgoing::chosen_provider,
    provider_reply::is_stream,
    request_options::RequestOptions,
    response_headers::{TRAILERS, build_head_headers},
    settle::{AnswerEnd, settle_answer, settle_stream},
    summary_source::keep_for_summary,
    tool_loop::ToolLoop,
    wait_for_summary::{begin_summary_wait, wait_for_summary},
};
use crate::{
    config::ClientCompaction,
    conversation::Format,
    error::Failure,
    http::{
        admission::{Client, allows_target, no_such_model},
        answer,
        body::{ReceivedBody, RequestBody},
        limit::Hold,
        tasks::run_beside_tasks,
    },
    provider::Target,
    relay::{self, AnswerFilter, BufferedAnswer, Ending, FooterOptions, StreamOptions},
    session::{self, InheritedSession, SessionHint},
    telemetry::record::RequestRecord,
    wire::{
        Body,
        model::{find_model_in_query, shallow_parse},
        whole_body,
    },
};

/// A request with a conversation, before its body is read.
pub struct IncomingRequest<'a> {
    pub format: Format,
    pub parts: Parts,
    pub client: &'a Client,
    /// The provider that the path names.
    pub provider: Option<String>,
    /// How it is answered where the client compacts and the proxy answers that.
    pub compaction: CompactionShape,
}

/// Answers a request with a conversation.
///
/// # Errors
/// The exchange fails before an answer began.
pub async fn exchange_conversation(
    app: &Arc<App>,
    incoming: IncomingRequest<'_>,
    body: &mut RequestBody,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    // 2. The body, within limits.
    let (headers, limits) = (&incoming.parts.headers, &app.config.server);
    let read = body.read_unpacked(headers, limits, &app.inflight_bytes);
    let received = read.await?;
    exchange_body(app, incoming, received, record).await
}

/// The same for a body that was read.
///
/// # Errors
/// The exchange fails before an answer began.
pub async fn exchange_body(
    app: &Arc<App>,
    incoming: IncomingRequest<'_>,
    received: ReceivedBody,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let (parts, client) = (incoming.parts, incoming.client);

    // 3. The index.
    let (size, format) = (received.bytes.len(), incoming.format);
    let parsed = run_beside_tasks(size, || parse_request(format, received.bytes))?;
    record.set_model(&parsed.model);

    // 4. The model.
    let in_path = incoming.provider.as_deref();
    let chosen = in_path.or_else(|| chosen_provider(&parts.headers));
    let mut choice = app.registry.choose_candidates(&parsed.model, chosen)?;
    // SECURITY: a limited key needs exactly one model name, in the body. Parsers differ in which of two names they take,
    // and some gateways prefer a name in the query.
    let in_query = || find_model_in_query(parts.uri.query().unwrap_or_default());
    let is_certain = client.is_unlimited()
        || (in_query().names == 0 && shallow_parse(&parsed.bytes).named.names == 1);
    let is_configured = choice.asked_is_configured;
    let may_use = |target: &Target| {
        allows_target(&app.registry, client, &parsed.model, is_configured, target)
    };
    if !is_certain || !choice.retain_permitted(may_use) {
        return Err(no_such_model(&parsed.model));
    }
    choice.retain_speakers(parsed.format)?;

    // 5. The session, and what other replicas learnt.
    let span = record.notes().trace.begin_child("plimsoll.store.find");
    let inherited = find_session(app, &parsed, &parts, client).await;
    drop(span);
    // A store that just failed is not waited for again.
    if let Some(inherited) = &inherited
        && !inherited.store_failed
    {
        let passed = !inherited.lineage.probes().is_empty();
        app.replica_sync.pull(&app.registry, passed).await;
    }

    // 6. The plan. The seed keeps a session at the candidate whose prompt cache is warm.
    let session = inherited.as_ref().map(|inherited| inherited.session);
    let seed = session.map_or(0, |session| session.seed());
    let deployments = choice.deployments().len();
    let mut targets = choice.order_by_seed(seed);
    // Looked up again, since another request may have learnt a smaller window in the meantime.
    for target in &mut targets {
        target.window = app.registry.current_window(target);
    }
    let notes = record.notes().clone();
    let options = RequestOptions::from_headers(&parts.headers, client.has_recovery());
    let compacts = options.mode == GuardMode::Guard && answers_compaction(app, &parsed);
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
    // Planned for the first candidate; for the others only when they are asked.
    let mut fallbacks = Fallbacks::new(&request, targets, deployments);
    let placed = fallbacks.plan_first_candidate(&request);
    let mut placed = placed.ok_or_else(|| no_such_model(&request.parsed.model))?;

    // A compaction is answered here, and by no provider.
    if compacts {
        let (shape, hold) = (incoming.compaction, received.hold);
        return Ok(Box::pin(answer_compaction(request, placed, shape, hold)).await);
    }

    // 7. The summary, where the request waits for one. A stream begins at once.
    if let Some(wait) = begin_summary_wait(&request, &mut placed) {
        if request.parsed.streams {
            let relay = |request, answered| relay_stream(request, answered, received.hold);
            return Ok(answer_while_waiting(
                request, placed, fallbacks, wait, relay,
            ));
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

/// Whether the client asks for its conversation to be compacted, and the proxy is to do so.
fn answers_compaction(app: &App, parsed: &ParsedRequest) -> bool {
    let conversation = parsed.conversation.as_ref();
    app.config.responses.compaction == ClientCompaction::Answer
        && app.config.guard.enabled
        && conversation.is_some_and(|conversation| conversation.can_be_compacted())
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
    let sessions = &app.sessions;
    let inherit = sessions.inherit_session(conversation, &tenant, hint.as_ref());
    let inherited = inherit.await;
    let names = &sessions.names;
    names.note_request(inherited.session, &parts.headers, conversation);
    Some(inherited)
}

/// Step 9, streamed. Headers report what is known before the stream; trailers, or a comment, what its end shows.
fn relay_stream(request: ClientRequest, answered: AnsweredRequest, hold: Hold) -> Response<Body> {
    let AnsweredRequest { mut reply, placed } = answered;
    request.notes.facts().is_stream = true;
    let asked_model = request.parsed.copy_renamed_model(&placed.target.model);
    let (Some(session), Some(planned)) = (&request.session, &placed.planned) else {
        let mut ending = Ending::without_effects(request.parsed.format);
        ending.options.asked_model = asked_model;
        return relay::stream_answer(reply.answer, ending);
    };
    let reads_trailers = answer::accepts_trailers(&request.parts.headers);
    let foot = FooterOptions {
        trailers: if reads_trailers { TRAILERS } else { &[] },
        max_wait: request.app.config.store.save_timeout(),
    };
    let head = build_head_headers(session, planned, &reply);
    reply.answer.headers_mut().extend(head);
    let (answer, strip_usage) = (reply.answer, reply.sent.usage);
    let (format, filter) = (request.parsed.format, planned.answer_filter());
    let mut options = StreamOptions {
        format,
        filter,
        strip_usage,
        left_out: None,
        asked_model,
        footer: foot,
    };
    if filter.is_active() {
        let tool_loop = Box::new(ToolLoop {
            request,
            placed,
            streamed: true,
            // The request may be sent again, so its body is kept.
            hold: Some(hold),
        });
        return relay::stream_filtered_answer(answer, tool_loop, options);
    }
    options.left_out = placed.left_out_tokens(&request.app.config.guard);
    let source = keep_for_summary(&request, &placed);
    // The rest of the request, its body among it, is dropped here.
    let (session, planned) = (request.session, placed.planned);
    let on_end = Box::new(move |response| {
        let end = AnswerEnd { response, source };
        async move { settle_stream(session.as_ref(), planned, end).await }.boxed()
    });
    relay::stream_answer(answer, Ending { options, on_end })
}

/// Step 9, in one piece: the whole answer is read before its head is released.
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
    let format = request.parsed.format;
    let provider = placed.target.provider.name.clone();
    let mut first_head = HeaderMap::new();
    let mut filter = AnswerFilter::default();
    if let (Some(session), Some(planned)) = (&request.session, &placed.planned) {
        first_head = build_head_headers(session, planned, &reply);
        filter = planned.answer_filter();
    }
    let mut tool_loop = ToolLoop {
        request,
        placed,
        streamed: false,
        hold: None,
    };
    let read = if filter.is_active() {
        let answer = reply.answer;
        let (read, last, before) =
            relay::buffer_filtered_answer(format, answer, filter, &mut tool_loop, &provider, room)
                .await?;
        tool_loop.finish_answer(&last, before);
        read
    } else {
        relay::buffer_answer(format, reply.answer, &provider, room).await?
    };
    let (request, placed) = (tool_loop.request, tool_loop.placed);
    let (mut answer, response) = match read {
        BufferedAnswer::Complete {
            mut head,
            body,
            summary: response,
        } => {
            let is_success = head.status.is_success();
            let left_out = placed.left_out_tokens(&request.app.config.guard);
            let left_out = left_out.filter(|_| is_success);
            let asked = request.parsed.copy_renamed_model(&placed.target.model);
            let asked = asked.filter(|_| is_success);
            let headers = &mut head.headers;
            let body = relay::edit_whole_answer(format, headers, body, left_out, asked);
            let answer = Response::from_parts(head, whole_body(hold.attach_to_bytes(body)));
            (answer, (is_success && !response.error).then_some(response))
        }
        BufferedAnswer::Overlong(answer) => (answer.map(|body| hold.attach_to_body(body)), None),
    };
    let source = keep_for_summary(&request, &placed);
    let (Some(session), Some(planned)) = (&request.session, placed.planned) else {
        return Ok(answer);
    };
    if answer.status().is_success() && response.is_none() {
        session.note_provider_failed();
    }
    let headers = answer.headers_mut();
    headers.extend(first_head);
    if let Some(response) = response {
        let end = AnswerEnd { response, source };
        let end_headers = settle_answer(session, *planned, end).await;
        for name in TRAILERS {
            headers.remove(*name);
        }
        headers.extend(end_headers);
    }
    Ok(answer)
}
