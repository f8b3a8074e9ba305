//! `POST fit`: the guard as a service. It takes a request with a conversation and returns the fitted one with a
//! report.
//!
//! The limits of guarded requests apply. The request is planned as the first of a session; nothing is stored
//! and no provider is asked. The result differs from the request by the guard's edits and the removed
//! annotations only, byte for byte.

use bytes::Bytes;
use http::{Response, StatusCode, request::Parts};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Requester, shorten_word};
use crate::{
    conversation::{FORMATS, Format, IndexError},
    error::Failure,
    guard::explain::{ExplainedModel, PlanExplanation, explain_unguarded},
    http::{answer, body::RequestBody, model_access::no_such_model, tasks::run_beside_tasks},
    provider::Target,
    proxy::{
        App,
        outgoing::{chosen_provider, look_up_for_client},
        plan::{explain_model, explain_request, guard_policy},
    },
    telemetry::record::RequestRecord,
    wire::{Body, model::shallow_parse},
};

#[derive(Serialize)]
struct FitResponse<'a> {
    /// The client's request with the edits of the report.
    request: &'a RawValue,
    report: &'a PlanExplanation,
}

/// # Errors
/// If a limit is exceeded, the body is not JSON, or the requester may not use its model.
pub(super) async fn answer_fit(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    requester: &Requester,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let format = parse_format(parts.uri.query())?;
    let client = requester.client.as_ref();
    let running = client.map(|client| client.begin_request()).transpose()?;
    let (limits, inflight) = (&app.config.server, &app.inflight_bytes);
    let received = body.read_unpacked(&parts.headers, limits, inflight).await?;
    let mut hold = received.hold;
    let format = format.unwrap_or_else(|| Format::guess_from_body(&received.bytes));
    let path = format.path().trim_start_matches('/');
    if client.is_some_and(|client| !client.may_reach(path)) {
        return Err(Failure::PathNotAllowed);
    }
    let size = received.bytes.len();
    let fit = || fit_request(app, parts, requester, format, received.bytes);
    let (request, report) = run_beside_tasks(size, fit)?;
    let text = request.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&request);
    let request =
        serde_json::from_slice(text).map_err(|error| Failure::NotJson(error.to_string()))?;
    let report = &report;
    let answer = serde_json::to_vec(&FitResponse { request, report }).unwrap_or_default();
    if !hold.grow(answer.len()) {
        return Err(Failure::Busy);
    }
    let answer = answer::json_response(StatusCode::OK, hold.attach_to_bytes(answer.into()));
    record.held_until_end = running.map(|running| running as _);
    Ok(answer)
}

/// The format that the query names, as `format=messages`.
fn parse_format(query: Option<&str>) -> Result<Option<Format>, Failure> {
    let mut named = None;
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if name != "format" {
            let (name, known) = (shorten_word(&name), "format");
            return Err(Failure::QueryUnknown { name, known });
        }
        let format = Format::from_name(&value);
        named = Some(format.ok_or_else(|| Failure::UnknownWord {
            name: "format",
            words: FORMATS.map(Format::name).join(" or "),
        })?);
    }
    Ok(named)
}

fn fit_request(
    app: &App,
    parts: &Parts,
    requester: &Requester,
    format: Format,
    request: Bytes,
) -> Result<(Bytes, PlanExplanation), Failure> {
    let indexed = match format.index_body(request.clone()) {
        Ok(conversation) => Ok(conversation),
        Err(IndexError::NotJson(place)) => return Err(Failure::NotJson(place)),
        Err(IndexError::Unguardable(reason)) => Err(reason),
    };
    let model = match &indexed {
        Ok(conversation) => conversation.model().map(Into::into).unwrap_or_default(),
        Err(_) => shallow_parse(&request).named.model,
    };
    let target = choose_target(app, parts, requester, &model)?;
    let policy = guard_policy(app, &target);
    let (name, conversation) = (Some(model), indexed.as_ref().ok());
    let name = name.filter(|name| !name.is_empty());
    let model = ExplainedModel {
        calibration: app
            .ratios
            .initial_calibration(&target.provider.name, &target.model),
        ..explain_model(name, Some(&target), target.window, &policy, conversation)
    };
    Ok(match indexed {
        Ok(conversation) => explain_request(&conversation, &policy, model, &app.config.recovery),
        Err(why) => {
            let report = explain_unguarded(request.len(), why, &policy, model);
            (request, report)
        }
    })
}

/// The target that a request to this model would get. A body with two models is no risk: the model
/// that is looked up is the one that is checked, and nothing is sent.
fn choose_target(
    app: &App,
    parts: &Parts,
    requester: &Requester,
    model: &str,
) -> Result<Target, Failure> {
    let provider = chosen_provider(&parts.headers);
    let mut choice = app.registry.look_up_candidates(model, provider)?;
    let is_configured = choice.asked_is_configured;
    choice.retain_permitted(|target| requester.may_use(app, model, is_configured, target));
    let target = choice.pick_heaviest();
    let mut target = target.ok_or_else(|| no_such_model(model))?;
    look_up_for_client(app, parts, &mut target);
    Ok(target)
}
