//! Our own API under `/plimsoll/api/`: what is known of sessions and providers, what may be asked of
//! them, and the guard as a service. `openapi.json` describes all of it.
//!
//! SECURITY: whoever asks is told of the account that asks, and the administrator of all. That a web
//! page of another origin comes this far was ruled out before the path was looked at. Nothing that is
//! answered may be kept by a cache.

mod about;
mod events;
mod fit;
mod openapi;
mod providers;
mod requester;
mod session;
mod session_list;

use std::{borrow::Cow, sync::Arc};

use http::{HeaderValue, Method, Response, StatusCode, header::CACHE_CONTROL, request::Parts};
use serde::Serialize;

pub(super) use self::requester::Requester;
use crate::{
    error::{Failure, format_error_chain},
    http::{answer, body::RequestBody},
    proxy::App,
    session::{SessionCommand, SessionError, SessionId},
    telemetry::record::RequestRecord,
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
pub async fn answer_api(
    app: &Arc<App>,
    parts: &Parts,
    body: &mut RequestBody,
    path: &str,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let who = Requester::from_headers(app, &parts.headers)?;
    let (path, id) = find_path(&parts.method, path)?;
    let switches = parts.method == Method::PATCH;
    if !switches && path != "fit" {
        body.discard_body(MAX_BODY_BYTES, &app.config.server)
            .await?;
    }
    let mut answer = match (path, id) {
        ("sessions/{id}", Some(id)) if switches => {
            session::switch_session(app, parts, body, &who, id).await?
        }
        ("sessions/{id}", Some(id)) => session::answer_session(app, &who, id).await?,
        ("sessions/{id}/clear", Some(id)) => {
            session::command_session(app, &who, id, SessionCommand::Clear).await?
        }
        ("sessions/{id}/compact", Some(id)) => {
            session::command_session(app, &who, id, SessionCommand::Compact).await?
        }
        ("sessions", _) => {
            session_list::list_sessions(app, &who, session_list::parse_page(parts.uri.query())?)
                .await?
        }
        ("providers", _) => respond_json(&providers::describe_providers(app, &who)),
        ("events", _) => {
            // It ends when its reader leaves, and is no work that anybody waits for.
            record.in_flight = None;
            events::stream_events(app, who)?
        }
        ("fit", _) => fit::answer_fit(app, parts, body, &who, record).await?,
        ("about", _) => about::answer_about(app, &who),
        ("settings", _) => about::answer_settings(app, &who)?,
        ("openapi.json", _) => openapi::answer_openapi(),
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
        .map(|id| SessionId::parse_hex(id).ok_or(missing))
        .transpose()?;
    Ok((path, session))
}

/// A client's own word as an error repeats it.
fn shorten_word(word: &str) -> String {
    word.chars().take(MAX_WORD).collect()
}

fn respond_json(body: &impl Serialize) -> Response<Body> {
    // A shape of this API always becomes JSON.
    answer::json_response(StatusCode::OK, serde_json::to_vec(body).unwrap_or_default())
}

/// What the store failed to tell.
fn store_failure(error: SessionError) -> Failure {
    tracing::warn!(error = %format_error_chain(&error), "a session could not be looked up");
    Failure::StoreDown
}
