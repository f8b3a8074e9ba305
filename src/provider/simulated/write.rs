//! Answers as OpenAI writes them: one JSON body, or a stream of events.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

use super::{agent::Reply, count::Pieces};

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Answers carry no clock, so that the same request has the same answer: seconds since 1970 at which
/// all models were made.
pub(super) const CREATED: u64 = 1_740_000_000;

/// An answer with all that stands around it.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) id: String,
    pub(super) model: &'static str,
    pub(super) reply: Reply,
    pub(super) prompt_tokens: u32,
    pub(super) cached_tokens: u32,
}

/// A JSON answer with this status.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    write_response(status, "application/json", body.boxed_unsync())
}

fn write_response(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Completion {
    /// The whole answer in one body.
    pub(super) fn write_whole(&self) -> Response<Body> {
        let message = match &self.reply.call {
            None => json!({"role": "assistant", "content": self.reply.text, "refusal": null}),
            Some(_) => json!({"role": "assistant", "content": null, "refusal": null,
                "tool_calls": [self.write_call(&self.reply.text)]}),
        };
        let choice = json!({"index": 0, "message": message, "logprobs": null,
            "finish_reason": self.reply.finish});
        let mut body = self.write_head("chat.completion", json!([choice]));
        body["usage"] = self.write_usage();
        json_response(StatusCode::OK, &body)
    }

    /// The answer as server-sent events, each a frame of its own.
    pub(super) fn write_events(&self, include_usage: bool) -> Response<Body> {
        let mut choices = self.write_deltas();
        for choice in &mut choices {
            *choice = json!([{"index": 0, "delta": *choice, "logprobs": null,
                "finish_reason": null}]);
        }
        choices.push(json!([{"index": 0, "delta": {}, "logprobs": null,
            "finish_reason": self.reply.finish}]));
        let mut chunks: Vec<Value> = choices
            .into_iter()
            .map(|choices| self.write_head("chat.completion.chunk", choices))
            .collect();
        if include_usage {
            chunks
                .iter_mut()
                .for_each(|chunk| chunk["usage"] = Value::Null);
            let mut last = self.write_head("chat.completion.chunk", json!([]));
            last["usage"] = self.write_usage();
            chunks.push(last);
        }
        let events = chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n"));
        let events = events.chain(["data: [DONE]\n\n".to_owned()]);
        let frames: Vec<_> = events
            .map(|event| Ok(Frame::data(Bytes::from(event))))
            .collect();
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let kind = "text/event-stream; charset=utf-8";
        let mut response = write_response(StatusCode::OK, kind, body);
        let no_cache = HeaderValue::from_static("no-cache");
        response
            .headers_mut()
            .insert(header::CACHE_CONTROL, no_cache);
        response
    }

    /// All that is said before the finish, in order: the role, then the text or the call.
    fn write_deltas(&self) -> Vec<Value> {
        let opening = self.reply.call.is_none().then_some("");
        let mut deltas = vec![json!({"role": "assistant", "content": opening, "refusal": null})];
        if self.reply.call.is_some() {
            let mut call = self.write_call("");
            call["index"] = json!(0);
            deltas.push(json!({"tool_calls": [call]}));
        }
        let pieces = Pieces(&self.reply.text).map(|(piece, _)| match &self.reply.call {
            None => json!({"content": piece}),
            Some(_) => json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}),
        });
        deltas.extend(pieces);
        deltas
    }

    /// The call, with these of its arguments; null where there is none.
    fn write_call(&self, arguments: &str) -> Value {
        self.reply.call.as_ref().map_or(Value::Null, |call| {
            json!({"id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": arguments}})
        })
    }

    fn write_head(&self, object: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": object, "created": CREATED, "choices": choices,
            "model": self.model, "service_tier": "default", "system_fingerprint": "fp_plimsoll"})
    }

    fn write_usage(&self) -> Value {
        let completion = self.reply.tokens;
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
                "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
        })
    }
}
