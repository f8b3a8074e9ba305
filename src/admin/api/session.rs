//! One session: what is known of it, and what may be asked of it.
//!
//! SECURITY: shown to the account it belongs to and to the administrator. Anyone else is told that it
//! does not exist, so that ids cannot be tried out.

use http::{Response, request::Parts};
use serde_json::Value;

use super::{MAX_BODY_BYTES, Requester, respond_json, shorten_word, store_failure};
use crate::{
    config::ServerConfig,
    error::Failure,
    http::body::RequestBody,
    proxy::App,
    session::{self, SessionCommand, SessionId, SessionView},
    wire::Body,
};

/// `GET sessions/{id}`.
///
/// # Errors
/// There is no such session for whoever asks, or the store does not answer.
pub(super) async fn answer_session(
    app: &App,
    who: &Requester,
    id: SessionId,
) -> Result<Response<Body>, Failure> {
    let known = app.sessions.view_session(who.account.as_ref(), id).await;
    let known = known.map_err(store_failure)?;
    Ok(session_response(
        app,
        who,
        &known.ok_or(Failure::SessionNotFound)?,
    ))
}

/// `PATCH sessions/{id}`: `{"auto_compact": "on" | "off" | "follow"}`.
///
/// # Errors
/// As with [`report`]; the body is anything else.
pub(super) async fn switch_session(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    who: &Requester,
    id: SessionId,
) -> Result<Response<Body>, Failure> {
    let wanted = parse_switch(app, parts, body).await?;
    command_session(app, who, id, wanted).await
}

/// `POST sessions/{id}/clear` and `POST sessions/{id}/compact`.
///
/// # Errors
/// As with [`report`].
pub(super) async fn command_session(
    app: &App,
    who: &Requester,
    id: SessionId,
    wanted: SessionCommand,
) -> Result<Response<Body>, Failure> {
    let known = app.sessions.add_command(who.own.as_ref(), id, wanted).await;
    let Some(known) = known.map_err(store_failure)? else {
        // What is shown is there, and may still be another's.
        let shown = app.sessions.view_session(who.account.as_ref(), id).await;
        return Err(match shown.map_err(store_failure)? {
            Some(_) => Failure::SessionReadOnly,
            None => Failure::SessionNotFound,
        });
    };
    app.session_events.publish_change(&known);
    Ok(session_response(app, who, &known))
}

fn session_response(app: &App, who: &Requester, known: &SessionView) -> Response<Body> {
    let report = session::build_report(known, who.reader_of(app, Some(&known.account)));
    respond_json(&report)
}

/// Reads what is to be switched.
async fn parse_switch(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
) -> Result<SessionCommand, Failure> {
    let limits = ServerConfig {
        max_body_bytes: MAX_BODY_BYTES,
        ..app.config.server.clone()
    };
    let received = body
        .read_unpacked(&parts.headers, &limits, &app.inflight_bytes)
        .await;
    let received = received.map_err(|failure| match failure {
        Failure::BodyTooLarge { limit } => Failure::SwitchTooLarge { limit },
        failure => failure,
    })?;
    let read: Value = serde_json::from_slice(&received.bytes)
        .map_err(|error| Failure::NotJson(error.to_string()))?;
    let members = read.as_object().ok_or(Failure::SwitchMissing)?;
    if let Some(unknown) = members.keys().find(|name| *name != "auto_compact") {
        let name = shorten_word(unknown);
        return Err(Failure::SwitchUnknown { name });
    }
    let value = members.get("auto_compact").ok_or(Failure::SwitchMissing)?;
    match value.as_str() {
        Some("on") => Ok(SessionCommand::AutoCompact(Some(true))),
        Some("off") => Ok(SessionCommand::AutoCompact(Some(false))),
        Some("follow") => Ok(SessionCommand::AutoCompact(None)),
        _ => Err(Failure::SwitchValue),
    }
}
