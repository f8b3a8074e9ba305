//! `POST fit`: the guard as a service. A chat request in, the fitted one and the report out.
//!
//! The request is read within the limits of any chat request, and planned as the first of a session:
//! nothing is remembered of it, nobody is asked for it, nothing is stored. What comes out differs from
//! what came in by the guard's edits and the annotations alone, byte for byte.

use bytes::Bytes;
use http::{Response, StatusCode, request::Parts};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Who;
use crate::{
    conversation::Unindexed,
    error::Failure,
    format::chat,
    guard::found::{Aim, Found, WindowFound},
    http::{admission::no_such_model, answer, body::RequestBody},
    provider::Target,
    proxy::{App, outgoing::chosen, plan::guard_policy},
    telemetry::record::Record,
    wire::{Body, shallow_parse::shallow_parse},
};

/// The body of the answer.
#[derive(Serialize)]
struct Fitted<'a> {
    /// As it was sent, but for what the report tells.
    request: &'a RawValue,
    report: &'a Found,
}

/// # Errors
/// A limit was passed, the body is not JSON, or its model is none that whoever asks may use.
pub(super) async fn fit(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    who: &Who,
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    let running = who
        .client
        .as_ref()
        .map(|client| client.begin())
        .transpose()?;
    let limits = &app.config.server;
    let received = body.read(&parts.headers, limits, &app.flight).await?;
    let mut hold = received.hold;
    let (request, report) = fitted(app, parts, who, received.bytes)?;
    let text = request.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&request);
    let fitted = Fitted {
        request: serde_json::from_slice(text)
            .map_err(|error| Failure::NotJson(error.to_string()))?,
        report: &report,
    };
    let answer = serde_json::to_vec(&fitted).unwrap_or_default();
    if !hold.grow(answer.len()) {
        return Err(Failure::Busy);
    }
    let answer = answer::json(StatusCode::OK, hold.keep(answer.into()));
    record.held = running.map(|running| running as _);
    Ok(answer)
}

fn fitted(app: &App, parts: &Parts, who: &Who, request: Bytes) -> Result<(Bytes, Found), Failure> {
    let indexed = match chat::index(request.clone()) {
        Ok(conversation) => Ok(conversation),
        Err(Unindexed::NotJson(place)) => return Err(Failure::NotJson(place)),
        Err(Unindexed::Unguardable(reason)) => Err(reason),
    };
    let model = match &indexed {
        Ok(conversation) => conversation.model().map(Into::into).unwrap_or_default(),
        Err(_) => shallow_parse(&request).model,
    };
    let target = target(app, parts, who, &model)?;
    let aim = aim(app, model, &target);
    let policy = guard_policy(app, &target);
    match indexed {
        Ok(conversation) => Ok(Found::plan(&conversation, &policy, &aim)),
        Err(reason) => {
            let report = Found::unguarded(request.len(), reason, &policy, &aim);
            Ok((request, report))
        }
    }
}

/// Who would be asked. Which of two models a parser would find does not matter here: the one that is
/// looked up is the one that is allowed, and nothing is sent.
fn target(app: &App, parts: &Parts, who: &Who, model: &str) -> Result<Target, Failure> {
    let mut choice = app.registry.look_up(model, chosen(&parts.headers))?;
    let made = choice.asked_is_configured;
    choice.permit(|target| who.may_use(app, model, made, target));
    choice.heaviest().ok_or_else(|| no_such_model(model))
}

fn aim(app: &App, model: String, target: &Target) -> Aim {
    let provider = &target.provider;
    Aim {
        model: (!model.is_empty()).then_some(model),
        provider: Some(provider.name.to_string()),
        profile: provider.config.profile,
        window: WindowFound {
            tokens: target.window.tokens,
            input_limit: target.window.input,
            source: target.window.source.word(),
        },
        calibration: app.ratios.of(&provider.name, &target.model),
    }
}
