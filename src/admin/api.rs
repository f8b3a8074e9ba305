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

use std::sync::Arc;

use http::{HeaderValue, Method, Response, StatusCode, header::CACHE_CONTROL, request::Parts};
use serde::Serialize;

pub(super) use self::who::Who;
use crate::{
    error::{Failure, chain},
    http::{answer, body::RequestBody},
    proxy::App,
    session::{SessionError, SessionId, Wanted},
    store::Page,
    telemetry::record::Record,
    wire::Body,
};

/// Bytes of a request's body that are read where none is needed, or a small one.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Characters of a client's own word that an error repeats.
const MAX_WORD: usize = 64;

/// What a request wants.
#[derive(Clone, Copy)]
enum Wants {
    /// `GET sessions`.
    List(Page),
    /// `GET sessions/{id}`.
    Report(SessionId),
    /// `PATCH sessions/{id}`.
    Switch(SessionId),
    /// `POST sessions/{id}/clear` or `/compact`.
    Order(SessionId, Wanted),
    /// `GET providers`.
    Providers,
    /// `GET events`.
    Events,
    /// `POST fit`.
    Fit,
    /// `GET about`.
    About,
    /// `GET settings`.
    Settings,
    /// `GET openapi.json`.
    Description,
}

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
    let wants = wants(parts, path)?;
    let mut answer = match wants {
        Wants::Fit => fit::fit(app, parts, body, &who, record).await?,
        Wants::Switch(id) => session::switch(app, parts, body, &who, id).await?,
        wants => {
            body.discard(MAX_BODY_BYTES, &app.config.server).await?;
            match wants {
                Wants::List(page) => list::list(app, &who, page).await?,
                Wants::Report(id) => session::report(app, &who, id).await?,
                Wants::Order(id, wanted) => session::order(app, &who, id, wanted).await?,
                Wants::Providers => respond(&providers::known(app, &who)),
                Wants::Events => {
                    // It ends when its reader leaves, and is no work that anybody waits for.
                    record.in_flight = None;
                    events::events(app, who)?
                }
                Wants::About => about::about(app, &who),
                Wants::Settings => about::settings(app, &who)?,
                Wants::Description | Wants::Fit | Wants::Switch(_) => openapi::description(),
            }
        }
    };
    let never = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(CACHE_CONTROL, never);
    Ok(answer)
}

/// What is asked for.
fn wants(parts: &Parts, path: &str) -> Result<Wants, Failure> {
    let only = |methods: &[Method], allow| match methods.contains(&parts.method) {
        true => Ok(()),
        false => Err(Failure::WrongMethod { allow }),
    };
    let reads = || only(&[Method::GET, Method::HEAD], "GET, HEAD");
    let posts = || only(&[Method::POST], "POST");
    match path {
        "sessions" => {
            reads()?;
            return Ok(Wants::List(list::page(parts.uri.query())?));
        }
        "providers" => return reads().map(|()| Wants::Providers),
        "events" => return reads().map(|()| Wants::Events),
        "about" => return reads().map(|()| Wants::About),
        "settings" => return reads().map(|()| Wants::Settings),
        "openapi.json" => return reads().map(|()| Wants::Description),
        "fit" => return posts().map(|()| Wants::Fit),
        _ => {}
    }
    let path = path.strip_prefix("sessions/");
    let path = path.ok_or(Failure::PathNotFound)?;
    let (id, part) = match path.split_once('/') {
        Some((id, part)) => (id, Some(part)),
        None => (path, None),
    };
    let id = SessionId::parse(id).ok_or(Failure::SessionNotFound);
    match part {
        Some("clear") => posts().and(id).map(|id| Wants::Order(id, Wanted::Clear)),
        Some("compact") => posts().and(id).map(|id| Wants::Order(id, Wanted::Compact)),
        Some(_) => Err(Failure::SessionNotFound),
        None => match parts.method {
            Method::GET | Method::HEAD => id.map(Wants::Report),
            Method::PATCH => id.map(Wants::Switch),
            _ => Err(Failure::WrongMethod {
                allow: "GET, HEAD, PATCH",
            }),
        },
    }
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
