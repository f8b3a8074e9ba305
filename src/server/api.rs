//! Our own API: what is known of a session, and what may be asked of it.
//!
//! SECURITY: a session is shown to the account it belongs to and to the administrator. Anyone
//! else is told that it does not exist, so that ids cannot be tried out. That no web page of
//! another origin comes this far was seen to before the path was looked at.

use http::{HeaderMap, Method, Response, StatusCode, header::AUTHORIZATION, request::Parts};
use hyper::body::Incoming;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{App, admit, answer, body};
use crate::{
    error::Failure,
    session::{self, Account, Reader, SessionId, Wanted},
    wire::Body,
};

/// Bytes of a request's body that are read, and not looked at.
const MAX_BODY_BYTES: usize = 64 << 10;

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
    body::discard(&parts.headers, body, MAX_BODY_BYTES, &app.config.server).await?;
    let (account, id) = (asked.account.as_ref(), asked.session);
    let known = match asked.wants {
        Wants::Report => app.sessions.session(account, id).await,
        Wants::Clear => app.sessions.order(account, id, Wanted::Clear).await,
    };
    let known = known
        .map_err(|error| {
            tracing::warn!(error = %crate::error::chain(&error), "a session could not be looked up");
            Failure::StoreDown
        })?
        .ok_or(Failure::SessionNotFound)?;
    let reader = match account {
        Some(_) => Reader::Owner,
        None => Reader::Admin,
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
    let (id, wants) = match path.strip_suffix("/clear") {
        Some(id) => (id, Wants::Clear),
        None => (path, Wants::Report),
    };
    let (allowed, allow): (&[Method], _) = match wants {
        Wants::Report => (&[Method::GET, Method::HEAD], "GET"),
        Wants::Clear => (&[Method::POST], "POST"),
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
