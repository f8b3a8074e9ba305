//! Routes a request: who sent it, whether it may come in, and who answers it.

use std::sync::Arc;

use http::{Response, request::Parts};
use percent_encoding::percent_decode_str;

use super::route::{self, Route};
use crate::{
    admin::{api::api, dashboard, probe_endpoints},
    error::Failure,
    http::{admission::check_own_paths, body::RequestBody},
    passthrough::{Caller, forward},
    proxy::{
        App,
        exchange::{ChatRequest, exchange_chat},
        models,
    },
    telemetry::record::Record,
    wire::Body,
};

/// Answers one request. What is left of its body where that fails is not looked at.
///
/// # Errors
/// The proxy answers it, with an error.
pub(super) async fn handle_request(
    app: &Arc<App>,
    parts: Parts,
    body: &mut RequestBody,
    record: &mut Record,
) -> Result<Response<Body>, Failure> {
    app.clients.check_origin(&parts)?;
    check_own_paths(&parts)?;
    let route = route::find(&parts.method, parts.uri.path())?;
    match route {
        Route::Health | Route::Ready => {
            record.set_quiet();
            record.outcome = Some("done");
            return Ok(match route {
                Route::Ready => probe_endpoints::ready(app),
                _ => probe_endpoints::healthy(),
            });
        }
        Route::Metrics => {
            record.set_quiet();
            return probe_endpoints::metrics(app, &parts);
        }
        Route::Api { path } => {
            record.in_flight = None;
            return api(app, &parts, body, path, record).await;
        }
        Route::Dashboard { path } => {
            record.set_quiet();
            record.outcome = Some("done");
            return dashboard::answer(path, &parts.headers).ok_or(Failure::PathNotFound);
        }
        _ => {}
    }
    record.set_trace(app.tracing.begin(&parts.headers));
    let (shape, operation) = route.asks();
    (record.route, record.operation) = (Some(shape), operation);
    let client = app.clients.recognise(&parts.headers)?;
    record.client.clone_from(&client.name);
    route.check_path(&client)?;
    let running = client.begin()?;
    let answer = match route {
        Route::Chat { provider } => {
            let provider = provider.map(str::to_owned);
            let request = ChatRequest {
                parts,
                body,
                client: &client,
                provider,
            };
            exchange_chat(app, request, record).await?
        }
        Route::Forward { provider, path } => {
            let caller = Caller {
                client: &client,
                running: &running,
                provider,
            };
            forward(app, &parts, body, caller, path, record).await?
        }
        Route::Model { id } => {
            let id = percent_decode_str(id).decode_utf8_lossy();
            models::answer_one(app, &client, &id)?
        }
        // All others were answered above.
        _ => models::answer_list(app, &client).await,
    };
    record.held = Some(running);
    Ok(answer)
}
