//! The list of models in the form of OpenAI's or Anthropic's API, with the windows that are known.

use std::time::Duration;

use http::{Response, StatusCode, request::Parts};
use serde_json::{Value, json};

use super::{App, outgoing::look_up_for_client};
use crate::{
    config::GuardConfig,
    conversation::{Api, Format},
    error::Failure,
    http::{
        admission::Client,
        answer::json_response,
        model_access::{allows_target, no_such_model},
    },
    provider::OfferedModel,
    wire::Body,
};

/// How long the list of models waits for lists of providers that were never asked before.
const FIRST_LISTS: Duration = Duration::from_secs(1);

/// The date that Anthropic's API gives for a model whose release date it does not know.
const UNKNOWN_DATE: &str = "1970-01-01T00:00:00Z";

/// Answers with the list of all models that the client may use.
pub async fn answer_model_list(
    app: &App,
    parts: &Parts,
    client: &Client,
    format: Format,
) -> Response<Body> {
    app.registry.wait_for_lists(FIRST_LISTS).await;
    let offered = app.registry.list_offered_by_all_names().into_iter();
    let allowed = offered.filter(|model| may_see(app, client, model));
    let models = allowed.map(|mut model| {
        look_up_for_client(app, parts, &mut model.target, format);
        model_to_json(&model, &app.config.guard, format)
    });
    let data: Vec<Value> = models.collect();
    let list = match format.api() {
        // The list is not divided into pages, whatever `limit` says.
        Api::Anthropic => {
            let id = |model: Option<&Value>| model.map(|model| model["id"].clone());
            let (first, last) = (id(data.first()), id(data.last()));
            json!({"data": data, "has_more": false, "first_id": first, "last_id": last})
        }
        Api::OpenAi => json!({"object": "list", "data": data}),
    };
    json_response(StatusCode::OK, list.to_string())
}

/// Answers with one model of that list.
///
/// # Errors
/// If the client may use no model of that name.
pub fn answer_model(
    app: &App,
    parts: &Parts,
    client: &Client,
    id: &str,
    format: Format,
) -> Result<Response<Body>, Failure> {
    let model = app.registry.find_offered(id);
    let model = model.filter(|model| may_see(app, client, model));
    let mut model = model.ok_or_else(|| no_such_model(id))?;
    look_up_for_client(app, parts, &mut model.target, format);
    let body = model_to_json(&model, &app.config.guard, format);
    Ok(json_response(StatusCode::OK, body.to_string()))
}

/// An assumed window is left out: clients could not rely on it.
fn model_to_json(offered: &OfferedModel, guard: &GuardConfig, format: Format) -> Value {
    let target = &offered.target;
    let window = target.window;
    match format.api() {
        Api::Anthropic => {
            let mut model = json!({"type": "model", "id": offered.id, "display_name": offered.id,
                "created_at": UNKNOWN_DATE});
            if let Some(tokens) = window.input.or_else(|| window.known_tokens()) {
                model["max_input_tokens"] = tokens.into();
            }
            model
        }
        Api::OpenAi => {
            let limits = target.compute_limits(guard, None);
            json!({
                "id": offered.id,
                "object": "model",
                "created": 0,
                "owned_by": &*target.provider.name,
                "context_length": window.known_tokens(),
                "window_from": window.known_source().api_name(),
                "max_input_tokens": window.input,
                "optimal_max_tokens": limits.optimal_max_tokens,
                "critical_max_tokens": limits.critical_max_tokens,
            })
        }
    }
}

/// Whether a client's list has a model: by its configured name, or by its candidates.
fn may_see(app: &App, client: &Client, offered: &OfferedModel) -> bool {
    let (id, target) = (&offered.id, &offered.target);
    allows_target(&app.registry, client, id, offered.is_configured, target)
}
