//! One session: what is known of it, and what may be asked of it.
//!
//! SECURITY: shown to the account it belongs to and to the administrator. Anyone else is told that it
//! does not exist, so that ids cannot be tried out.

use http::{Response, request::Parts};
use serde_json::Value;

use super::{MAX_BODY_BYTES, Who, respond, shorten, unknown};
use crate::{
    config::ServerConfig,
    error::Failure,
    http::body::RequestBody,
    proxy::App,
    session::{self, Known, SessionId, Wanted},
    wire::Body,
};

/// `GET sessions/{id}`.
///
/// # Errors
/// There is no such session for whoever asks, or the store does not answer.
pub(super) async fn report(app: &App, who: &Who, id: SessionId) -> Result<Response<Body>, Failure> {
    let known = app.sessions.session(who.account.as_ref(), id).await;
    let known = known.map_err(unknown)?;
    Ok(shown(app, who, &known.ok_or(Failure::SessionNotFound)?))
}

/// `PATCH sessions/{id}`: `{"auto_compact": "on" | "off" | "follow"}`.
///
/// # Errors
/// As with [`report`]; the body is anything else.
pub(super) async fn switch(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    who: &Who,
    id: SessionId,
) -> Result<Response<Body>, Failure> {
    let wanted = wanted(app, parts, body).await?;
    order(app, who, id, wanted).await
}

/// `POST sessions/{id}/clear` and `POST sessions/{id}/compact`.
///
/// # Errors
/// As with [`report`].
pub(super) async fn order(
    app: &App,
    who: &Who,
    id: SessionId,
    wanted: Wanted,
) -> Result<Response<Body>, Failure> {
    let known = app.sessions.order(who.own.as_ref(), id, wanted).await;
    let Some(known) = known.map_err(unknown)? else {
        // What is shown is there, and may still be another's.
        let shown = app.sessions.session(who.account.as_ref(), id).await;
        return Err(match shown.map_err(unknown)? {
            Some(_) => Failure::SessionReadOnly,
            None => Failure::SessionNotFound,
        });
    };
    app.news.tell(&known);
    Ok(shown(app, who, &known))
}

fn shown(app: &App, who: &Who, known: &Known) -> Response<Body> {
    let report = session::report(known, who.reader_of(app, Some(&known.account)));
    respond(&report)
}

/// Reads what is to be switched.
async fn wanted(app: &App, parts: &Parts, body: &mut RequestBody) -> Result<Wanted, Failure> {
    let limits = ServerConfig {
        max_body_bytes: MAX_BODY_BYTES,
        ..app.config.server.clone()
    };
    let received = body.read(&parts.headers, &limits, &app.flight).await;
    let received = received.map_err(|failure| match failure {
        Failure::BodyTooLarge { limit } => Failure::SwitchTooLarge { limit },
        failure => failure,
    })?;
    let read: Value = serde_json::from_slice(&received.bytes)
        .map_err(|error| Failure::NotJson(error.to_string()))?;
    let members = read.as_object().ok_or(Failure::SwitchMissing)?;
    if let Some(unknown) = members.keys().find(|name| *name != "auto_compact") {
        let name = shorten(unknown);
        return Err(Failure::SwitchUnknown { name });
    }
    let value = members.get("auto_compact").ok_or(Failure::SwitchMissing)?;
    match value.as_str() {
        Some("on") => Ok(Wanted::AutoCompact(Some(true))),
        Some("off") => Ok(Wanted::AutoCompact(Some(false))),
        Some("follow") => Ok(Wanted::AutoCompact(None)),
        _ => Err(Failure::SwitchValue),
    }
}
