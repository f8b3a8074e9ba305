//! Passthrough: forwards every unguarded path of a provider's API untouched, except for the name of its model and the
//! proxy's own compaction entries, and estimates the tokens of a request where the provider does not count them.
//!
//! The request goes to the provider of the model that a JSON body, else the query, names; else to the one that the
//! path or `x-plimsoll-provider` names; else to the default. Bodies stream both ways and are not held; only JSON is
//! read whole, since its model may stand at its end. Forms (uploads of audio and images) are not read.
//! SECURITY: with a key for some models, every reader of a request must find the same, allowed model in it.

pub mod codex_models;
mod inspected_body;
mod token_count;
mod upgrade;

use std::sync::Arc;

use http::{
    HeaderMap, Method, Response,
    header::{AUTHORIZATION, TRAILER},
    request::Parts,
};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use self::{
    inspected_body::InspectedBody,
    token_count::{answer_estimate, counted_format, keep_error, may_need_estimate},
    upgrade::{UpgradeRequest, find_websocket_upgrade, upgrade_connection},
};
use crate::{
    config::{ClientCompaction, ResponsesWebsocket},
    conversation::{Format, edit::Edits},
    error::Failure,
    http::{
        admission::{Client, allows_provider, allows_target, no_such_model},
        answer::accepts_trailers,
        body::{ReceivedBody, RequestBody},
        limit::Hold,
    },
    provider::{OutgoingRequest, Payload, Provider, headers},
    proxy::{
        App, CompactionShape, GuardMode,
        exchange::{IncomingRequest, exchange_body},
        outgoing,
        request_options::RequestOptions,
    },
    telemetry::{Operation, record::RequestRecord},
    wire::{
        Body,
        model::{NamedModel, find_model_in_query},
    },
};

/// The only path whose websocket keeps the model that its query names.
const REALTIME: &str = "/realtime";

/// The client of a request to forward, and the provider that it names.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub client: &'a Client,
    pub running: &'a Arc<Hold>,
    /// The provider that the path names.
    pub provider: Option<&'a str>,
}

/// The provider that gets a request.
struct ForwardTarget {
    provider: Arc<Provider>,
    /// The provider's name for the model, where the request names one.
    model: Option<String>,
}

/// Forwards a request untouched, and its answer. `path` follows `/v1`.
///
/// # Errors
/// No provider serves it, the client may not use it, or no answer began.
pub async fn forward_request(
    app: &Arc<App>,
    parts: &Parts,
    body: &mut RequestBody,
    caller: Caller<'_>,
    path: &str,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    // The model that its body and its query name.
    let inspected =
        inspected_body::inspect_body(app, parts, body, caller.client.is_unlimited()).await?;
    if let Some((format, body)) = read_list_to_compact(app, parts, path, &inspected)? {
        let incoming = IncomingRequest {
            format,
            parts: parts.clone(),
            client: caller.client,
            provider: caller.provider.map(str::to_owned),
            compaction: CompactionShape::List,
        };
        return Box::pin(exchange_body(app, incoming, body, record)).await;
    }
    let in_query = find_model_in_query(parts.uri.query().unwrap_or_default());
    let named = match inspected.named.model.is_empty() {
        true => &in_query.model,
        false => &inspected.named.model,
    };
    if !named.is_empty() {
        record.set_model(named);
    }

    // The provider.
    let websocket = find_websocket_upgrade(parts).filter(|_| !inspected.has_body);
    let refuses = app.config.responses.websocket == ResponsesWebsocket::Refuse;
    let may_open = |format: Format| format.rules().opens_websockets;
    if websocket.is_some() && Format::from_path(path).is_some_and(may_open) && refuses {
        return Err(Failure::WebsocketRefused);
    }
    if !caller.client.is_unlimited() {
        check_limited_key(&inspected, &in_query, websocket.is_some().then_some(path))?;
    }
    let target = choose_forward_target(app, parts, caller, named)?;
    let provider = &*target.provider;
    record.notes().facts().provider = Some(provider.name.to_string());

    // The request, with the provider's name for the model.
    let model = target.model.as_deref();
    let mut outgoing = OutgoingRequest {
        method: parts.method.clone(),
        path: path.to_owned() + &build_query(app, parts, provider, &in_query, model),
        headers: outgoing::outgoing_headers(app, parts, provider, false),
        body: Payload::Empty,
        model: target.model.clone(),
    };
    let format = Format::of_request(parts.uri.path(), &parts.headers);
    headers::place_key(&mut outgoing.headers, &provider.config, format);
    if let Some(client) = websocket
        && provider.config.base_url.is_some()
    {
        let upgrade = UpgradeRequest {
            client,
            outgoing,
            provider: target.provider,
            running: Arc::clone(caller.running),
        };
        return upgrade_connection(app, parts, upgrade, record).await;
    }
    let counted = counted_format(parts, path).map(|format| (format, inspected.read.clone()));
    let estimate = || {
        let (format, body) = counted.clone()?;
        answer_estimate(app, format, provider, model, body)
    };
    if !provider.config.formats.contains(&format)
        && let Some(estimate) = estimate()
    {
        return Ok(estimate);
    }
    let mut edits = Edits::default();
    if let Some(model) = model
        && let Some(span) = inspected.named.find_renamed(model)
    {
        edits.replace(span, Value::from(model).to_string());
    }
    let limit = app.config.server.body_timeout;
    outgoing.body = inspected.into_payload(&edits, &mut outgoing.headers, body, limit);
    let operation = Operation::from_path(path);
    if let (Some(operation), Some(model)) = (operation, model) {
        let spelt_out = || app.registry.is_spelt_out(provider, model);
        let metrics = &app.metrics;
        let labels = metrics.label_model(operation, &provider.name, model, spelt_out);
        record.notes().facts().model_labels = Some(labels);
    }
    let answer =
        outgoing::send_traced(&record.notes().trace, provider, operation, outgoing).await?;
    if may_need_estimate(answer.status())
        && let Some(estimate) = estimate()
    {
        let kept = keep_error(format, answer, &provider.name).await;
        return Ok(kept.map_or(estimate, |answer| pass_answer(answer, parts)));
    }
    Ok(pass_answer(answer, parts))
}

