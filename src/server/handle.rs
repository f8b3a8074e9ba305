//! Handles a request: checks its origin, finds its client, and calls what answers its route.

use std::sync::Arc;

use http::{Response, request::Parts};
use percent_encoding::percent_decode_str;

use super::route::{self, Route};
use crate::{
    admin::{api::answer_api, dashboard, probe_endpoints},
    conversation::Format,
    error::Failure,
    http::{
        body::RequestBody,
        origin::{check_admin_origin, check_local_origin},
    },
    passthrough::{
        ForwardRequest,
        codex_models::{answer_codex_models, asks_as_codex},
        forward_request,
    },
    proxy::{
        App, CompactionShape,
        exchange::{IncomingRequest, exchange_conversation},
        models,
    },
    telemetry::record::RequestRecord,
    wire::{Body, whole_body},
};

/// Answers one request. Where that fails, the rest of its body stays unread.
///
/// # Errors
/// The proxy answers it, with an error.
pub(super) async fn handle_request(
    app: &Arc<App>,
    parts: Parts,
    body: &mut RequestBody,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    check_local_origin(&app.clients, &parts)?;
    check_admin_origin(&parts)?;
    let route = route::find_route(&parts.method, parts.uri.path())?;
    match route {
        Route::Root | Route::Health | Route::Ready => {
            record.set_quiet();
            record.outcome = Some("done");
            return Ok(match route {
                Route::Root => Response::new(whole_body("")),
                Route::Ready => probe_endpoints::answer_readiness(app),
                _ => probe_endpoints::answer_health(),
            });
        }
        Route::Metrics => {
            record.set_quiet();
            return probe_endpoints::answer_metrics(app, &parts);
        }
        Route::Api { path } => {
            record.in_flight = None;
            return answer_api(app, &parts, body, path, record).await;
        }
        Route::Dashboard { path } => {
            record.set_quiet();
            record.outcome = Some("done");
            return dashboard::answer_file(path, &parts.headers).ok_or(Failure::PathNotFound);
        }
        _ => {}
    }
    record.set_trace(app.tracing.begin_trace(&parts.headers));
    let (shape, operation) = route.shape_and_operation();
    (record.route, record.operation) = (Some(shape), operation);
    let client = app.clients.recognise_client(&parts.headers)?;
    record.client.clone_from(&client.name);
    route.check_path(&client)?;
    let running = client.begin_request()?;
    let list_format = Format::of_client(&parts.headers);
    let forward = |provider, path| ForwardRequest {
        app,
        parts: &parts,
        client: &client,
        running: &running,
        provider,
        path,
    };
    let answer = match route {
        Route::Conversation { format, provider } => {
            let request = IncomingRequest {
                format,
                provider: provider.map(str::to_owned),
                parts,
                client: &client,
                compaction: CompactionShape::Answer,
            };
            exchange_conversation(app, request, body, record).await?
        }
        Route::Forward {
            provider,
            path: path @ "/models",
        } if asks_as_codex(&parts) => {
            answer_codex_models(forward(provider, path), body, record).await
        }
        Route::Forward { provider, path } => {
            forward_request(forward(provider, path), body, record).await?
        }
        Route::Model { id } => {
            let id = percent_decode_str(id).decode_utf8_lossy();
            models::answer_model(app, &client, &id, list_format)?
        }
        Route::Models if asks_as_codex(&parts) => {
            answer_codex_models(forward(None, "/models"), body, record).await
        }
        // All other routes were answered above.
        _ => models::answer_model_list(app, &client, list_format).await,
    };
    record.held_until_end = Some(running);
    Ok(answer)
}
