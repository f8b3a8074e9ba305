//! One request from its first byte to its last. Read this file first.
//!
//! A chat completion goes these steps; other paths leave early:
//!
//! 1. who sent it, and who answers
//! 2. the body, within limits
//! 3. the index: where everything lies in it
//! 4. the model: who serves it, and how much it holds
//! 5. the session that it continues
//! 6. the guard's plan, and the edits: its own, the model's name, the usage of a stream
//! 7. the provider; once more where it refuses the usage we ask for
//! 8. the answer, back as it comes, with a tap that looks on; at its end it is judged, and the
//!    new state is stored
//!
//! An edited body is a rope of the client's own bytes and new ones. Until an answer began nothing
//! has reached the client, so a step may still fail with an answer of ours.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response, header::CONTENT_TYPE, request::Parts};
use hyper::body::Incoming;
use serde_json::Value;

use super::{
    App,
    admit::Client,
    answer,
    api::api,
    ask_usage::{self, Edited, Sent},
    body,
    flight::Hold,
    forward::{chosen, cleaned, forward, outgoing_headers, with_query},
    generation::{Generation, TRAILERS},
    route::{self, Route},
    wish::wants_comment,
};
use crate::{
    error::Failure,
    health,
    provider::{Outgoing, Target},
    relay::{self, Closing, Ending, Whole},
    session::{self, Hint, Inherited},
    telemetry::record::Record,
    wire::{
        Body,
        chat::{self, Conversation, Unindexed},
        edit::Edits,
        whole,
    },
};

/// The request of a chat completion, as far as it is understood.
struct Asked {
    /// The body as it came.
    bytes: Bytes,
    /// `None`: JSON, but no conversation that we can follow. It goes on as it came.
    conversation: Option<Conversation>,
    /// Empty if there is none.
    model: String,
    streams: bool,
}

/// Answers one request.
///
/// # Errors
/// It is answered by us, with an error.
pub async fn exchange(
    app: &Arc<App>,
    request: Request<Incoming>,
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    // 1. Who sent it, and who answers.
    let (parts, body) = request.into_parts();
    let limit = app.config.server.max_body_bytes;
    let found = app.clients.check_origin(&parts);
    let found = found.and_then(|()| Ok(route::find(&parts.method, parts.uri.path())?));
    let route = match found {
        Ok(route) => route,
        Err(failure) => return Err(body::turn_away(&parts.headers, body, limit, failure).await),
    };
    if matches!(route, Route::Health | Route::Ready) {
        record.quiet();
        record.outcome("done");
        return Ok(match route {
            Route::Ready => answer::ready(app.draining()),
            _ => answer::healthy(),
        });
    }
    if let Route::Api { path } = route {
        return api(app, &parts, body, path).await;
    }
    let client = match app.clients.recognise(&parts.headers) {
        Ok(client) => client,
        Err(failure) => return Err(body::turn_away(&parts.headers, body, limit, failure).await),
    };
    match route {
        Route::Chat { provider } => chat(app, &parts, body, &client, provider, record).await,
        Route::Forward { provider, path } => {
            forward(app, &parts, body, &client, (provider, path), record).await
        }
        Route::Models | Route::Health | Route::Ready | Route::Api { .. } => {
            let allowed = |id: &str| {
                id.split_once('/')
                    .is_some_and(|(provider, model)| allows(app, &client, provider, model))
            };
            Ok(answer::models(&app.registry, allowed))
        }
    }
}

/// A chat completion.
async fn chat(
    app: &Arc<App>,
    parts: &Parts,
    body: Incoming,
    client: &Client,
    provider: Option<&str>,
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    // 2. The body, within limits.
    let received = body::read(&parts.headers, body, &app.config.server, &app.flight).await?;

    // 3. The index.
    let asked = index(received.bytes)?;
    record.model(&asked.model);

    // 4. The model.
    let chosen = provider.or_else(|| chosen(&parts.headers));
    let target = app.registry.resolve(&asked.model, chosen)?;
    record.provider(&target.provider.name);
    // SECURITY: a key for some models must not reach another by a parser's choice of two names.
    let plain = client.unlimited() || chat::models_named(&asked.bytes) == 1;
    if !plain || !allows(app, client, &target.provider.name, &target.model) {
        // As OpenAI does: what one may not use does not exist.
        return Err(Failure::ModelNotFound(format!(
            "The model `{}` does not exist or you do not have access to it.",
            asked.model
        )));
    }

    // 5. The session.
    let inherited = find(app, &asked, parts, client).await;

    // 6. The plan, and the edits.
    let generation = inherited.zip(asked.conversation.as_ref());
    let generation = generation.map(|(inherited, conversation)| {
        Generation::plan(app, conversation, inherited, &target, &parts.headers)
    });
    if let Some(generation) = &generation {
        generation.note(record);
    }

    // 7. The provider.
    let edit = |ask| edit(&asked, &target, generation.as_ref(), ask);
    let outgoing = |body| Outgoing {
        method: Method::POST,
        path: with_query("/chat/completions", parts),
        headers: outgoing_headers(app, parts, &target.provider, true),
        body,
    };
    let sent = ask_usage::send(&app.refusals, &target, edit, outgoing).await?;
    let sent = sent.map(cleaned);

    // 8. The answer.
    if is_stream(&sent.answer, asked.streams) {
        Ok(streamed(sent, parts, generation))
    } else {
        complete(app, sent, &target, generation, received.hold).await
    }
}

