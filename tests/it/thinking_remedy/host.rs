//! A provider that checks thinking by its signature: one that begins with `stale` does not fit what stands before it,
//! and one that begins with `broken` is of no use.

use serde_json::{Value, json};

use super::BETA;
use crate::support::{ProviderStep, ReceivedRequest, ScriptedProvider, answer, stream_of};

/// How a provider treats thinking, and what it takes.
#[derive(Clone, Copy)]
pub(super) struct BoundHost {
    /// It refuses stale thinking where the request says nothing.
    pub(super) is_new_account: bool,
    /// It takes `block_binding`.
    pub(super) takes_binding: bool,
    /// How it names the member.
    pub(super) field: &'static str,
    /// Its refusal of stale thinking names the member.
    pub(super) names_field: bool,
    /// A header of that refusal names the first block that does not fit.
    pub(super) names_block: bool,
}

impl Default for BoundHost {
    fn default() -> Self {
        Self {
            is_new_account: true,
            takes_binding: true,
            field: "prefix_mismatch_behavior",
            names_field: true,
            names_block: false,
        }
    }
}

pub(super) fn error_body(message: &str) -> String {
    let error = json!({"type": "invalid_request_error", "message": message});
    json!({"type": "error", "error": error}).to_string()
}

pub(super) fn refusal(message: &str) -> Vec<ProviderStep> {
    vec![answer("400 Bad Request", "", error_body(message))]
}

pub(super) const BLOCK_HEADER: &str = "anthropic-thinking-prefix-mismatch";

pub(super) const EXTRA_INPUTS: &str =
    "thinking.adaptive.block_binding: Extra inputs are not permitted";

impl BoundHost {
    pub(super) async fn start(self) -> ScriptedProvider {
        ScriptedProvider::start_answering(move |request| self.compose_answer(request)).await
    }

    pub(super) fn bound_message(&self, path: &str) -> String {
        if !self.names_field {
            return format!(
                "{path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
            );
        }
        format!(
            "{path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove \
             the block, or set `thinking.block_binding.{}` to \"drop_block\". That setting requires the `{BETA}` value \
             in the `anthropic-beta` header.",
            self.field
        )
    }

    fn compose_answer(&self, request: &ReceivedRequest) -> Vec<ProviderStep> {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let betas = request.header("anthropic-beta").unwrap_or_default();
        let has_beta = betas.split(',').any(|beta| beta == BETA);
        let binding = &body["thinking"]["block_binding"];
        let is_known = has_beta && self.takes_binding && !binding[self.field].is_null();
        let members = binding.as_object().into_iter().flatten();
        let wrong = members
            .map(|(name, _)| name)
            .find(|name| *name != self.field);
        if let Some(name) = wrong.filter(|_| self.takes_binding && has_beta) {
            let at = format!("thinking.adaptive.block_binding.{name}");
            return refusal(&format!("{at}: Extra inputs are not permitted"));
        }
        if !binding.is_null() && !is_known {
            return refusal(EXTRA_INPUTS);
        }
        let stale = find_signed(&body, "stale");
        let mut changes = Vec::new();
        if let Some(path) = find_signed(&body, "broken").first() {
            return refusal(&format!("{path}: Invalid `signature` in `thinking` block"));
        }
        for path in &stale {
            let kind = match binding[self.field].as_str() {
                Some("drop_block") => "thinking_dropped",
                None if !self.is_new_account => "thinking_mismatch_allowed",
                _ if self.names_block => {
                    let header = format!("{BLOCK_HEADER}: block={path};kind=content\r\n");
                    let body = error_body(&self.bound_message(path));
                    return vec![answer("400 Bad Request", &header, body)];
                }
                _ => return refusal(&self.bound_message(path)),
            };
            changes.push(json!({"type": kind, "path": path, "reason": "prefix_binding_mismatch"}));
        }
        let changes = has_beta.then_some(changes);
        write_message(body["stream"] == true, changes)
    }
}

/// The paths of blocks whose signatures begin so.
fn find_signed(body: &Value, beginning: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (i, entry) in body["messages"].as_array().unwrap().iter().enumerate() {
        for (j, block) in entry["content"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let signature = block["signature"].as_str().unwrap_or_default();
            if signature.starts_with(beginning) {
                found.push(format!("messages.{i}.content.{j}"));
            }
        }
    }
    found
}

/// An answer with these changes of the input.
pub(super) fn write_message(streams: bool, changes: Option<Vec<Value>>) -> Vec<ProviderStep> {
    let mut message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 90, "output_tokens": 3}});
    if let Some(changes) = changes {
        message["input_transformations"] = changes.into();
    }
    if !streams {
        return vec![answer("200 OK", "", message.to_string())];
    }
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ];
    stream_of(events.map(|event| {
        let name = event["type"].as_str().unwrap();
        format!("event: {name}\ndata: {event}\n\n")
    }))
}
