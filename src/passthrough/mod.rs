//! Passthrough: forwards every unguarded path of a provider's API untouched, except for the name of its model and the
//! proxy's own compaction entries. If the provider does not count the tokens of a request, they are estimated.
//!
//! The request goes to the provider of the model that a JSON body names, else of the one that the query names; else to
//! the provider that the path or `x-plimsoll-provider` names; else to the default. Bodies stream both ways and are not
//! held. Only JSON is read whole, since its model may stand at its end. Forms (uploads of audio and images) are not read.
//! SECURITY: with a key for some models, every reader of a request must find the same, allowed model in it.

pub mod codex_models;
mod inspected_body;
mod ollama;
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
use hyper::upgrade::OnUpgrade;
use xxhash_rust::xxh3::xxh3_64;

use self::{
    inspected_body::{InspectedBody, inspect_body},
    token_count::{answer_estimate, keep_error, may_need_estimate},
    upgrade::{UpgradeRequest, find_websocket_upgrade, upgrade_connection},
};
use crate::{
    config::{ClientCompaction, ResponsesWebsocket},
    conversation::Format,
    error::Failure,
    http::{
        admission::Client,
        answer::accepts_trailers,
        body::{ReceivedBody, RequestBody},
        limit::Hold,
        model_access::{allows_provider, no_such_model, retain_allowed},
        tasks::run_beside_tasks,
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

/// A request to forward.
#[derive(Clone, Copy)]
pub struct ForwardRequest<'a> {
    pub app: &'a Arc<App>,
    pub parts: &'a Parts,
    pub client: &'a Client,
    pub running: &'a Arc<Hold>,
    /// The provider that the path names.
    pub provider: Option<&'a str>,
    /// It follows `/v1`; of Ollama's own API, it leaves it.
    pub path: &'a str,
}

/// The provider that gets a request.
struct ForwardTarget {
    provider: Arc<Provider>,
    /// The provider's name for the model, where the request names one.
    model: Option<String>,
    /// The betas that the suffix of the model's name asks for, one bit for each.
    betas: u8,
}

/// Forwards a request untouched, and its answer.
///
/// # Errors
/// No provider serves it, the client may not use it, or no answer began.
pub async fn forward_request(
    forward: ForwardRequest<'_>,
    body: &mut RequestBody,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let ForwardRequest {
        app,
        parts,
        client,
        path,
        ..
    } = forward;
    // The model that its body and its query name.
    let is_ours = forward
        .counted_format()
        .or(forward.compacted_format())
        .is_some();
    let inspected = inspect_body(app, parts, body, client.is_unlimited(), is_ours).await?;
    if let Some(answer) = forward.answer_compacted_list(&inspected, record).await? {
        return Ok(answer);
    }
    let in_query = find_model_in_query(parts.uri.query().unwrap_or_default());
    let named = if inspected.named.model.is_empty() {
        &in_query.model
    } else {
        &inspected.named.model
    };
    if !named.is_empty() {
        record.set_model(named);
    }

    // The provider.
    let websocket = forward.find_websocket(&inspected)?;
    if !client.is_unlimited() {
        check_limited_key(&inspected, &in_query, websocket.is_some().then_some(path))?;
    }
    let target = forward.choose_target(named)?;
    let (provider, model) = (&*target.provider, target.model.as_deref());
    record.notes.facts().provider = Some(provider.name.to_string());

    // The request, with the provider's name for the model.
    let format = Format::of_request(parts.uri.path(), &parts.headers);
    let mut outgoing = forward.build_outgoing(&target, &in_query, format);
    if let Some(client) = websocket
        && provider.config.base_url.is_some()
    {
        let upgrade = UpgradeRequest {
            client,
            outgoing,
            provider: target.provider,
            running: Arc::clone(forward.running),
        };
        return upgrade_connection(app, parts, upgrade, record).await;
    }
    let counted = forward.counted_format();
    let counted = counted.map(|format| (format, inspected.read.clone()));
    let estimate = || {
        let (format, body) = counted.clone()?;
        run_beside_tasks(body.len(), || answer_estimate(app, format, &target, body))
    };
    if !provider.config.formats.contains(&format)
        && let Some(estimate) = estimate()
    {
        return Ok(estimate);
    }
    let limit = app.config.server.body_timeout;
    outgoing.body = inspected.into_payload(model, &mut outgoing.headers, body, limit);
    let operation = Operation::from_path(path);
    if let (Some(operation), Some(model)) = (operation, model) {
        let labels = app.label_model(operation, provider, model);
        record.notes.facts().model_labels = Some(labels);
    }

    // The answer: the provider's, or an estimate where it does not count tokens.
    let answer = outgoing::send_traced(&record.notes.trace, provider, operation, outgoing).await?;
    if may_need_estimate(answer.status())
        && let Some(estimate) = estimate()
    {
        let kept = keep_error(format, answer, &provider.name).await;
        return Ok(kept.map_or(estimate, |answer| pass_answer(answer, parts)));
    }
    Ok(pass_answer(answer, parts))
}

impl ForwardRequest<'_> {
    /// Answers a request for a compacted list, if the proxy is to do that; `None` for any other request.
    async fn answer_compacted_list(
        &self,
        inspected: &InspectedBody,
        record: &mut RequestRecord,
    ) -> Result<Option<Response<Body>>, Failure> {
        let (app, parts) = (self.app, self.parts);
        let is_asked = app.config.responses.compaction == ClientCompaction::Answer
            && RequestOptions::from_headers(&parts.headers, false).mode == GuardMode::Guard;
        let Some(format) = self.compacted_format().filter(|_| is_asked) else {
            return Ok(None);
        };
        let conversation = format.index_body(inspected.read.clone()).ok();
        let Some(bytes) = conversation.and_then(|it| it.with_compaction_trigger()) else {
            return Ok(None);
        };
        let mut hold = app.inflight_bytes.begin_hold();
        if !hold.grow(bytes.len()) {
            return Err(Failure::Busy);
        }
        let incoming = IncomingRequest {
            format,
            parts: parts.clone(),
            client: self.client,
            provider: self.provider,
            compaction: CompactionShape::List,
        };
        let body = ReceivedBody { bytes, hold };
        let answer = Box::pin(exchange_body(app, incoming, body, record));
        answer.await.map(Some)
    }

    /// The format of a request that asks to count tokens.
    fn counted_format(&self) -> Option<Format> {
        Format::from_count_path(self.path).filter(|_| self.parts.method == Method::POST)
    }

    /// The format of a request for a compacted list.
    fn compacted_format(&self) -> Option<Format> {
        Format::from_compact_path(self.path).filter(|_| self.parts.method == Method::POST)
    }

    /// The connection of a client that asks for a websocket.
    ///
    /// # Errors
    /// It is for a format that is guarded over HTTP only.
    fn find_websocket(&self, inspected: &InspectedBody) -> Result<Option<OnUpgrade>, Failure> {
        let websocket = find_websocket_upgrade(self.parts).filter(|_| !inspected.has_body);
        let refuses = self.app.config.responses.websocket == ResponsesWebsocket::Refuse;
        let may_open = |format: Format| format.rules().opens_websockets;
        let is_guarded = || Format::from_path(self.path).is_some_and(may_open);
        if websocket.is_some() && refuses && is_guarded() {
            Err(Failure::WebsocketRefused)
        } else {
            Ok(websocket)
        }
    }

    /// Chooses the provider; `named`: the model that the request names, empty if it names none.
    fn choose_target(&self, named: &str) -> Result<ForwardTarget, Failure> {
        let (registry, client, headers) = (&self.app.registry, self.client, &self.parts.headers);
        let chosen = outgoing::choose_provider(self.app, self.parts, self.provider, named);
        let ollama = self.choose_ollama(named, chosen)?;
        let chosen = ollama.as_deref().map_or(chosen, |it| Some(&*it.name));
        if !named.is_empty() {
            let mut choice = registry.choose_candidates(named, chosen)?;
            retain_allowed(&mut choice, registry, client);
            // Passthrough has no fallbacks, so only the first candidate counts.
            let first = choice.first_by_seed(client_seed(client, headers));
            let target = first.ok_or_else(|| no_such_model(named))?;
            outgoing::check_credentials(self.parts, &target.provider)?;
            let format = Format::of_request(self.parts.uri.path(), headers);
            let scope = outgoing::find_lesson_scope(self.app, self.parts, &target, format);
            return Ok(ForwardTarget {
                betas: if target.asks_long_window {
                    scope.betas
                } else {
                    0
                },
                provider: target.provider,
                model: Some(target.model),
            });
        }
        let provider = match chosen {
            Some(name) => registry.find_provider(name)?,
            None => registry.find_default_provider()?,
        };
        if !allows_provider(registry, client, &provider.name) {
            return Err(Failure::PathNotAllowed);
        }
        outgoing::check_credentials(self.parts, provider)?;
        Ok(ForwardTarget {
            provider: Arc::clone(provider),
            model: None,
            betas: 0,
        })
    }

    /// The request for the provider, still without its body. The query has the provider's name for the model.
    ///
    /// SECURITY: browsers put a key into the query; it is removed wherever the client's key is not forwarded.
    fn build_outgoing(
        &self,
        target: &ForwardTarget,
        in_query: &NamedModel,
        format: Format,
    ) -> OutgoingRequest {
        let (app, parts, provider) = (self.app, self.parts, &target.provider);
        let mut path = self.path.to_owned();
        if let Some(query) = parts.uri.query() {
            let mut query = query.to_owned();
            if let Some(model) = &target.model
                && let Some(span) = in_query.find_renamed(model)
            {
                let name = String::from_iter(form_urlencoded::byte_serialize(model.as_bytes()));
                query.replace_range(span.range(), &name);
            }
            path += &outgoing::strip_query_keys(app, parts, provider, &query);
        }
        let mut headers = outgoing::outgoing_headers(app, parts, provider, false);
        headers::place_key(&mut headers, &provider.config, format);
        outgoing::add_window_betas(&mut headers, target.betas);
        OutgoingRequest {
            method: parts.method.clone(),
            path,
            headers,
            body: Payload::Empty,
            model: target.model.clone(),
        }
    }
}

/// Refuses what a client with a key for some models must not send: a request that does not name exactly one model,
/// unless it has no body and names none. `websocket`: the path of a websocket to open.
///
/// SECURITY: a body that is not JSON may name any model. So may each message of a websocket, except on [`REALTIME`].
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

/// Keeps a client at the same one of several candidates.
fn client_seed(client: &Client, headers: &HeaderMap) -> u64 {
    let name = client.name.as_deref().map(str::as_bytes);
    let credential = || headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
    name.or_else(credential).map_or(0, xxh3_64)
}

/// Forwards an answer. Its trailers, filtered as headers are, go to a client that reads them.
fn pass_answer(answer: Response<Body>, parts: &Parts) -> Response<Body> {
    let announced: Vec<_> = if accepts_trailers(&parts.headers) {
        answer.headers().get_all(TRAILER).iter().cloned().collect()
    } else {
        Vec::new()
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
