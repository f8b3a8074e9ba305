//! Handles a request: checks its origin, finds its client, and calls what answers its route.

use std::sync::Arc;

use http::{Response, request::Parts};
use percent_encoding::percent_decode_str;

use super::route::{ClientRoute, OwnRoute, Route, find_route};
use crate::{
    admin::{api::answer_api, dashboard, probe_endpoints},
    conversation::Format,
    error::Failure,
    http::{
        body::RequestBody,
        cors::PageAccess,
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
    access: &PageAccess,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    check_local_origin(&app.clients, &app.config.server, access, &parts)?;
    check_admin_origin(&parts)?;
    if let Some(answer) = access.answer_preflight(&parts)? {
        record.set_quiet();
        return Ok(answer);
    }
    let uri = parts.uri.clone();
    match find_route(&parts.method, uri.path())? {
        Route::Own(route) => Box::pin(answer_own(app, &parts, body, route, record)).await,
        Route::Client(route) => answer_client(app, parts, body, route, record).await,
    }
}

/// What the proxy has itself is neither traced nor logged, but for its API.
async fn answer_own(
    app: &Arc<App>,
    parts: &Parts,
    body: &mut RequestBody,
    route: OwnRoute<'_>,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    match route {
        OwnRoute::Api { .. } => record.in_flight = None,
        _ => record.set_quiet(),
    }
    match route {
        OwnRoute::Root => Ok(Response::new(whole_body(""))),
        OwnRoute::Health => Ok(probe_endpoints::answer_health()),
        OwnRoute::Ready => Ok(probe_endpoints::answer_readiness(app)),
        OwnRoute::Metrics => probe_endpoints::answer_metrics(app, parts),
        OwnRoute::Lease => app.leases.grant(&parts.headers, app.draining.clone()),
        OwnRoute::Dashboard { path } => {
            dashboard::answer_file(path, &parts.headers).ok_or(Failure::PathNotFound)
        }
        OwnRoute::Api { path } => answer_api(app, parts, body, path, record).await,
    }
}

/// Admits the client, and answers it: by the guard, by a list of models, or by what a provider answers.
async fn answer_client(
    app: &Arc<App>,
    parts: Parts,
    body: &mut RequestBody,
    route: ClientRoute<'_>,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    record.set_trace(app.tracing.begin_trace(&parts.headers));
    let (shape, operation) = route.shape_and_operation();
    (record.route, record.operation) = (Some(shape), operation);
    let client = app.clients.recognise_client(&parts.headers)?;
    record.client.clone_from(&client.name);
    route.check_path(&client)?;
    let running = client.begin_request()?;
    app.leases.note_use();
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
        ClientRoute::Conversation { format, provider } => {
            let request = IncomingRequest {
                format,
                provider,
                parts,
                client: &client,
                compaction: CompactionShape::Answer,
            };
            exchange_conversation(app, request, body, record).await?
        }
        ClientRoute::Forward {
            provider,
            path: path @ "/models",
        } if asks_as_codex(&parts) => {
            Box::pin(answer_codex_models(forward(provider, path), body, record)).await
        }
        ClientRoute::Forward { provider, path } => {
            Box::pin(forward_request(forward(provider, path), body, record)).await?
        }
        ClientRoute::Ollama { path } => {
            Box::pin(forward_request(forward(None, path), body, record)).await?
        }
        ClientRoute::Model { id } => {
            let id = percent_decode_str(id).decode_utf8_lossy();
            models::answer_model(app, &parts, &client, &id, list_format)?
        }
        ClientRoute::Models if asks_as_codex(&parts) => {
            Box::pin(answer_codex_models(forward(None, "/models"), body, record)).await
        }
        ClientRoute::Models => models::answer_model_list(app, &parts, &client, list_format).await,
    };
    record.held_until_end = Some(running);
    // Lets other tasks of this worker finish their answers first, so that the writes come in one burst.
    tokio::task::yield_now().await;
    Ok(answer)
}
