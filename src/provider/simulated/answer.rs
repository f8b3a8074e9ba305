//! Answers: one JSON body, or a stream of events.

use std::io;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

use super::{SimulatedApi, agent::Reply, prompt::TokenPieces};

pub(super) type SimulatedBody = UnsyncBoxBody<Bytes, io::Error>;

/// Seconds since 1970, fixed so that the same request has the same answer.
pub(super) const CREATED: u64 = 1_740_000_000;

/// An answer with its ids and usage.
#[derive(Debug)]
pub(super) struct Completion {
    /// The same for one request.
    pub(super) id: u64,
    /// The same for one prompt, streamed or not.
    pub(super) call_id: u64,
    pub(super) api: SimulatedApi,
    pub(super) model: &'static str,
    /// A call only in chat completions.
    pub(super) reply: Reply,
    pub(super) prompt_tokens: u32,
    pub(super) cached_tokens: u32,
}

pub(super) fn write_json(status: StatusCode, body: &Value) -> Response<SimulatedBody> {
    write_response(status, "application/json", body.to_string())
}

fn write_response(status: StatusCode, kind: &'static str, body: String) -> Response<SimulatedBody> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Completion {
    /// The whole answer in one body.
    pub(super) fn write_body(&self) -> Response<SimulatedBody> {
        let body = match self.api {
            SimulatedApi::Chat => self.write_chat_completion(),
            SimulatedApi::Messages => self.write_message(),
            SimulatedApi::Responses => self.write_whole_response(),
        };
        write_json(StatusCode::OK, &body)
    }

    /// The answer as server-sent events.
    pub(super) fn write_stream(&self, includes_usage: bool) -> Response<SimulatedBody> {
        let (events, end) = match self.api {
            SimulatedApi::Chat => (self.write_chunks(includes_usage), "data: [DONE]\n\n"),
            SimulatedApi::Messages => (self.write_message_events(), ""),
            SimulatedApi::Responses => (self.write_response_events(), ""),
        };
        let events = events.iter().map(|event| match event["type"].as_str() {
            // The type of an event is its name too.
            Some(name) => format!("event: {name}\ndata: {event}\n\n"),
            None => format!("data: {event}\n\n"),
        });
        let body = events.collect::<String>() + end;
        write_response(StatusCode::OK, "text/event-stream; charset=utf-8", body)
    }

    /// Why the answer ends, in the words of its API.
    fn finish(&self) -> &'static str {
        let words = match self.api {
            SimulatedApi::Chat if self.reply.tool.is_some() => ["tool_calls", "length"],
            SimulatedApi::Chat => ["stop", "length"],
            SimulatedApi::Messages => ["end_turn", "max_tokens"],
            SimulatedApi::Responses => ["completed", "incomplete"],
        };
        words[usize::from(self.reply.is_cut)]
    }

    fn write_chat_completion(&self) -> Value {
        let text = self.reply.text.as_str();
        let mut message = json!({"role": "assistant", "content": null, "refusal": null});
        match &self.reply.tool {
            None => message["content"] = text.into(),
            Some(name) => message["tool_calls"] = json!([self.write_call(name, text)]),
        }
        let choice = json!({"index": 0, "message": message, "logprobs": null,
            "finish_reason": self.finish()});
        let mut body = self.write_chat_head("chat.completion", json!([choice]));
        body["usage"] = self.write_chat_usage();
        body
    }

    fn write_chunks(&self, includes_usage: bool) -> Vec<Value> {
        let write_chunk = |choices| self.write_chat_head("chat.completion.chunk", choices);
        let write_choice = |delta: Value, finish: Option<&str>| {
            write_chunk(
                json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]),
            )
        };
        let deltas = self.write_deltas().into_iter();
        let mut chunks: Vec<Value> = deltas.map(|delta| write_choice(delta, None)).collect();
        chunks.push(write_choice(json!({}), Some(self.finish())));
        if includes_usage {
            let mut last = write_chunk(json!([]));
            last["usage"] = self.write_chat_usage();
            chunks.push(last);
        }
        chunks
    }

    /// The deltas before the finish: the role, then the text or the call.
    fn write_deltas(&self) -> Vec<Value> {
        let tool = self.reply.tool.as_deref();
        let opening = tool.is_none().then_some("");
        let mut deltas = vec![json!({"role": "assistant", "content": opening, "refusal": null})];
        if let Some(name) = tool {
            let mut call = self.write_call(name, "");
            call["index"] = json!(0);
            deltas.push(json!({"tool_calls": [call]}));
        }
        deltas.extend(TokenPieces(&self.reply.text).map(|piece| match tool {
            None => json!({"content": piece}),
            Some(_) => json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}),
        }));
        deltas
    }

    fn write_call(&self, name: &str, arguments: &str) -> Value {
        json!({"id": format!("call_{:016x}", self.call_id), "type": "function",
            "function": {"name": name, "arguments": arguments}})
    }

    fn write_chat_head(&self, object: &str, choices: Value) -> Value {
        json!({"id": format!("chatcmpl-{:016x}", self.id), "object": object, "created": CREATED, "choices": choices,
            "model": self.model})
    }

    fn write_chat_usage(&self) -> Value {
        let (prompt, completion) = (self.prompt_tokens, self.reply.tokens);
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens}})
    }

    fn write_message(&self) -> Value {
        let mut message = self.write_message_head(self.reply.tokens);
        message["content"] = json!([{"type": "text", "text": self.reply.text}]);
        message["stop_reason"] = self.finish().into();
        message
    }

    fn write_message_events(&self) -> Vec<Value> {
        let block = json!({"type": "text", "text": ""});
        let mut events = vec![
            json!({"type": "message_start", "message": self.write_message_head(1)}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
        ];
        events.extend(TokenPieces(&self.reply.text).map(|piece| {
            let delta = json!({"type": "text_delta", "text": piece});
            json!({"type": "content_block_delta", "index": 0, "delta": delta})
        }));
        let delta = json!({"stop_reason": self.finish(), "stop_sequence": null});
        let usage = self.write_message_usage(self.reply.tokens);
        events.extend([
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": delta, "usage": usage}),
            json!({"type": "message_stop"}),
        ]);
        events
    }

    fn write_message_head(&self, output_tokens: u32) -> Value {
        json!({"id": format!("msg_{:016x}", self.id), "type": "message", "role": "assistant", "model": self.model,
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": self.write_message_usage(output_tokens)})
    }

    /// `input_tokens` are only those that the cache does not hold.
    fn write_message_usage(&self, output_tokens: u32) -> Value {
        json!({"input_tokens": self.prompt_tokens.saturating_sub(self.cached_tokens),
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": self.cached_tokens,
            "output_tokens": output_tokens})
    }

    fn write_whole_response(&self) -> Value {
        let (prompt, output) = (self.prompt_tokens, self.reply.tokens);
        let mut response = self.write_response_head();
        response["status"] = self.finish().into();
        response["output"] = json!([self.write_item(json!([self.write_part(&self.reply.text)]))]);
        if self.reply.is_cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["usage"] = json!({"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output,
            "input_tokens_details": {"cached_tokens": self.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": 0}});
        response
    }

    fn write_response_events(&self) -> Vec<Value> {
        let (whole, begun) = (self.write_whole_response(), self.write_response_head());
        let item = &whole["output"][0];
        let mut begun_item = self.write_item(json!([]));
        begun_item["status"] = "in_progress".into();
        let in_part = |kind: &str, member: &str, value: Value| {
            json!({"type": format!("response.{kind}"), "output_index": 0, "content_index": 0,
                "item_id": item["id"], member: value})
        };
        let mut events = vec![
            json!({"type": "response.created", "response": begun}),
            json!({"type": "response.in_progress", "response": begun}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": begun_item}),
            in_part("content_part.added", "part", self.write_part("")),
        ];
        let pieces = TokenPieces(&self.reply.text);
        events.extend(pieces.map(|piece| in_part("output_text.delta", "delta", piece.into())));
        events.extend([
            in_part("output_text.done", "text", self.reply.text.as_str().into()),
            in_part("content_part.done", "part", item["content"][0].clone()),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": format!("response.{}", self.finish()), "response": whole}),
        ]);
        for (number, event) in events.iter_mut().enumerate() {
            event["sequence_number"] = number.into();
        }
        events
    }

    fn write_response_head(&self) -> Value {
        json!({"id": format!("resp_{:016x}", self.id), "object": "response", "created_at": CREATED,
            "status": "in_progress", "model": self.model, "output": [], "error": null, "incomplete_details": null,
            "instructions": null, "metadata": {}, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
            "usage": null})
    }

    fn write_item(&self, content: Value) -> Value {
        json!({"type": "message", "id": format!("msg_{:016x}", self.id), "role": "assistant",
            "status": self.finish(), "content": content})
    }

    fn write_part(&self, text: &str) -> Value {
        json!({"type": "output_text", "text": text, "annotations": []})
    }
}
