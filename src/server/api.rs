//! Our own API: what is known of a session, and what may be asked of it.
//!
//! SECURITY: a session is shown to the account it belongs to and to the administrator. Anyone
//! else is told that it does not exist, so that ids cannot be tried out. That no web page of
//! another origin comes this far was seen to before the path was looked at.

use http::{HeaderMap, Method, Response, StatusCode, header::AUTHORIZATION, request::Parts};
use hyper::body::Incoming;
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{App, admit, answer, body};
use crate::{
    config::ServerConfig,
    error::Failure,
    session::{self, Account, Reader, SessionId, Wanted},
    wire::Body,
};

/// Bytes of a request's body that are read.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Characters of a client's own word that an error repeats.
const MAX_WORD: usize = 64;

/// What a request wants.
struct Asked {
    /// `None`: the administrator, who may ask of any.
    account: Option<Account>,
    session: SessionId,
    wants: Wants,
}

#[derive(Clone, Copy)]
enum Wants {
    /// `GET /plimsoll/api/sessions/{id}`.
    Report,
    /// `POST /plimsoll/api/sessions/{id}/clear`.
    Clear,
    /// `POST /plimsoll/api/sessions/{id}/compact`.
    Compact,
    /// `PATCH /plimsoll/api/sessions/{id}`.
    Switch,
}

/// Answers a request whose path begins with `/plimsoll/api/`; `path` is what follows.
///
/// # Errors
/// No such path or session, or a method that the path does not have; a body that is too large.
pub async fn api(
    app: &App,
    parts: &Parts,
    body: Incoming,
    path: &str,
) -> Result<Response<Body>, Failure> {
    let asked = match asked(app, parts, path) {
        Ok(asked) => asked,
        Err(failure) => {
            let limit = app.config.server.max_body_bytes;
            return Err(body::turn_away(&parts.headers, body, limit, failure).await);
        }
    };
    let wanted = match asked.wants {
        Wants::Switch => Some(switch(app, parts, body).await?),
        wants => {
            body::discard(&parts.headers, body, MAX_BODY_BYTES, &app.config.server).await?;
            match wants {
                Wants::Clear => Some(Wanted::Clear),
                Wants::Compact => Some(Wanted::Compact),
                Wants::Report | Wants::Switch => None,
            }
        }
    };
    let (account, id) = (asked.account.as_ref(), asked.session);
    let known = match wanted {
        None => app.sessions.session(account, id).await,
        Some(wanted) => app.sessions.order(account, id, wanted).await,
    };
    let known = known
        .map_err(|error| {
            tracing::warn!(error = %crate::error::chain(&error), "a session could not be looked up");
            Failure::StoreDown
        })?
        .ok_or(Failure::SessionNotFound)?;
    let reader = match account {
        Some(_) => Reader::Owner,
        None => Reader::Admin {
            show_content: app.config.admin.show_content,
        },
    };
    let body = serde_json::to_vec(&session::report(&known, reader)).unwrap_or_default();
    Ok(answer::json(StatusCode::OK, body))
}

/// Who asks, and for what.
fn asked(app: &App, parts: &Parts, path: &str) -> Result<Asked, Failure> {
    let account = if is_admin(app, &parts.headers) {
        None
    } else {
        let client = app.clients.recognise(&parts.headers)?;
        let client = session::Client::of(client.name.as_deref(), &parts.headers);
        Some(app.sessions.tenants().account(client))
    };
    let path = path.trim_start_matches('/').strip_prefix("sessions/");
    let path = path.ok_or(Failure::PathNotFound)?;
    let (id, wants) = match path.split_once('/') {
        Some((id, "clear")) => (id, Wants::Clear),
        Some((id, "compact")) => (id, Wants::Compact),
        Some(_) => return Err(Failure::SessionNotFound),
        None if parts.method == Method::PATCH => (path, Wants::Switch),
        None => (path, Wants::Report),
    };
    let (allowed, allow): (&[Method], _) = match wants {
        Wants::Report => (&[Method::GET, Method::HEAD], "GET, PATCH"),
        Wants::Clear | Wants::Compact => (&[Method::POST], "POST"),
        Wants::Switch => (&[Method::PATCH], "GET, PATCH"),
    };
    if !allowed.contains(&parts.method) {
        return Err(Failure::WrongMethod { allow });
    }
    Ok(Asked {
        account,
        session: SessionId::parse(id).ok_or(Failure::SessionNotFound)?,
        wants,
    })
}

/// Reads what is to be switched: `{"auto_compact": "on" | "off" | "follow"}`.
///
/// # Errors
/// The body is anything else.
async fn switch(app: &App, parts: &Parts, body: Incoming) -> Result<Wanted, Failure> {
    let limits = ServerConfig {
        max_body_bytes: MAX_BODY_BYTES,
        ..app.config.server.clone()
    };
    let received = body::read(&parts.headers, body, &limits, &app.flight).await;
    let received = received.map_err(|failure| match failure {
        Failure::BodyTooLarge { limit } => Failure::SwitchTooLarge { limit },
        failure => failure,
    })?;
    let read: Value = serde_json::from_slice(&received.bytes)
        .map_err(|error| Failure::NotJson(error.to_string()))?;
    let members = read.as_object().ok_or(Failure::SwitchMissing)?;
    if let Some(unknown) = members.keys().find(|name| *name != "auto_compact") {
        let name = unknown.chars().take(MAX_WORD).collect();
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

/// Whether the request carries the administrator's key; compared in constant time.
pub(super) fn is_admin(app: &App, headers: &HeaderMap) -> bool {
    let Some(expected) = &app.config.admin.key_sha256 else {
        return false;
    };
    let key = headers
        .get(AUTHORIZATION)
        .and_then(|value| admit::bearer(value.as_bytes()));
    key.is_some_and(|key| {
        let digest: [u8; 32] = Sha256::digest(key).into();
        digest.ct_eq(expected).into()
    })
}
