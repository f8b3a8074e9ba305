//! Report of one session, and commands to it.
//!
//! SECURITY: only the session's account and the administrator see the session. Others get the same answer as for an
//! unknown id, so that ids cannot be guessed.

use http::{Response, request::Parts};
use serde_json::Value;

use super::{MAX_BODY_BYTES, Requester, log_store_failure, respond_json, shorten_word};
use crate::{
    config::ServerConfig,
    error::Failure,
    http::body::RequestBody,
    proxy::App,
    session::{self, SessionCommand, SessionId, SessionView},
    wire::Body,
};

/// `GET sessions/{id}`.
pub(super) async fn answer_session(
    app: &App,
    requester: &Requester,
    id: SessionId,
) -> Result<Response<Body>, Failure> {
    let account = requester.account.as_ref();
    let view = app.sessions.view_session(account, id).await;
    let view = view.map_err(log_store_failure)?;
    let view = view.ok_or(Failure::SessionNotFound)?;
    Ok(respond_session(app, requester, &view))
}

/// `PATCH sessions/{id}`, `POST sessions/{id}/clear` and `POST sessions/{id}/compact`.
pub(super) async fn command_session(
    app: &App,
    requester: &Requester,
    id: SessionId,
    command: SessionCommand,
) -> Result<Response<Body>, Failure> {
    if requester.by_link {
        return Err(Failure::SessionReadOnly);
    }
    let (sessions, owner) = (&app.sessions, requester.client_account.as_ref());
    let view = sessions.add_command(owner, id, command).await;
    let Some(view) = view.map_err(log_store_failure)? else {
        // A local requester also sees sessions of other accounts.
        let visible = sessions.view_session(requester.account.as_ref(), id).await;
        return Err(match visible.map_err(log_store_failure)? {
            Some(_) => Failure::SessionReadOnly,
            None => Failure::SessionNotFound,
        });
    };
    app.session_events.publish_change(&view);
    Ok(respond_session(app, requester, &view))
}

fn respond_session(app: &App, requester: &Requester, view: &SessionView) -> Response<Body> {
    let reader = requester.choose_reader(app, Some(&view.account));
    respond_json(&session::build_report(view, reader))
}

/// Parses the body of `PATCH sessions/{id}`: `{"auto_compact": "on" | "off" | "follow"}`.
pub(super) async fn parse_switch(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
) -> Result<SessionCommand, Failure> {
    let limits = ServerConfig {
        max_body_bytes: MAX_BODY_BYTES,
        ..app.config.server.clone()
    };
    let inflight = &app.inflight_bytes;
    let received = body.read_unpacked(&parts.headers, &limits, inflight).await;
    let received = received.map_err(|failure| match failure {
        Failure::BodyTooLarge { limit } => Failure::SwitchTooLarge { limit },
        failure => failure,
    })?;
    let json: Value = serde_json::from_slice(&received.bytes)
        .map_err(|error| Failure::NotJson(error.to_string()))?;
    let fields = json.as_object().ok_or(Failure::SwitchMissing)?;
    if let Some(unknown) = fields.keys().find(|name| *name != "auto_compact") {
        let name = shorten_word(unknown);
        return Err(Failure::SwitchUnknown { name });
    }
    let value = fields.get("auto_compact").ok_or(Failure::SwitchMissing)?;
    let auto = match value.as_str() {
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some("follow") => None,
        _ => {
            return Err(Failure::UnknownWord {
                name: "auto_compact",
                words: r#""on", "off" or "follow" (the settings)"#.to_owned(),
            });
        }
    };
    Ok(SessionCommand::AutoCompact(auto))
}
