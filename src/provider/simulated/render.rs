//! Answers as OpenAI writes them: one JSON body, or a stream of events.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

use super::{
    count::Pieces,
    reply::{Call, Reply},
    request::ChatRequest,
};

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Answers carry no clock, so that the same request has the same answer: this is when the
/// provider's only model was made.
pub(super) const CREATED: u64 = 1_740_000_000;

/// What stands around all answers of one request.
#[derive(Debug)]
pub(super) struct Envelope<'a> {
    pub(super) id: String,
    pub(super) request: &'a ChatRequest<'a>,
    pub(super) prompt_tokens: u32,
    pub(super) cached_tokens: u32,
}

/// A JSON answer with this status.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    let full = Full::new(Bytes::from(body.to_string()));
    respond(
        status,
        "application/json",
        full.map_err(|never| match never {}).boxed_unsync(),
    )
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// The whole answer in one body.
pub(super) fn write_whole(envelope: &Envelope<'_>, replies: &[Reply]) -> Response<Body> {
    let choices: Vec<Value> = replies
        .iter()
        .enumerate()
        .map(|(index, reply)| {
            json!({"index": index, "message": write_message(reply), "logprobs": null,
                "finish_reason": reply.finish})
        })
        .collect();
    let mut body = write_head(envelope, "chat.completion", choices.into());
    body["usage"] = write_usage(envelope, replies);
    json_response(StatusCode::OK, &body)
}

/// The answer as server-sent events, each a frame of its own.
pub(super) fn write_events(envelope: &Envelope<'_>, replies: &[Reply]) -> Response<Body> {
    let mut events = Vec::new();
    for (index, reply) in replies.iter().enumerate() {
        let finish = json!(reply.finish);
        for delta in write_deltas(reply) {
            events.push(write_chunk(envelope, index, delta, Value::Null));
        }
        events.push(write_chunk(envelope, index, json!({}), finish));
    }
    if envelope.request.include_usage {
        let mut last = write_head(envelope, "chat.completion.chunk", json!([]));
        last["usage"] = write_usage(envelope, replies);
        events.push(write_event(&last));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    let frames = events.into_iter().map(|event| Ok(Frame::data(event)));
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let mut response = respond(StatusCode::OK, "text/event-stream; charset=utf-8", body);
    let no_cache = header::HeaderValue::from_static("no-cache");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_cache);
    response
}

fn write_head(envelope: &Envelope<'_>, object: &str, choices: Value) -> Value {
    json!({"id": envelope.id, "object": object, "created": CREATED, "choices": choices,
        "model": envelope.request.model.name, "service_tier": "default",
        "system_fingerprint": "fp_plimsoll"})
}

fn write_usage(envelope: &Envelope<'_>, replies: &[Reply]) -> Value {
    let completion: u32 = replies.iter().map(|reply| reply.tokens).sum();
    json!({
        "prompt_tokens": envelope.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": envelope.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": envelope.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    })
}

fn write_message(reply: &Reply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.content, "refusal": null});
    if reply.calls.is_empty() {
        message["annotations"] = json!([]);
    } else {
        let calls = reply
            .calls
            .iter()
            .map(|call| write_call(call, &call.arguments));
        message["tool_calls"] = calls.collect();
    }
    message
}

fn write_call(call: &Call, arguments: &str) -> Value {
    json!({"id": call.id, "type": "function",
        "function": {"name": call.name, "arguments": arguments}})
}

/// All that is said of one reply before its finish, in order: the role, the text, the calls.
fn write_deltas(reply: &Reply) -> Vec<Value> {
    let opening = reply.content.as_ref().map(|_| "");
    let mut deltas = vec![json!({"role": "assistant", "content": opening, "refusal": null})];
    let text = reply.content.as_deref().unwrap_or_default();
    deltas.extend(fragments(text, 2).map(|text| json!({"content": text})));
    for (index, call) in reply.calls.iter().enumerate() {
        let mut first = write_call(call, "");
        first["index"] = json!(index);
        deltas.push(json!({"tool_calls": [first]}));
        let pieces = fragments(&call.arguments, 3).map(
            |piece| json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
        );
        deltas.extend(pieces);
    }
    deltas
}

/// A text in fragments of so many pieces.
fn fragments(text: &str, pieces: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let length: usize = Pieces(rest)
            .take(pieces)
            .map(|(piece, _)| piece.len())
            .sum();
        let (fragment, after) = rest.split_at(length);
        rest = after;
        (!fragment.is_empty()).then_some(fragment)
    })
}

fn write_chunk(envelope: &Envelope<'_>, index: usize, delta: Value, finish: Value) -> Bytes {
    let choice = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish});
    let mut body = write_head(envelope, "chat.completion.chunk", json!([choice]));
    if envelope.request.include_usage {
        body["usage"] = Value::Null;
    }
    write_event(&body)
}

fn write_event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}
