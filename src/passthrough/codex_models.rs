//! The list of models in the form that Codex reads (`models`, and not `data`), which it asks for with its version in the
//! query (`GET /v1/models?client_version=…`). It prints an error if the list has another form.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::ACCEPT_ENCODING, request::Parts};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{ForwardRequest, forward_request};
use crate::{
    http::{answer::json_response, body::RequestBody},
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

/// The list of the provider that the path names, else of the default one. If it does not have Codex's form, an empty list.
pub async fn answer_codex_models(
    forward: ForwardRequest<'_>,
    body: &mut RequestBody,
    record: &mut RequestRecord,
) -> Response<Body> {
    let plain = HeaderValue::from_static("identity");
    let mut parts = forward.parts.clone();
    parts.headers.insert(ACCEPT_ENCODING, plain);
    let forward = ForwardRequest {
        parts: &parts,
        path: "/models",
        ..forward
    };
    let ask = async {
        let asked = forward_request(forward, body, record).await;
        read_codex_list(asked.ok()?).await
    };
    // A list of all models is not for a key of some.
    let listed = if forward.client.is_unlimited() {
        timeout(WITHIN, ask).await.ok().flatten()
    } else {
        None
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
