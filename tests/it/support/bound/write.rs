//! Answers as events, and as what a client sends back of them.

use serde_json::{Value, json};

use super::{BoundApi, BoundModel, Verdict};
use crate::support::{
    model::{messages::message_events, responses::response_events},
    provider::{ProviderStep, ReceivedRequest, answer, stream_of},
};

/// Bytes of a streamed fragment.
const FRAGMENT: usize = 7;

impl BoundModel {
    /// A provider's answer over a socket: the refusal, a count of tokens, or what the script says, whole or streamed.
    pub(crate) fn serve(
        &self,
        api: BoundApi,
        seen: &ReceivedRequest,
        script: impl FnOnce(&Verdict) -> Vec<Value>,
    ) -> Vec<ProviderStep> {
        let verdict = self.judge(
            api,
            &seen.body,
            seen.header("anthropic-beta").unwrap_or_default(),
        );
        if let Some(refusal) = &verdict.refusal {
            return vec![answer("400 Bad Request", "", refusal.to_string())];
        }
        if seen.line.contains("_tokens") {
            let count = json!({"input_tokens": seen.body.len() / 4});
            return vec![answer("200 OK", "", count.to_string())];
        }
        let whole = self.answer(api, &verdict, &script(&verdict));
        if verdict.body["stream"] == true {
            stream_of([to_events(api, &whole)])
        } else {
            vec![answer("200 OK", "", whole.to_string())]
        }
    }
}

/// The event stream of a whole answer.
pub(crate) fn to_events(api: BoundApi, answer: &Value) -> String {
    match api {
        BoundApi::Messages => message_events(answer, FRAGMENT),
        BoundApi::Responses => response_events(answer, FRAGMENT),
        _ => completion_events(answer),
    }
}

/// What a client appends to its list of messages or items.
pub(crate) fn to_history(api: BoundApi, answer: &Value) -> Vec<Value> {
    match api {
        BoundApi::Messages => vec![json!({"role": "assistant", "content": answer["content"]})],
        BoundApi::Responses => answer["output"].as_array().cloned().unwrap_or_default(),
        _ => vec![answer["choices"][0]["message"].clone()],
    }
}

fn completion_events(answer: &Value) -> String {
    let message = &answer["choices"][0]["message"];
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    for key in [
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "thinking_blocks",
        "content",
    ] {
        if !message[key].is_null() {
            let mut delta = json!({});
            delta[key] = message[key].clone();
            deltas.push(delta);
        }
    }
    for (index, call) in message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let mut call = call.clone();
        call["index"] = index.into();
        deltas.push(json!({"tool_calls": [call]}));
    }
    let chunk = |delta: Value, finish: &Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        json!({"id": answer["id"], "object": "chat.completion.chunk", "created": 1, "model": answer["model"],
            "choices": [choice]})
    };
    let mut chunks: Vec<Value> = deltas
        .into_iter()
        .map(|it| chunk(it, &Value::Null))
        .collect();
    let mut last = chunk(json!({}), &answer["choices"][0]["finish_reason"]);
    last["usage"] = answer["usage"].clone();
    chunks.push(last);
    let events: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    events + "data: [DONE]\n\n"
}
