//! Our own API: what is known of a session.
//!
//! SECURITY: a session is shown to the account it belongs to and to the administrator. Anyone
//! else is told that it does not exist, so that ids cannot be tried out.

use http::{HeaderMap, Method, Response, StatusCode, header::AUTHORIZATION, request::Parts};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{App, admit, answer};
use crate::{
    error::Failure,
    session::{self, SessionId},
    wire::Body,
};

/// `GET /plimsoll/api/sessions/{id}`.
///
/// # Errors
/// No such path or session, or a method that the path does not have.
pub async fn api(app: &App, parts: &Parts, path: &str) -> Result<Response<Body>, Failure> {
    let admin = is_admin(app, &parts.headers);
    let client = if admin {
        None
    } else {
        Some(app.clients.recognise(&parts.headers)?)
    };
    let id = path
        .trim_start_matches('/')
        .strip_prefix("sessions/")
        .ok_or(Failure::PathNotFound)?;
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Failure::WrongMethod { allow: "GET" });
    }
    let id = SessionId::parse(id).ok_or(Failure::SessionNotFound)?;
    let account = client.map(|client| {
        let client = session::Client::of(client.name.as_deref(), &parts.headers);
        app.sessions.tenants().account(client)
    });
    let found = app.sessions.session(account.as_ref(), id).await;
    let state = found
        .map_err(|error| {
            tracing::warn!(error = %crate::error::chain(&error), "a session could not be looked up");
            Failure::StoreDown
        })?
        .ok_or(Failure::SessionNotFound)?;
    let body = serde_json::to_vec(&session::report(&state)).unwrap_or_default();
    Ok(answer::json(StatusCode::OK, body))
}

/// Whether the request carries the administrator's key; compared in constant time.
fn is_admin(app: &App, headers: &HeaderMap) -> bool {
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
