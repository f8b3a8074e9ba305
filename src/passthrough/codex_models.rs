//! The list of models in the form that Codex reads (`models`, and not `data`), which it asks for with its version in the
//! query (`GET /v1/models?client_version=…`). It prints an error where the list has another form.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::ACCEPT_ENCODING, request::Parts};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{Caller, forward_request};
use crate::{
    http::{answer::json_response, body::RequestBody},
    proxy::App,
    telemetry::record::RequestRecord,
    wire::{Body, whole_body},
};

/// Codex waits no longer for its list than 5 s.
const WITHIN: Duration = Duration::from_secs(3);
/// A list of OpenAI's has some 20 KiB a model.
const MAX_LIST_BYTES: usize = 8 << 20;

/// Codex keeps the models that it knows by itself beside these.
const EMPTY_LIST: &str = r#"{"models":[]}"#;

#[derive(Deserialize)]
struct CodexList<'a> {
    #[serde(borrow, rename = "models")]
    _models: Vec<&'a RawValue>,
}

/// Whether a request for the list of models is Codex's.
pub fn asks_as_codex(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "client_version")
}

/// The list of the provider that the path names, else of the default one, where it has Codex's form, else an empty one.
pub async fn answer_codex_models(
    app: &Arc<App>,
    parts: &Parts,
    body: &mut RequestBody,
    caller: Caller<'_>,
    record: &mut RequestRecord,
) -> Response<Body> {
    let plain = HeaderValue::from_static("identity");
    let mut parts = parts.clone();
    parts.headers.insert(ACCEPT_ENCODING, plain);
    let ask = async {
        let asked = forward_request(app, &parts, body, caller, "/models", record).await;
        read_codex_list(asked.ok()?).await
    };
    // A list of all models is not for a key of some.
    let listed = match caller.client.is_unlimited() {
        true => timeout(WITHIN, ask).await.ok().flatten(),
        false => None,
    };
    listed.unwrap_or_else(|| json_response(StatusCode::OK, EMPTY_LIST.to_owned()))
}

/// An answer that is a list in Codex's form, unchanged; `None` for any other.
async fn read_codex_list(answer: Response<Body>) -> Option<Response<Body>> {
    if answer.status() != StatusCode::OK {
        return None;
    }
    let (head, body) = answer.into_parts();
    let read = Limited::new(body, MAX_LIST_BYTES).collect().await;
    let list: Bytes = read.ok()?.to_bytes();
    serde_json::from_slice::<CodexList<'_>>(&list).ok()?;
    Some(Response::from_parts(head, whole_body(list)))
}