/// The body of a request for a compacted list that the proxy answers; `None` for any other request.
fn read_list_to_compact(
    app: &App,
    parts: &Parts,
    path: &str,
    inspected: &InspectedBody,
) -> Result<Option<(Format, ReceivedBody)>, Failure> {
    let is_asked = app.config.responses.compaction == ClientCompaction::Answer
        && parts.method == Method::POST
        && RequestOptions::from_headers(&parts.headers, false).mode == GuardMode::Guard;
    let Some(format) = Format::from_compact_path(path).filter(|_| is_asked) else {
        return Ok(None);
    };
    let conversation = format.index_body(inspected.read.clone());
    let Some(bytes) = conversation
        .ok()
        .and_then(|it| it.with_compaction_trigger())
    else {
        return Ok(None);
    };
    let mut hold = app.inflight_bytes.begin_hold();
    if !hold.grow(bytes.len()) {
        return Err(Failure::Busy);
    }
    Ok(Some((format, ReceivedBody { bytes, hold })))
}

/// Refuses what a client with a key for some models must not send: a request that does not name exactly one model,
/// unless it has no body and names none. `websocket`: the path of a websocket to open.
///
/// SECURITY: a body that is not JSON may name any model, and so may each message of a websocket, on all paths but one.
fn check_limited_key(
    inspected: &InspectedBody,
    in_query: &NamedModel,
    websocket: Option<&str>,
) -> Result<(), Failure> {
    let names_one = |named: &NamedModel| named.names == 1 && !named.model.is_empty();
    let (is_certain, how) = if inspected.has_body {
        (
            names_one(&inspected.named) && in_query.names == 0,
            "at the top of a JSON body. A body of another type, such as a form, needs a key for all models.",
        )
    } else {
        let keeps_model = websocket.is_none_or(|path| path == REALTIME && in_query.names == 1);
        (
            (in_query.names == 0 || names_one(in_query)) && keeps_model,
            "in the query. Of websockets such a key opens `/v1/realtime` only.",
        )
    };
    if is_certain {
        return Ok(());
    }
    Err(Failure::ModelNotFound(format!(
        "This client key allows some models only: name exactly one of them as `model` {how}"
    )))
}

/// Chooses the provider of a request; `named`: the model that it names, empty if it names none.
fn choose_forward_target(
    app: &App,
    parts: &Parts,
    caller: Caller<'_>,
    named: &str,
) -> Result<ForwardTarget, Failure> {
    let client = caller.client;
    let in_path = caller.provider;
    let chosen = in_path.or_else(|| outgoing::chosen_provider(&parts.headers));
    if !named.is_empty() {
        let mut choice = app.registry.choose_candidates(named, chosen)?;
        let is_configured = choice.asked_is_configured;
        choice.retain_permitted(|target| {
            allows_target(&app.registry, client, named, is_configured, target)
        });
        // Passthrough has no fallbacks, so only the first candidate counts.
        let first = choice.first_by_seed(client_seed(client, &parts.headers));
        let target = first.ok_or_else(|| no_such_model(named))?;
        return Ok(ForwardTarget {
            provider: target.provider,
            model: Some(target.model),
        });
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

/// Keeps a client at the same one of several candidates.
fn client_seed(client: &Client, headers: &HeaderMap) -> u64 {
    let name = client.name.as_deref().map(str::as_bytes);
    let credential = || headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
    name.or_else(credential).map_or(0, xxh3_64)
}

/// The query to forward, with its `?`.
///
/// SECURITY: browsers put a key into the query; it is removed wherever the client's key is not forwarded.
fn build_query(
    app: &App,
    parts: &Parts,
    provider: &Provider,
    named: &NamedModel,
    model: Option<&str>,
) -> String {
    let Some(query) = parts.uri.query() else {
        return String::new();
    };
    let mut query = query.to_owned();
    if let Some(model) = model
        && let Some(span) = named.find_renamed(model)
    {
        let name = String::from_iter(form_urlencoded::byte_serialize(model.as_bytes()));
        query.replace_range(span.range(), &name);
    }
    outgoing::strip_query_keys(app, parts, provider, &query)
}

/// Forwards an answer. Its trailers, filtered as headers are, go to a client that reads them.
fn pass_answer(answer: Response<Body>, parts: &Parts) -> Response<Body> {
    let announced: Vec<_> = match accepts_trailers(&parts.headers) {
        true => answer.headers().get_all(TRAILER).iter().cloned().collect(),
        false => Vec::new(),
    };
    let mut answer = outgoing::clean_answer_headers(answer);
    for names in announced {
        answer.headers_mut().append(TRAILER, names);
    }
    let clean = |frame: Frame<_>| match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(headers::filter_for_client(&trailers)),
        Err(frame) => frame,
    };
    answer.map(|body| body.map_frame(clean).boxed_unsync())
}
