//! `POST fit`: the guard as a service. A chat request in, the fitted one and the report out.
//!
//! The request is read within the limits of any chat request, and planned as the first of a session:
//! nothing is remembered of it, nobody is asked for it, nothing is stored. What comes out differs from
//! what came in by the guard's edits and the annotations alone, byte for byte.

use bytes::Bytes;
use http::{Response, StatusCode, request::Parts};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Requester;
use crate::{
    conversation::IndexError,
    error::Failure,
    format::chat,
    guard::found::{Aim, PlanExplanation, WindowFound},
    http::{admission::no_such_model, answer, body::RequestBody},
    provider::Target,
    proxy::{App, outgoing::chosen_provider, plan::guard_policy},
    telemetry::record::RequestRecord,
    wire::{Body, shallow_parse::shallow_parse},
};

/// The body of the answer.
#[derive(Serialize)]
struct FitResponse<'a> {
    /// As it was sent, but for what the report tells.
    request: &'a RawValue,
    report: &'a PlanExplanation,
}

/// # Errors
/// A limit was passed, the body is not JSON, or its model is none that whoever asks may use.
pub(super) async fn answer_fit(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    who: &Requester,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let running = who
        .client
        .as_ref()
        .map(|client| client.begin_request())
        .transpose()?;
    let limits = &app.config.server;
    let received = body
        .read_unpacked(&parts.headers, limits, &app.inflight_bytes)
        .await?;
    let mut hold = received.hold;
    let (request, report) = fit_request(app, parts, who, received.bytes)?;
    let text = request.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&request);
    let fitted = FitResponse {
        request: serde_json::from_slice(text)
            .map_err(|error| Failure::NotJson(error.to_string()))?,
        report: &report,
    };
    let answer = serde_json::to_vec(&fitted).unwrap_or_default();
    if !hold.grow(answer.len()) {
        return Err(Failure::Busy);
    }
    let answer = answer::json_response(StatusCode::OK, hold.attach_to_bytes(answer.into()));
    record.held_until_end = running.map(|running| running as _);
    Ok(answer)
}

fn fit_request(
    app: &App,
    parts: &Parts,
    who: &Requester,
    request: Bytes,
) -> Result<(Bytes, PlanExplanation), Failure> {
    let indexed = match chat::index_body(request.clone()) {
        Ok(conversation) => Ok(conversation),
        Err(IndexError::NotJson(place)) => return Err(Failure::NotJson(place)),
        Err(IndexError::Unguardable(reason)) => Err(reason),
    };
    let model = match &indexed {
        Ok(conversation) => conversation.model().map(Into::into).unwrap_or_default(),
        Err(_) => shallow_parse(&request).model,
    };
    let target = choose_target(app, parts, who, &model)?;
    let aim = describe_target(app, model, &target);
    let policy = guard_policy(app, &target);
    match indexed {
        Ok(conversation) => Ok(PlanExplanation::plan(&conversation, &policy, &aim)),
        Err(reason) => {
            let report = PlanExplanation::unguarded(request.len(), reason, &policy, &aim);
            Ok((request, report))
        }
    }
}

/// Who would be asked. Which of two models a parser would find does not matter here: the one that is
/// looked up is the one that is allowed, and nothing is sent.
fn choose_target(
    app: &App,
    parts: &Parts,
    who: &Requester,
    model: &str,
) -> Result<Target, Failure> {
    let mut choice = app
        .registry
        .look_up_candidates(model, chosen_provider(&parts.headers))?;
    let made = choice.asked_is_configured;
    choice.retain_permitted(|target| who.may_use(app, model, made, target));
    choice.pick_heaviest().ok_or_else(|| no_such_model(model))
}

fn describe_target(app: &App, model: String, target: &Target) -> Aim {
    let provider = &target.provider;
    Aim {
        model: (!model.is_empty()).then_some(model),
        provider: Some(provider.name.to_string()),
        profile: provider.config.profile,
        window: WindowFound {
            tokens: target.window.tokens,
            input_limit: target.window.input,
            source: target.window.source.display_name(),
        },
        calibration: app
            .ratios
            .initial_calibration(&provider.name, &target.model),
    }
}
