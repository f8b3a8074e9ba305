//! Answers: one JSON body, or a stream of events. Here are those of chat completions.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

use super::{
    SimulatedApi, bound_reasoning::Thought, scripted_agent::Reply, token_count::TokenPieces,
};

pub(super) type SimulatedBody = UnsyncBoxBody<Bytes, io::Error>;

/// Seconds since 1970, fixed so that the same request has the same answer.
pub(super) const CREATED: u64 = 1_740_000_000;

/// An answer with its ids and usage.
#[derive(Debug)]
pub(super) struct Completion {
    /// The same for one request.
    pub(super) id: u64,
    /// The same for one prompt, streamed or not.
    pub(super) prompt_hash: u64,
    pub(super) model: &'static str,
    /// Its tokens include those of the thought.
    pub(super) reply: Reply,
    pub(super) thought: Option<Thought>,
    /// What the API left out of the request, where it says so.
    pub(super) transformations: Option<Vec<Value>>,
    pub(super) prompt_tokens: u32,
    pub(super) cached_tokens: u32,
    /// The tokens of the prompt that were written to the cache. Only Messages tells them.
    pub(super) cache_written: u32,
    /// The window ends the answer before its cap does.
    pub(super) window_is_limit: bool,
}

pub(super) fn json_response(status: StatusCode, body: &Value) -> Response<SimulatedBody> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    write_response(status, "application/json", body.boxed_unsync())
}

fn write_response(
    status: StatusCode,
    kind: &'static str,
    body: SimulatedBody,
) -> Response<SimulatedBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// An event whose type is its name too.
fn write_named_event(event: &Value) -> String {
    let name = event["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {event}\n\n")
}

impl Completion {
    /// The whole answer in one body.
    pub(super) fn write_body(&self, api: SimulatedApi) -> Response<SimulatedBody> {
        let body = match api {
            SimulatedApi::Chat => self.to_chat_completion(),
            SimulatedApi::Messages => self.to_message(),
            SimulatedApi::Responses => self.to_response(),
        };
        json_response(StatusCode::OK, &body)
    }

    /// The answer as server-sent events, one in a frame.
    pub(super) fn write_stream(
        &self,
        api: SimulatedApi,
        include_usage: bool,
    ) -> Response<SimulatedBody> {
        let write_named = |events: Vec<Value>| events.iter().map(write_named_event).collect();
        let events: Vec<String> = match api {
            SimulatedApi::Chat => self.write_chunks(include_usage),
            SimulatedApi::Messages => write_named(self.to_message_events()),
            SimulatedApi::Responses => write_named(self.to_response_events()),
        };
        let frames = events
            .into_iter()
            .map(|it| Ok(Frame::data(Bytes::from(it))));
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let kind = "text/event-stream; charset=utf-8";
        let mut response = write_response(StatusCode::OK, kind, body);
        let (name, value) = (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response.headers_mut().insert(name, value);
        response
    }

    fn to_chat_completion(&self) -> Value {
        let content = &self.reply.content;
        let mut message = json!({"role": "assistant", "content": null, "refusal": null});
        match &content.tool {
            None => message["content"] = content.text.as_str().into(),
            Some(name) => message["tool_calls"] = json!([self.write_call(name, &content.text)]),
        }
        if let Some(text) = self.plain_thought() {
            message["reasoning_content"] = text.into();
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null,
            "finish_reason": self.reply.finish});
        let mut body = self.write_head("chat.completion", json!([choice]));
        body["usage"] = self.write_usage();
        body
    }

    fn write_chunks(&self, include_usage: bool) -> Vec<String> {
        let write_chunk = |choices| self.write_head("chat.completion.chunk", choices);
        let write_choice = |delta: Value, finish: Option<&str>| {
            write_chunk(json!([{"index": 0, "delta": delta, "logprobs": null,
                "finish_reason": finish}]))
        };
        let deltas = self.write_deltas().into_iter();
        let mut chunks: Vec<Value> = deltas.map(|delta| write_choice(delta, None)).collect();
        chunks.push(write_choice(json!({}), Some(self.reply.finish)));
        if include_usage {
            for chunk in &mut chunks {
                chunk["usage"] = Value::Null;
            }
            let mut last = write_chunk(json!([]));
            last["usage"] = self.write_usage();
            chunks.push(last);
        }
        let events = chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n"));
        events.chain(["data: [DONE]\n\n".to_owned()]).collect()
    }

    /// The deltas before the finish: the role, then the text or the call.
    fn write_deltas(&self) -> Vec<Value> {
        let content = &self.reply.content;
        let opening = content.tool.is_none().then_some("");
        let mut deltas = vec![json!({"role": "assistant", "content": opening, "refusal": null})];
        deltas.extend(
            self.plain_thought()
                .map(|it| json!({"reasoning_content": it})),
        );
        if let Some(name) = &content.tool {
            let mut call = self.write_call(name, "");
            call["index"] = json!(0);
            deltas.push(json!({"tool_calls": [call]}));
        }
        deltas.extend(TokenPieces(&content.text).map(|piece| match content.tool {
            None => json!({"content": piece}),
            Some(_) => json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}),
        }));
        deltas
    }

    fn write_call(&self, name: &str, arguments: &str) -> Value {
        let mut call = json!({"id": format!("call_{:016x}", self.prompt_hash), "type": "function",
            "function": {"name": name, "arguments": arguments}});
        if let Some(hidden) = self.thought.as_ref().filter(|it| !it.is_plain) {
            call["extra_content"] = json!({"google": {"thought_signature": hidden.signature}});
        }
        call
    }

    fn plain_thought(&self) -> Option<&'static str> {
        let thought = self.thought.as_ref().filter(|it| it.is_plain);
        thought.map(|it| it.text)
    }

    fn write_head(&self, object: &str, choices: Value) -> Value {
        json!({"id": format!("chatcmpl-{:016x}", self.id), "object": object, "created": CREATED, "choices": choices,
            "model": self.model})
    }

    fn write_usage(&self) -> Value {
        let completion = self.reply.tokens;
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        })
    }
}
