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
//! 8. the provider; once more where it refuses what we added
//! 9. the answer, back as it comes, with a tap that looks on. What is for us is taken out of it;
//!    where nothing else is in it, back to 6 for the next round. At its end it is judged, the clock
//!    advances, and the new state is stored
//!
//! An edited body is a rope of the client's own bytes and new ones. Until an answer began nothing
//! has reached the client, so a step may still fail with an answer of ours.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, request::Parts};
use hyper::body::Incoming;

use super::{
    App,
    begin_summary::SummarySource,
    dispatch::{Dispatch, ParsedRequest},
    generation::{Ended, Generation, TRAILERS},
    keepalive_stream::answer_while_waiting,
    outgoing::chosen,
    request_options::{RequestOptions, wants_comment},
    send::ProviderReply,
    tool_loop::{ToolLoop, is_stream},
};
use crate::{
    error::Failure,
    http::{
        admission::{Client, allows_target, no_such_model},
        answer, body,
        limit::Hold,
    },
    provider::Target,
    relay::{self, Before, Closing, Ending, Foot, Heard, Sifting, Spoken, Whole},
    session::{self, Hint, Inherited},
    telemetry::record::Record,
    wire::{
        Body,
        chat::{self, Unindexed},
        model::in_query,
        whole,
    },
};

/// A chat completion, before its body is read.
pub struct ChatRequest<'a> {
    pub parts: Parts,
    pub body: Incoming,
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
    request: ChatRequest<'_>,
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    let ChatRequest {
        parts,
        body,
        client,
        provider,
    } = request;

    // 2. The body, within limits.
    let received = body::read(&parts.headers, body, &app.config.server, &app.flight).await?;

    // 3. The index.
    let asked = index(received.bytes)?;
    record.set_model(&asked.model);

    // 4. The model.
    let chosen = provider.as_deref().or_else(|| chosen(&parts.headers));
    let mut choice = app.registry.choose(&asked.model, chosen)?;
    // SECURITY: a key for some models must not reach another by a parser's choice of two names, nor
    // by one in the query, which some gateways prefer to the body's.
    let in_query = in_query(parts.uri.query().unwrap_or_default());
    let one = in_query.surely && in_query.model.is_none();
    let plain = client.unlimited() || (one && chat::models_named(&asked.bytes) == 1);
    let made = choice.asked_is_configured;
    let may_use =
        |target: &Target| allows_target(&app.registry, client, &asked.model, made, target);
    if !plain || !choice.permit(may_use) {
        return Err(no_such_model(&asked.model));
    }

    // 5. The session.
    let inherited = {
        let _child = record.notes().trace.child("plimsoll.store.find");
        find(app, &asked, &parts, client).await
    };
    if let Some(inherited) = &inherited {
        hear(app, inherited).await;
    }

    // 6. What is due, and the plan. A session stays where its cache is warm.
    let mut targets = choice.order(inherited.as_ref().map_or(0, |it| it.session.seed()));
    // Looked up again after waiting: whoever heard of a smaller window meanwhile may be another request.
    for target in &mut targets {
        target.window = app.registry.window_of(target);
    }
    let options = RequestOptions::of(&parts.headers, client.recovers());
    let inherited = inherited.map(|inherited| (inherited, options));
    let model = asked.model.clone();
    let dispatch = Dispatch::new(
        app,
        parts,
        asked,
        targets,
        inherited,
        record.notes().clone(),
    );
    let mut dispatch = dispatch.ok_or_else(|| no_such_model(&model))?;

    // 7. Its summary first, where that is waited for. A stream begins at once.
    if let Some(wait) = dispatch.begin_summary_wait() {
        if dispatch.streams() {
            let relay = |sent, dispatch| streamed(sent, dispatch, received.hold);
            return Ok(answer_while_waiting(dispatch, wait, relay));
        }
        dispatch.wait_for_summary(wait).await;
    }

    // 8. The provider.
    let sent = dispatch.send().await?;

    // 9. The answer.
    if is_stream(&sent.answer, dispatch.streams()) {
        Ok(streamed(sent, dispatch, received.hold))
    } else {
        complete(app, sent, dispatch, received.hold).await
    }
}

/// Step 3.
fn index(bytes: Bytes) -> Result<ParsedRequest, Failure> {
    match chat::index(bytes.clone()) {
        Ok(conversation) => {
            let odd = conversation.odd_annotations();
            if odd > 0 {
                tracing::warn!(
                    annotations = odd,
                    "annotations of a request are taken out and not understood: {odd}; an object with name (text) and \
                     priority (critical, high, medium or low) is"
                );
            }
            Ok(ParsedRequest {
                bytes,
                model: conversation
                    .model()
                    .map_or_else(String::new, Cow::into_owned),
                streams: conversation.streams(),
                conversation: Some(Arc::new(conversation)),
            })
        }
        Err(Unindexed::NotJson(place)) => Err(Failure::NotJson(place)),
        Err(Unindexed::Unguardable(reason)) => {
            tracing::warn!(%reason, "a request is forwarded without a guard");
            let glance = chat::glance(&bytes);
            Ok(ParsedRequest {
                model: glance.model,
                streams: glance.streams,
                conversation: None,
                bytes,
            })
        }
    }
}