/// Step 3.
fn index(bytes: Bytes) -> Result<Asked, Failure> {
    match chat::index(bytes.clone()) {
        Ok(conversation) => Ok(Asked {
            bytes,
            model: conversation
                .model()
                .map_or_else(String::new, Cow::into_owned),
            streams: conversation.streams(),
            conversation: Some(conversation),
        }),
        Err(Unindexed::NotJson(place)) => Err(Failure::NotJson(place)),
        Err(Unindexed::Unguardable(reason)) => {
            tracing::warn!(%reason, "a request is forwarded without a guard");
            let glance = chat::glance(&bytes);
            Ok(Asked {
                model: glance.model,
                streams: glance.streams,
                conversation: None,
                bytes,
            })
        }
    }
}

/// Step 5. `None` where there is no conversation to follow.
async fn find(app: &App, asked: &Asked, parts: &Parts, client: &Client) -> Option<Inherited> {
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

/// Step 6, second half; `ask`: whether the usage of a stream may be asked for.
fn edit(asked: &Asked, target: &Target, generation: Option<&Generation>, ask: bool) -> Edited {
    let mut edits = generation.map_or_else(Edits::default, Generation::edits);
    let mut asked_usage = false;
    if let Some(conversation) = &asked.conversation {
        if asked.model != target.model
            && let Some(field) = conversation.field("model")
        {
            edits.replace(field.value, Value::from(target.model.as_str()).to_string());
        }
        asked_usage = ask && conversation.ask_usage(&mut edits);
    }
    Edited {
        body: edits.apply(&asked.bytes),
        asked_usage,
    }
}

/// Step 8, streamed. What precedes the first byte of the stream is said here; what its end tells
/// comes in trailers, or in a comment.
fn streamed(mut sent: Sent, parts: &Parts, generation: Option<Generation>) -> Response<Body> {
    let trailers = answer::accepts_trailers(&parts.headers) && generation.is_some();
    if let Some(generation) = &generation {
        let head = generation.head(&sent);
        sent.answer.headers_mut().extend(head);
    }
    let comment = wants_comment(&parts.headers);
    let ending = Ending {
        strip_usage: sent.asked_usage,
        trailers: if trailers { TRAILERS } else { &[] },
        on_end: Box::new(move |heard| {
            async move {
                match generation {
                    Some(generation) => generation.close(&heard, comment).await,
                    None => Closing::default(),
                }
            }
            .boxed()
        }),
    };
    relay::stream(sent.answer, ending)
}

/// Step 8, in one piece: all of it is known before its head is released.
async fn complete(
    app: &App,
    sent: Sent,
    target: &Target,
    generation: Option<Generation>,
    mut hold: Hold,
) -> Result<Response<Body>, Failure> {
    let mut left = app.config.server.max_body_bytes;
    let room = |bytes| {
        left = left.saturating_sub(bytes);
        left > 0 && hold.grow(bytes)
    };
    let head = generation.as_ref().map(|generation| generation.head(&sent));
    let read = relay::whole(sent.answer, &target.provider.name, room).await?;
    let (mut answer, heard) = match read {
        Whole::Complete { head, body, heard } => {
            let heard = (head.status.is_success() && !heard.error).then_some(heard);
            (Response::from_parts(head, whole(hold.keep(body))), heard)
        }
        Whole::Overlong(answer) => (answer.map(|body| hold.keep_for(body)), None),
    };
    let Some(generation) = generation else {
        return Ok(answer);
    };
    let headers = answer.headers_mut();
    headers.extend(head.unwrap_or_default());
    if let Some(heard) = heard {
        let health = generation.settle(&heard).await;
        for name in TRAILERS {
            headers.remove(*name);
        }
        headers.extend(health::headers(&health, health::From::Response));
    }
    Ok(answer)
}

/// Whether a client may use a model, by its full name or by its own.
///
/// SECURITY: a name of its own that begins with a provider's is that provider's business: what
/// opens `local/*` must not open a model of another provider that is called `local/x` there.
fn allows(app: &App, client: &Client, provider: &str, model: &str) -> bool {
    let of_another = model
        .split_once('/')
        .is_some_and(|(name, _)| app.registry.named(name).is_ok());
    client.may_use(&[&format!("{provider}/{model}")]) || (!of_another && client.may_use(&[model]))
}

/// By what the answer says of itself; where it says nothing, by what was asked for.
fn is_stream(answer: &Response<Body>, asked: bool) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    let kind = kind.map_or(&b""[..], |kind| kind.as_bytes());
    let kind = kind.trim_ascii_start().to_ascii_lowercase();
    answer.status().is_success()
        && (kind.starts_with(b"text/event-stream")
            || (asked && !kind.starts_with(b"application/json")))
}
