//! The session API under `/plimsoll/api/`: sessions, commands to them, providers, and the guard as a
//! service. `openapi.json` describes it.
//!
//! SECURITY: a client sees its account only, the administrator sees all; so does a tab that the one-time link of the
//! start opened, numbers and titles only. Admission rejected requests from web pages of other origins before. No answer
//! may be cached.

mod about;
mod events;
mod fit;
mod providers;
mod requester;
mod session;
mod session_list;

use std::{borrow::Cow, sync::Arc};

use http::{HeaderValue, Method, Response, StatusCode, header::CACHE_CONTROL, request::Parts};
use serde::Serialize;
use serde_json::json;

pub(super) use self::requester::Requester;
use crate::{
    error::{Failure, format_error_chain},
    http::{answer, body::RequestBody, page_link::PageLink},
    proxy::App,
    session::{SessionCommand, SessionError, SessionId},
    telemetry::record::RequestRecord,
    wire::Body,
};

/// Largest request body in bytes, except for `fit`.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Most characters of a client's word that an error repeats.
const MAX_WORD: usize = 64;

/// The description of this API for authors of clients: OpenAPI 3.1, maintained by hand.
const DESCRIPTION: &str = include_str!("api/openapi.json");

const READ: &str = "GET, HEAD";

/// All paths below `/plimsoll/api/` and their methods.
const PATHS: [(&str, &str); 11] = [
    ("sessions", READ),
    ("sessions/{id}", "GET, HEAD, PATCH"),
    ("sessions/{id}/clear", "POST"),
    ("sessions/{id}/compact", "POST"),
    ("providers", READ),
    ("events", READ),
    ("fit", "POST"),
    ("link", "POST"),
    ("about", READ),
    ("settings", READ),
    ("openapi.json", READ),
];

/// Answers a request; `path` is its path below `/plimsoll/api/`.
pub async fn answer_api(
    app: &Arc<App>,
    parts: &Parts,
    body: &mut RequestBody,
    path: &str,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let requester = Requester::from_parts(app, parts)?;
    let (path, id) = find_path(&parts.method, path)?;
    let is_patch = parts.method == Method::PATCH;
    if !is_patch && path != "fit" {
        let server = &app.config.server;
        body.discard_body(MAX_BODY_BYTES, server).await?;
    }
    let command = |id, command| session::command_session(app, &requester, id, command);
    let mut answer = match (path, id) {
        ("sessions/{id}", Some(id)) if is_patch => {
            command(id, session::parse_switch(app, parts, body).await?).await?
        }
        ("sessions/{id}", Some(id)) => session::answer_session(app, &requester, id).await?,
        ("sessions/{id}/clear", Some(id)) => command(id, SessionCommand::Clear).await?,
        ("sessions/{id}/compact", Some(id)) => command(id, SessionCommand::Compact).await?,
        ("sessions", _) => {
            let page = session_list::parse_page(parts.uri.query())?;
            session_list::list_sessions(app, &requester, page).await?
        }
        ("providers", _) => respond_json(&providers::describe_providers(app, &requester)),
        ("events", _) => {
            // The stream ends with its reader; shutdown does not wait for it.
            record.in_flight = None;
            events::stream_events(app, requester)?
        }
        ("fit", _) => fit::answer_fit(app, parts, body, &requester, record).await?,
        ("link", _) => {
            PageLink::check_conditions(&app.config.admin, &app.clients, parts)?;
            let tab = app.page_link.exchange_token(&parts.headers)?;
            respond_json(&json!({ "tab": tab }))
        }
        ("about", _) => about::answer_about(app, &requester),
        ("settings", _) => about::answer_settings(app, &requester)?,
        ("openapi.json", _) => answer::json_response(StatusCode::OK, DESCRIPTION),
        _ => return Err(Failure::PathNotFound),
    };
    let no_store = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(CACHE_CONTROL, no_store);
    Ok(answer)
}

/// The entry of [`PATHS`] for a request, and the session that its path names.
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
    let entry = PATHS.iter().find(|(known, _)| *known == path);
    let (path, allow) = *entry.ok_or(missing.clone())?;
    if !allow.split(", ").any(|allowed| *method == allowed) {
        return Err(Failure::WrongMethod { allow });
    }
    let session = id
        .map(|id| SessionId::parse_hex(id).ok_or(missing))
        .transpose()?;
    Ok((path, session))
}

/// A client's word as an error repeats it.
fn shorten_word(word: &str) -> String {
    word.chars().take(MAX_WORD).collect()
}

/// Reads a number that a query names once, of digits only and from `least` to `most`.
fn read_number(
    name: &'static str,
    value: &str,
    slot: &mut Option<usize>,
    (least, most): (usize, usize),
) -> Result<(), Failure> {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|_| is_number);
    let number = number.filter(|number| (least..=most).contains(number));
    if number.is_none() || slot.is_some() {
        return Err(Failure::QueryValue { name, least, most });
    }
    *slot = number;
    Ok(())
}

fn respond_json(body: &impl Serialize) -> Response<Body> {
    // Types of this API always serialize.
    answer::json_response(StatusCode::OK, serde_json::to_vec(body).unwrap_or_default())
}

fn log_store_failure(error: SessionError) -> Failure {
    tracing::warn!(error = %format_error_chain(&error), "session lookup failed");
    Failure::StoreDown
}

#[cfg(test)]
mod tests;
