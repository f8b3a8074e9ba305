//! `POST fit`: the guard as a service. It takes a request with a conversation and returns the fitted one with a
//! report.
//!
//! The limits of guarded requests apply. The request is planned as the first of a session; nothing is stored
//! and no provider is asked. The query may give the model's window and tokenizer. The result differs from the request by the guard's edits and the removed
//! annotations only, byte for byte.

use bytes::Bytes;
use http::{Response, StatusCode, request::Parts};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Requester, read_number, shorten_word};
use crate::{
    config::tokens::{find_tokenizer, list_tokenizers},
    conversation::{Conversation, FORMATS, Format, IndexError},
    error::Failure,
    guard::explain::{PlanExplanation, explain_unguarded},
    http::{answer, body::RequestBody, model_access::no_such_model, tasks::run_beside_tasks},
    provider::Target,
    proxy::{
        App,
        outgoing::{chosen_provider, look_up_for_client},
        plan::{GivenModel, explain_model, explain_request},
    },
    telemetry::record::RequestRecord,
    wire::{Body, model::shallow_parse},
};

/// Tokens of a window that a query may give; those of the settings.
const WINDOWS: (usize, usize) = (1_024, 100_000_000);

/// How often a conversation is gone through: for this plan, for the next two cuts, and to measure it before and after.
const PASSES: usize = 4;

#[derive(Serialize)]
struct FitResponse<'a> {
    /// The client's request with the edits of the report.
    request: &'a RawValue,
    report: &'a PlanExplanation,
}

/// What the query says of the request.
#[derive(Debug, Default)]
struct FitQuery {
    /// `None`: guessed from the body.
    format: Option<Format>,
    model: GivenModel,
}

/// # Errors
/// If a limit is exceeded, the body is not JSON, the query is wrong, or the requester may not use its model and gives no
/// window for it.
pub(super) async fn answer_fit(
    app: &App,
    parts: &Parts,
    body: &mut RequestBody,
    requester: &Requester,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let query = FitQuery::parse(parts.uri.query())?;
    let client = requester.client.as_ref();
    let running = client.map(|client| client.begin_request()).transpose()?;
    let (limits, inflight) = (&app.config.server, &app.inflight_bytes);
    let received = body.read_unpacked(&parts.headers, limits, inflight).await?;
    let (mut hold, bytes) = (received.hold, received.bytes);
    let format = query.format;
    let format = format.unwrap_or_else(|| Format::guess_from_body(&bytes));
    let path = format.path().trim_start_matches('/');
    if client.is_some_and(|client| !client.may_reach(path)) {
        return Err(Failure::PathNotAllowed);
    }
    let indexed = run_beside_tasks(bytes.len(), || format.index_body(bytes.clone()));
    let indexed = match indexed {
        Err(IndexError::NotJson(place)) => return Err(Failure::NotJson(place)),
        Err(IndexError::Unguardable(reason)) => Err(reason),
        Ok(conversation) => Ok(conversation),
    };
    let work = indexed.as_ref().map_or(0, Conversation::work_bytes);
    let answer = run_beside_tasks(work.max(bytes.len()) * PASSES, || {
        let target = |name: &str| choose_target(app, parts, requester, name, format);
        let (request, report) = fit_request(app, target, query.model, bytes, indexed)?;
        write_answer(&request, &report)
    })?;
    if !hold.grow(answer.len()) {
        return Err(Failure::Busy);
    }
    let answer = answer::json_response(StatusCode::OK, hold.attach_to_bytes(answer.into()));
    record.held_until_end = running.map(|running| running as _);
    Ok(answer)
}

fn write_answer(request: &[u8], report: &PlanExplanation) -> Result<Vec<u8>, Failure> {
    let text = request.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(request);
    let request =
        serde_json::from_slice(text).map_err(|error| Failure::NotJson(error.to_string()))?;
    Ok(serde_json::to_vec(&FitResponse { request, report }).unwrap_or_default())
}

impl FitQuery {
    /// Reads `format`, `window` and `tokenizer`.
    ///
    /// # Errors
    /// For other parameters, and for values that are none of theirs. The text says what to send.
    fn parse(query: Option<&str>) -> Result<Self, Failure> {
        let (mut found, mut window) = (Self::default(), None);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "format" => {
                    let format = Format::from_name(&value);
                    found.format = Some(format.ok_or_else(|| Failure::UnknownWord {
                        name: "format",
                        words: FORMATS.map(Format::name).join(" or "),
                    })?);
                }
                "window" => read_number("window", &value, &mut window, WINDOWS)?,
                "tokenizer" => {
                    let rule = find_tokenizer(&value);
                    found.model.tokens = Some(rule.ok_or_else(|| Failure::UnknownWord {
                        name: "tokenizer",
                        words: format!(
                            "{}, or the name of a model that counts alike, such as claude-opus-5-5",
                            list_tokenizers().join(", ")
                        ),
                    })?);
                }
                unknown => {
                    let (name, known) = (shorten_word(unknown), "format, window and tokenizer");
                    return Err(Failure::QueryUnknown { name, known });
                }
            }
        }
        found.model.window = window.and_then(|tokens| tokens.try_into().ok());
        Ok(found)
    }
}

fn fit_request(
    app: &App,
    choose_target: impl Fn(&str) -> Result<Target, Failure>,
    given: GivenModel,
    request: Bytes,
    indexed: Result<Conversation, String>,
) -> Result<(Bytes, PlanExplanation), Failure> {
    let name = match &indexed {
        Ok(conversation) => conversation.model().map(Into::into).unwrap_or_default(),
        Err(_) => shallow_parse(&request).named.model,
    };
    let target = match choose_target(&name) {
        Ok(target) => Some(target),
        Err(Failure::ModelNotFound(_)) if given.window.is_some() => None,
        Err(Failure::ModelNotFound(reason)) => {
            let remedy = "A model that the proxy does not know is fitted with ?window=TOKENS.";
            return Err(Failure::ModelNotFound(format!("{reason} {remedy}")));
        }
        Err(failure) => return Err(failure),
    };
    let planned = given.choose_policy(&name, target.as_ref(), &app.config);
    // Without a target there is a window.
    let (window, policy) = planned.ok_or_else(|| no_such_model(&name))?;
    let conversation = indexed.as_ref().ok();
    let shown = Some(name).filter(|name| !name.is_empty());
    let mut model = explain_model(shown, target.as_ref(), window, &policy, conversation);
    if given.window.is_some() {
        model.window_source = "?window";
    }
    // What was learnt of this model was learnt under its own tokenizer.
    if let (Some(target), None) = (&target, given.tokens) {
        let (provider, model_name) = (&target.provider.name, &target.model);
        model.calibration = app.ratios.initial_calibration(provider, model_name);
    }
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
    format: Format,
) -> Result<Target, Failure> {
    let provider = chosen_provider(&parts.headers);
    let mut choice = app.registry.look_up_candidates(model, provider)?;
    let (asked, is_configured) = (choice.asked.clone(), choice.asked_is_configured);
    choice.retain_permitted(|target| requester.may_use(app, &asked, is_configured, target));
    let target = choice.pick_heaviest();
    let mut target = target.ok_or_else(|| no_such_model(model))?;
    look_up_for_client(app, parts, &mut target, format);
    Ok(target)
}
