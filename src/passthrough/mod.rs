//! What is sent on: every path of a provider's API that is not guarded goes through untouched, but
//! for the name of its model.
//!
//! Who answers: the provider of the model that body or query names; else the one that the path or
//! `x-plimsoll-provider` names; else the default. Bodies stream both ways and are not held; only
//! JSON is read whole, since its model may stand at its end.
//! SECURITY: a key for some models reaches nobody with a body of which it is not certain that every
//! reader finds one model in it, and that one allowed.

mod answer;
mod opened;
mod upgrade;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, header::AUTHORIZATION, request::Parts};
use xxhash_rust::xxh3::xxh3_64;

use self::{
    answer::passed,
    opened::Opened,
    upgrade::{Opening, upgrade, wants_websocket},
};
use crate::{
    conversation::edit::Edits,
    error::Failure,
    http::{
        admission::{Client, allows_provider, allows_target, no_such_model},
        body::RequestBody,
        limit::Hold,
    },
    provider::{Outgoing, Payload, Provider},
    proxy::{
        App,
        outgoing::{chosen, outgoing_headers, without_key},
        traced_send,
    },
    telemetry::{Operation, record::Record},
    wire::{
        Body,
        model::{Found, Named, in_query},
    },
};

/// The one path whose websocket keeps the model that its query names.
const REALTIME: &str = "/realtime";

/// Who asks for a path.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub client: &'a Client,
    pub running: &'a Arc<Hold>,
    /// The provider that the path names.
    pub provider: Option<&'a str>,
}

/// Who answers a request, and what of it has to be written anew for that.
struct Served {
    provider: Arc<Provider>,
    /// The provider's own name of the model, where one is named.
    model: Option<String>,
}

/// Everything else of a provider's API: untouched both ways. `path` follows `/v1`.
///
/// # Errors
/// Nobody serves it, the client may not use it, or no answer began.
pub async fn forward(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    caller: Caller<'_>,
    path: &str,
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    // What its body and its query say of its model.
    let opened = opened::open(app, parts, body, caller.client.unlimited()).await?;
    let in_query = in_query(parts.uri.query().unwrap_or_default());
    let named = opened.found.model.as_ref().or(in_query.model.as_ref());
    if let Some(named) = named {
        record.set_model(&named.model);
    }

    // Who answers.
    let websocket = wants_websocket(parts).filter(|_| !opened.has_body);
    check(&opened, &in_query, caller.client)?;
    if websocket.is_some() {
        check_websocket(path, &in_query, caller.client)?;
    }
    let served = serve(app, parts, caller, [&opened.found, &in_query])?;
    let provider = &*served.provider;
    record.notes().facts().provider = Some(provider.name.to_string());

    // The request, with the model's name as that provider has it.
    let model = served.model.as_deref();
    let mut outgoing = Outgoing {
        method: parts.method.clone(),
        path: path.to_owned() + &query(app, parts, provider, in_query.model.as_ref(), model),
        headers: outgoing_headers(app, parts, provider, false),
        body: Payload::Empty,
        model: served.model.clone(),
    };
    if let Some(client) = websocket
        && provider.config.base_url.is_some()
    {
        let opening = Opening {
            client,
            outgoing,
            provider: served.provider,
            running: Arc::clone(caller.running),
        };
        return upgrade(app, parts, opening, record).await;
    }
    let mut edits = Edits::default();
    if let (Some(named), Some(model)) = (&opened.found.model, model) {
        replace(&mut edits, named, model);
    }
    let limit = app.config.server.body_timeout;
    outgoing.body = opened.payload(&edits, &mut outgoing.headers, body, limit);
    let operation = Operation::of(path);
    if let (Some(operation), Some(model)) = (operation, model) {
        let spelt_out = || app.registry.is_spelt_out(provider, model);
        let metrics = &app.metrics;
        let labels = metrics.label_model(operation, &provider.name, model, spelt_out);
        record.notes().facts().model_labels = Some(labels);
    }
    let answer = traced_send::send(&record.notes().trace, provider, operation, outgoing).await?;
    Ok(passed(answer, parts))
}

/// Whether a client with a key for some models may send this at all.
fn check(opened: &Opened, in_query: &Found, client: &Client) -> Result<(), Failure> {
    let one = !opened.has_body || (opened.found.surely && opened.found.model.is_some());
    if client.unlimited() || (one && in_query.surely) {
        return Ok(());
    }
    Err(uncertain())
}

/// Whether it may open a websocket, of which nobody reads what is said in it.
///
/// SECURITY: on other paths than this one each message may name a model.
fn check_websocket(path: &str, in_query: &Found, client: &Client) -> Result<(), Failure> {
    match client.unlimited() || (path == REALTIME && in_query.model.is_some()) {
        true => Ok(()),
        false => Err(uncertain()),
    }
}

fn uncertain() -> Failure {
    Failure::ModelNotFound(
        "This client key is for some models only: name one of them as `model`, and once.".into(),
    )
}

/// Who gets a request in which these models are named, the body's before the query's.
fn serve(
    app: &App,
    parts: &Parts,
    caller: Caller<'_>,
    named: [&Found; 2],
) -> Result<Served, Failure> {
    let client = caller.client;
    let chosen = caller.provider.or_else(|| chosen(&parts.headers));
    let mut served = None;
    for named in named.iter().filter_map(|found| found.model.as_ref()) {
        let mut choice = app.registry.choose(&named.model, chosen)?;
        let made = choice.asked_is_configured;
        choice.permit(|target| allows_target(&app.registry, client, &named.model, made, target));
        // Nothing is sent twice here, so the first of them is all.
        let first = choice.first(seed(client, &parts.headers));
        let target = first.ok_or_else(|| no_such_model(&named.model))?;
        served.get_or_insert(Served {
            provider: target.provider,
            model: Some(target.model),
        });
    }
    if let Some(served) = served {
        return Ok(served);
    }
    let provider = match chosen {
        Some(name) => app.registry.named(name)?,
        None => app.registry.fallback()?,
    };
    if !allows_provider(&app.registry, client, &provider.name) {
        return Err(Failure::PathNotAllowed);
    }
    Ok(Served {
        provider: Arc::clone(provider),
        model: None,
    })
}

/// Keeps a client at the same one of several places.
fn seed(client: &Client, headers: &HeaderMap) -> u64 {
    let name = client.name.as_deref().map(str::as_bytes);
    let credential = || headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
    name.or_else(credential).map_or(0, xxh3_64)
}

fn replace(edits: &mut Edits, named: &Named, model: &str) {
    if named.model != model {
        edits.replace(named.span, named.spell(model));
    }
}

/// The query as it goes on, with its `?`.
///
/// SECURITY: browsers put a key into it; where the client's key may not go on, that may not either.
fn query(
    app: &App,
    parts: &Parts,
    provider: &Provider,
    named: Option<&Named>,
    model: Option<&str>,
) -> String {
    let Some(query) = parts.uri.query() else {
        return String::new();
    };
    let mut edits = Edits::default();
    if let (Some(named), Some(model)) = (named, model) {
        replace(&mut edits, named, model);
    }
    let edited = edits.apply(&Bytes::copy_from_slice(query.as_bytes()));
    without_key(app, provider, &String::from_utf8_lossy(&edited.to_bytes()))
}
