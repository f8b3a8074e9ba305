//! What is sent on: every path of a provider's API that is not guarded goes through untouched, but
//! for the name of its model.
//!
//! Who answers: the provider of the model that body or query names; else the one that the path or
//! `x-plimsoll-provider` names; else the default. Bodies stream both ways and are not held; only
//! JSON is read whole, since its model may stand at its end.
//! SECURITY: a key for some models reaches nobody with a body of which it is not certain that every
//! reader finds one model in it, and that one allowed.

mod answer;
mod inspected_body;
mod upgrade;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, header::AUTHORIZATION, request::Parts};
use xxhash_rust::xxh3::xxh3_64;

use self::{
    answer::pass_answer,
    inspected_body::InspectedBody,
    upgrade::{UpgradeRequest, find_websocket_upgrade, upgrade_connection},
};
use crate::{
    conversation::edit::Edits,
    error::Failure,
    http::{
        admission::{Client, allows_provider, allows_target, no_such_model},
        body::RequestBody,
        limit::Hold,
    },
    provider::{OutgoingRequest, Payload, Provider},
    proxy::{
        App,
        outgoing::{chosen_provider, outgoing_headers, strip_query_keys},
        traced_send,
    },
    telemetry::{Operation, record::RequestRecord},
    wire::{
        Body,
        model::{ModelLookup, NamedModel, find_model_in_query},
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
struct ForwardTarget {
    provider: Arc<Provider>,
    /// The provider's own name of the model, where one is named.
    model: Option<String>,
}

/// Everything else of a provider's API: untouched both ways. `path` follows `/v1`.
///
/// # Errors
/// Nobody serves it, the client may not use it, or no answer began.
pub async fn forward_request(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    caller: Caller<'_>,
    path: &str,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    // What its body and its query say of its model.
    let opened =
        inspected_body::inspect_body(app, parts, body, caller.client.is_unlimited()).await?;
    let in_query = find_model_in_query(parts.uri.query().unwrap_or_default());
    let named = opened.found.model.as_ref().or(in_query.model.as_ref());
    if let Some(named) = named {
        record.set_model(&named.model);
    }

    // Who answers.
    let websocket = find_websocket_upgrade(parts).filter(|_| !opened.has_body);
    check_named_model(&opened, &in_query, caller.client)?;
    if websocket.is_some() {
        check_websocket(path, &in_query, caller.client)?;
    }
    let served = choose_forward_target(app, parts, caller, [&opened.found, &in_query])?;
    let provider = &*served.provider;
    record.notes().facts().provider = Some(provider.name.to_string());

    // The request, with the model's name as that provider has it.
    let model = served.model.as_deref();
    let mut outgoing = OutgoingRequest {
        method: parts.method.clone(),
        path: path.to_owned() + &build_query(app, parts, provider, in_query.model.as_ref(), model),
        headers: outgoing_headers(app, parts, provider, false),
        body: Payload::Empty,
        model: served.model.clone(),
    };
    if let Some(client) = websocket
        && provider.config.base_url.is_some()
    {
        let opening = UpgradeRequest {
            client,
            outgoing,
            provider: served.provider,
            running: Arc::clone(caller.running),
        };
        return upgrade_connection(app, parts, opening, record).await;
    }
    let mut edits = Edits::default();
    if let (Some(named), Some(model)) = (&opened.found.model, model) {
        replace_model(&mut edits, named, model);
    }
    let limit = app.config.server.body_timeout;
    outgoing.body = opened.into_payload(&edits, &mut outgoing.headers, body, limit);
    let operation = Operation::from_path(path);
    if let (Some(operation), Some(model)) = (operation, model) {
        let spelt_out = || app.registry.is_spelt_out(provider, model);
        let metrics = &app.metrics;
        let labels = metrics.label_model(operation, &provider.name, model, spelt_out);
        record.notes().facts().model_labels = Some(labels);
    }
    let answer =
        traced_send::send_traced(&record.notes().trace, provider, operation, outgoing).await?;
    Ok(pass_answer(answer, parts))
}

/// Whether a client with a key for some models may send this at all.
fn check_named_model(
    opened: &InspectedBody,
    in_query: &ModelLookup,
    client: &Client,
) -> Result<(), Failure> {
    let one = !opened.has_body || (opened.found.is_certain && opened.found.model.is_some());
    if client.is_unlimited() || (one && in_query.is_certain) {
        return Ok(());
    }
    Err(uncertain_model())
}

/// Whether it may open a websocket, of which nobody reads what is said in it.
///
/// SECURITY: on other paths than this one each message may name a model.
fn check_websocket(path: &str, in_query: &ModelLookup, client: &Client) -> Result<(), Failure> {
    match client.is_unlimited() || (path == REALTIME && in_query.model.is_some()) {
        true => Ok(()),
        false => Err(uncertain_model()),
    }
}

fn uncertain_model() -> Failure {
    Failure::ModelNotFound(
        "This client key is for some models only: name one of them as `model`, and once.".into(),
    )
}

/// Who gets a request in which these models are named, the body's before the query's.
fn choose_forward_target(
    app: &App,
    parts: &Parts,
    caller: Caller<'_>,
    named: [&ModelLookup; 2],
) -> Result<ForwardTarget, Failure> {
    let client = caller.client;
    let chosen = caller.provider.or_else(|| chosen_provider(&parts.headers));
    let mut served = None;
    for named in named.iter().filter_map(|found| found.model.as_ref()) {
        let mut choice = app.registry.choose_candidates(&named.model, chosen)?;
        let made = choice.asked_is_configured;
        choice.retain_permitted(|target| {
            allows_target(&app.registry, client, &named.model, made, target)
        });
        // Nothing is sent twice here, so the first of them is all.
        let first = choice.first_by_seed(client_seed(client, &parts.headers));
        let target = first.ok_or_else(|| no_such_model(&named.model))?;
        served.get_or_insert(ForwardTarget {
            provider: target.provider,
            model: Some(target.model),
        });
    }
    if let Some(served) = served {
        return Ok(served);
    }
    let provider = match chosen {
        Some(name) => app.registry.find_provider(name)?,
        None => app.registry.find_default_provider()?,
    };
    if !allows_provider(&app.registry, client, &provider.name) {
        return Err(Failure::PathNotAllowed);
    }
    Ok(ForwardTarget {
        provider: Arc::clone(provider),
        model: None,
    })
}

/// Keeps a client at the same one of several places.
fn client_seed(client: &Client, headers: &HeaderMap) -> u64 {
    let name = client.name.as_deref().map(str::as_bytes);
    let credential = || headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
    name.or_else(credential).map_or(0, xxh3_64)
}

fn replace_model(edits: &mut Edits, named: &NamedModel, model: &str) {
    if named.model != model {
        edits.replace(named.span, named.spell_model(model));
    }
}

/// The query as it goes on, with its `?`.
///
/// SECURITY: browsers put a key into it; where the client's key may not go on, that may not either.
fn build_query(
    app: &App,
    parts: &Parts,
    provider: &Provider,
    named: Option<&NamedModel>,
    model: Option<&str>,
) -> String {
    let Some(query) = parts.uri.query() else {
        return String::new();
    };
    let mut edits = Edits::default();
    if let (Some(named), Some(model)) = (named, model) {
        replace_model(&mut edits, named, model);
    }
    let edited = edits.apply(&Bytes::copy_from_slice(query.as_bytes()));
    strip_query_keys(app, provider, &String::from_utf8_lossy(&edited.to_bytes()))
}
