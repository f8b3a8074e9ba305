//! Our own API under `/plimsoll/api/`: what is known of sessions and providers, what may be asked of
//! them, and the guard as a service. `openapi.json` describes all of it.
//!
//! SECURITY: whoever asks is told of the account that asks, and the administrator of all. That a web
//! page of another origin comes this far was ruled out before the path was looked at. Nothing that is
//! answered may be kept by a cache.

mod about;
mod events;
mod fit;
mod list;
mod openapi;
mod providers;
mod session;
mod who;

use std::{borrow::Cow, sync::Arc};

use http::{HeaderValue, Method, Response, StatusCode, header::CACHE_CONTROL, request::Parts};
use serde::Serialize;

pub(super) use self::who::Who;
use crate::{
    error::{Failure, chain},
    http::{answer, body::RequestBody},
    proxy::App,
    session::{SessionError, SessionId, Wanted},
    telemetry::record::Record,
    wire::Body,
};

/// Bytes of a request's body that are read where none is needed, or a small one.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Characters of a client's own word that an error repeats.
const MAX_WORD: usize = 64;

const READ: &str = "GET, HEAD";

/// All paths behind `/plimsoll/api/`, and their methods.
const PATHS: [(&str, &str); 10] = [
    ("sessions", READ),
    ("sessions/{id}", "GET, HEAD, PATCH"),
    ("sessions/{id}/clear", "POST"),
    ("sessions/{id}/compact", "POST"),
    ("providers", READ),
    ("events", READ),
    ("fit", "POST"),
    ("about", READ),
    ("settings", READ),
    ("openapi.json", READ),
];

/// Answers a request whose path begins with `/plimsoll/api/`; `path` is what follows.
///
/// # Errors
/// No such path or session, or a method that the path does not have; a query or a body that cannot be
/// understood; the store does not answer.
pub async fn api(
    app: &Arc<App>,
    parts: &Parts,
    body: &mut RequestBody,
    path: &str,
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    let who = Who::of(app, &parts.headers)?;
    let (path, id) = find_path(&parts.method, path)?;
    let switches = parts.method == Method::PATCH;
    if !switches && path != "fit" {
        body.discard(MAX_BODY_BYTES, &app.config.server).await?;
    }
    let mut answer = match (path, id) {
        ("sessions/{id}", Some(id)) if switches => {
            session::switch(app, parts, body, &who, id).await?
        }
        ("sessions/{id}", Some(id)) => session::report(app, &who, id).await?,
        ("sessions/{id}/clear", Some(id)) => session::order(app, &who, id, Wanted::Clear).await?,
        ("sessions/{id}/compact", Some(id)) => {
            session::order(app, &who, id, Wanted::Compact).await?
        }
        ("sessions", _) => list::list(app, &who, list::page(parts.uri.query())?).await?,
        ("providers", _) => respond(&providers::known(app, &who)),
        ("events", _) => {
            // It ends when its reader leaves, and is no work that anybody waits for.
            record.in_flight = None;
            events::events(app, who)?
        }
        ("fit", _) => fit::fit(app, parts, body, &who, record).await?,
        ("about", _) => about::about(app, &who),
        ("settings", _) => about::settings(app, &who)?,
        ("openapi.json", _) => openapi::description(),
        _ => return Err(Failure::PathNotFound),
    };
    let never = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(CACHE_CONTROL, never);
    Ok(answer)
}

/// The entry of [`PATHS`] that is asked for, and the session that it names.
fn find_path(method: &Method, path: &str) -> Result<(&'static str, Option<SessionId>), Failure> {
    let (id, path) = match path.strip_prefix("sessions/") {
        Some(rest) => {
            let (id, part) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (Some(id), Cow::from(format!("sessions/{{id}}{part}")))
        }
        None => (None, path.into()),
    };
    let missing = match id {
        Some(_) => Failure::SessionNotFound,
        None => Failure::PathNotFound,
    };
    let found = PATHS.iter().find(|(known, _)| *known == path);
    let (path, allow) = *found.ok_or(missing.clone())?;
    if !allow.split(", ").any(|allowed| *method == allowed) {
        return Err(Failure::WrongMethod { allow });
    }
    let session = id
        .map(|id| SessionId::parse(id).ok_or(missing))
        .transpose()?;
    Ok((path, session))
}

/// A client's own word as an error repeats it.
fn shorten(word: &str) -> String {
    word.chars().take(MAX_WORD).collect()
}

fn respond(body: &impl Serialize) -> Response<Body> {
    // A shape of this API always becomes JSON.
    answer::json(StatusCode::OK, serde_json::to_vec(body).unwrap_or_default())
}

/// What the store failed to tell.
fn unknown(error: SessionError) -> Failure {
    tracing::warn!(error = %chain(&error), "a session could not be looked up");
    Failure::StoreDown
}
