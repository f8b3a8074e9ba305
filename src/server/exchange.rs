//! One request from its first byte to its last. Read this file first.
//!
//! A chat completion goes these steps; other paths leave early:
//!
//! 1. who sent it, and who answers
//! 2. the body, within limits
//! 3. the index: where everything lies in it
//! 4. the model: who serves it, and how much it holds
//! 5. the edits: the model's name, the usage of a stream
//! 6. the provider
//! 7. the answer, back as it comes, with a tap that looks on
//!
//! An edited body is a rope of the client's own bytes and new ones. Until an answer began nothing
//! has reached the client, so a step may still fail with an answer of ours.

use std::borrow::Cow;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response, header::CONTENT_TYPE, request::Parts};
use hyper::body::Incoming;
use serde_json::Value;

use super::{
    App,
    admit::Client,
    answer, body,
    flight::Hold,
    forward::{chosen, cleaned, forward, outgoing_headers, with_query},
    route::{self, Route},
};
use crate::{
    error::Failure,
    provider::{Outgoing, Payload, Target},
    relay::{self, Closing, Ending, Whole},
    telemetry::record::Record,
    wire::{
        Body,
        chat::{self, Conversation, Unindexed},
        edit::{Edits, Rope},
        whole,
    },
};

/// What the end of a stream may tell in trailers; named in its head, as HTTP/1.1 asks for.
const TRAILERS: &[&str] = &[];

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

/// What goes to the provider.
struct Edited {
    body: Rope,
    /// The usage of a stream was asked for by us.
    asked_usage: bool,
}

/// Answers one request.
///
/// # Errors
/// It is answered by us, with an error.
pub async fn exchange(
    app: &App,
    request: Request<Incoming>,
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    // 1. Who sent it, and who answers.
    let (parts, body) = request.into_parts();
    app.clients.check_origin(&parts)?;
    let route = route::find(&parts.method, parts.uri.path())?;
    if matches!(route, Route::Health | Route::Ready) {
        record.quiet();
        record.outcome("done");
        return Ok(match route {
            Route::Ready => answer::ready(app.draining()),
            _ => answer::healthy(),
        });
    }
    let client = app.clients.recognise(&parts.headers)?;
    match route {
        Route::Chat { provider } => chat(app, &parts, body, &client, provider, record).await,
        Route::Forward { provider, path } => {
            forward(app, &parts, body, &client, (provider, path), record).await
        }
        Route::Api { path } => api(app, &parts, body, &client, path).await,
        Route::Models | Route::Health | Route::Ready => {
            Ok(answer::models(&app.registry, |id| allows(&client, id)))
        }
    }
}

/// A chat completion.
async fn chat(
    app: &App,
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
    admit_model(client, &asked.model, &target)?;

    // 5. The edits.
    let edited = edit(&asked, &target);

    // 6. The provider.
    let outgoing = Outgoing {
        method: Method::POST,
        path: with_query("/chat/completions", parts),
        headers: outgoing_headers(app, parts, &target.provider, true),
        body: Payload::Whole(edited.body),
    };
    let answer = target.provider.send(outgoing).await?;
    let answer = cleaned(answer);

    // 7. The answer.
    if is_stream(&answer, asked.streams) {
        Ok(streamed(answer, parts, edited.asked_usage))
    } else {
        complete(app, answer, &target, received.hold).await
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
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            Ok(Asked {
                model: body["model"].as_str().unwrap_or_default().to_owned(),
                streams: body["stream"] == true,
                conversation: None,
                bytes,
            })
        }
    }
}

/// Step 4, second half.
fn admit_model(client: &Client, model: &str, target: &Target) -> Result<(), Failure> {
    let full = format!("{}/{}", target.provider.name, target.model);
    if client.may_use(&[model, &full, &target.model]) {
        return Ok(());
    }
    // As OpenAI does: what one may not use does not exist.
    Err(Failure::ModelNotFound(format!(
        "The model `{model}` does not exist or you do not have access to it."
    )))
}

/// Step 5.
fn edit(asked: &Asked, target: &Target) -> Edited {
    let mut edits = Edits::default();
    let mut asked_usage = false;
    if let Some(conversation) = &asked.conversation {
        if asked.model != target.model
            && let Some(field) = conversation.field("model")
        {
            edits.replace(field.value, Value::from(target.model.as_str()).to_string());
        }
        asked_usage = conversation.ask_usage(&mut edits);
    }
    Edited {
        body: edits.apply(&asked.bytes),
        asked_usage,
    }
}

/// Step 7, streamed. What precedes the first byte of the stream is known here; what its end
/// tells comes to the hook.
fn streamed(answer: Response<Body>, parts: &Parts, strip_usage: bool) -> Response<Body> {
    let ending = Ending {
        strip_usage,
        trailers: if answer::accepts_trailers(&parts.headers) {
            TRAILERS
        } else {
            &[]
        },
        on_end: Box::new(|_heard| async { Closing::default() }.boxed()),
    };
    relay::stream(answer, ending)
}

/// Step 7, in one piece: all of it is known before its head is released.
async fn complete(
    app: &App,
    answer: Response<Body>,
    target: &Target,
    mut hold: Hold,
) -> Result<Response<Body>, Failure> {
    let mut left = app.config.server.max_body_bytes;
    let room = |bytes| {
        left = left.saturating_sub(bytes);
        left > 0 && hold.grow(bytes)
    };
    let read = relay::whole(answer, &target.provider.name, room).await?;
    Ok(match read {
        Whole::Complete { head, body, .. } => Response::from_parts(head, whole(body)),
        Whole::Overlong(answer) => answer,
    })
}

/// Our own API.
async fn api(
    _app: &App,
    _parts: &Parts,
    _body: Incoming,
    _client: &Client,
    _path: &str,
) -> Result<Response<Body>, Failure> {
    Err(Failure::PathNotFound)
}

fn allows(client: &Client, id: &str) -> bool {
    let bare = id.split_once('/').map_or(id, |(_, bare)| bare);
    client.may_use(&[id, bare])
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