/// Step 5. `None` where there is no conversation to follow.
async fn find(
    app: &App,
    asked: &ParsedRequest,
    parts: &Parts,
    client: &Client,
) -> Option<Inherited> {
    let conversation = asked.conversation.as_ref()?;
    let client = session::Client::of(client.name.as_deref(), &parts.headers);
    let tenants = app.sessions.tenants();
    let tenant = tenants.tenant(client, &parts.headers, Some(conversation));
    let hint = Hint::of(&parts.headers, Some(conversation));
    Some(
        app.sessions
            .find(conversation, &tenant, hint.as_ref())
            .await,
    )
}

/// Step 5, what no session owns: takes over what other replicas learnt.
async fn hear(app: &App, inherited: &Inherited) {
    // Where the store does not answer, it is not waited for twice.
    if !inherited.lost {
        let passed = !inherited.lineage.probes().is_empty();
        app.replica_sync.pull(app.learnt_state(), passed).await;
    }
}

/// Step 9, streamed. What precedes the first byte of the stream is said here; what its end tells
/// comes in trailers, or in a comment.
fn streamed(mut sent: ProviderReply, dispatch: Dispatch, hold: Hold) -> Response<Body> {
    dispatch.notes.facts().is_stream = true;
    let comment = wants_comment(dispatch.client_headers());
    let Some(generation) = &dispatch.generation else {
        return relay::stream(sent.answer, Ending::silent());
    };
    let foot = Foot {
        trailers: match answer::accepts_trailers(dispatch.client_headers()) {
            true => TRAILERS,
            false => &[],
        },
        within: generation.store_within(),
    };
    let head = generation.head(&sent);
    sent.answer.headers_mut().extend(head);
    let sifting = generation.sifting();
    if sifting.any() {
        let continuing = ToolLoop {
            dispatch,
            streamed: true,
            comment,
            // The request may go out again, so that its body is kept.
            hold: Some(hold),
        };
        let continuing = Box::new(continuing);
        return relay::sifted(sent.answer, sifting, continuing, sent.asked_usage, foot);
    }
    let left_out = dispatch.left_out();
    // Else the body is let go.
    let kept = dispatch.keep_for_summary();
    let generation = dispatch.into_generation();
    let ending = Ending {
        strip_usage: sent.asked_usage,
        left_out,
        foot,
        on_end: Box::new(move |heard| close(generation, heard, kept, comment).boxed()),
    };
    relay::stream(sent.answer, ending)
}

/// The end of a stream of which nothing was taken out.
async fn close(
    generation: Option<Box<Generation>>,
    heard: Heard,
    kept: Option<SummarySource>,
    comment: bool,
) -> Closing {
    let Some(mut generation) = generation else {
        return Closing::default();
    };
    let ended = Ended {
        heard: &heard,
        last: &Spoken::default(),
        before: Before::default(),
        kept,
    };
    generation.close(ended, comment).await
}

/// Step 9, in one piece: all of it is known before its head is released.
async fn complete(
    app: &App,
    sent: ProviderReply,
    dispatch: Dispatch,
    mut hold: Hold,
) -> Result<Response<Body>, Failure> {
    let mut left = app.config.server.max_body_bytes;
    let room = |bytes| {
        left = left.saturating_sub(bytes);
        left > 0 && hold.grow(bytes)
    };
    let head = dispatch
        .generation
        .as_ref()
        .map(|generation| generation.head(&sent));
    let sifting = dispatch.generation.as_ref().map(|it| it.sifting());
    let provider = dispatch.provider().to_owned();
    let mut continuing = ToolLoop {
        dispatch,
        streamed: false,
        comment: false,
        hold: None,
    };
    let (read, last, before) = match sifting.filter(Sifting::any) {
        Some(sifting) => {
            relay::sifted_whole(sent.answer, sifting, &mut continuing, &provider, room).await?
        }
        None => {
            let read = relay::whole(sent.answer, &provider, room).await?;
            (read, Spoken::default(), Before::default())
        }
    };
    let (mut answer, heard) = match read {
        Whole::Complete {
            mut head,
            body,
            heard,
        } => {
            let left_out = continuing.dispatch.left_out();
            let left_out = left_out.filter(|_| head.status.is_success());
            let body = relay::received(&mut head.headers, body, left_out);
            let heard = (head.status.is_success() && !heard.error).then_some(heard);
            (Response::from_parts(head, whole(hold.keep(body))), heard)
        }
        Whole::Overlong(answer) => (answer.map(|body| hold.keep_for(body)), None),
    };
    let kept = continuing.dispatch.keep_for_summary();
    let Some(generation) = &mut continuing.dispatch.generation else {
        return Ok(answer);
    };
    if answer.status().is_success() && heard.is_none() {
        generation.provider_failed();
    }
    let headers = answer.headers_mut();
    headers.extend(head.unwrap_or_default());
    if let Some(heard) = heard {
        let ended = Ended {
            heard: &heard,
            last: &last,
            before,
            kept,
        };
        let health = generation.settle(ended).await;
        for name in TRAILERS {
            headers.remove(*name);
        }
        headers.extend(generation.foot(&health));
    }
    Ok(answer)
}
