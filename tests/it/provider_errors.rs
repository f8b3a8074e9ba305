//! What the errors of providers mean, over the wire in each format: refusals in unknown words, limits of single requests,
//! answer caps beyond the window, and the ends of answers.

mod caps;
mod ends;
mod inside;
mod request_limits;
mod unknown_words;

use http::Method;
use plimsoll::conversation::Format;
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, ProviderStep, ReceivedRequest, RunningProxy, ScriptedProvider, answer, stream_of,
};

/// A provider that counts a token for four bytes, and answers in the format of the path what `refuse` does not refuse.
async fn start_provider(
    refuse: impl Fn(&Value, u64) -> Option<Vec<ProviderStep>> + Send + Sync + 'static,
) -> ScriptedProvider {
    start_counting(4.0, refuse).await
}

/// The same with so many bytes for a token.
async fn start_counting(
    bytes: f64,
    refuse: impl Fn(&Value, u64) -> Option<Vec<ProviderStep>> + Send + Sync + 'static,
) -> ScriptedProvider {
    ScriptedProvider::start_answering(move |seen: &ReceivedRequest| {
        let tokens = (seen.body.len() as f64 / bytes) as u64;
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        refuse(&body, tokens).unwrap_or_else(|| give_answer(path_format(seen), &body, tokens))
    })
    .await
}

fn count_tokens(body: &[u8]) -> u64 {
    body.len() as u64 / 4
}

fn path_format(seen: &ReceivedRequest) -> Format {
    match &seen.line {
        line if line.contains("/messages") => Format::Messages,
        line if line.contains("/responses") => Format::Responses,
        _ => Format::Chat,
    }
}

/// An answer of one word.
fn give_answer(format: Format, asked: &Value, tokens: u64) -> Vec<ProviderStep> {
    let usage = json!({"input_tokens": tokens, "output_tokens": 3, "total_tokens": tokens + 3});
    let event = |data: Value| {
        let name = data["type"].as_str().map(str::to_owned);
        let name = name.map_or(String::new(), |name| format!("event: {name}\n"));
        format!("{name}data: {data}\n\n")
    };
    let streams = asked["stream"] == true;
    let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Well.", "annotations": []}]});
    let response = json!({"id": "resp_1", "object": "response", "status": "completed",
        "model": "m", "output": [item], "usage": usage});
    let message = |content: Value| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": content, "stop_reason": "end_turn", "usage": usage})
    };
    let chat_usage = json!({"prompt_tokens": tokens, "completion_tokens": 3});
    let body = match format {
        Format::Messages if streams => {
            let delta = json!({"type": "text_delta", "text": "Well."});
            return stream_of(
                [
                    json!({"type": "message_start", "message": message(json!([]))}),
                    json!({"type": "content_block_start", "index": 0,
                        "content_block": {"type": "text", "text": ""}}),
                    json!({"type": "content_block_delta", "index": 0, "delta": delta}),
                    json!({"type": "content_block_stop", "index": 0}),
                    json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                        "usage": {"output_tokens": 3}}),
                    json!({"type": "message_stop"}),
                ]
                .map(event),
            );
        }
        Format::Responses if streams => {
            return stream_of(
                [
                    json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                    json!({"type": "response.completed", "response": response}),
                ]
                .map(event),
            );
        }
        Format::Messages => message(json!([{"type": "text", "text": "Well."}])),
        Format::Responses => response,
        _ if streams => {
            let delta = json!({"choices": [{"index": 0, "delta": {"content": "Well."}}]});
            let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
            let usage = json!({"choices": [], "usage": chat_usage});
            let events = [delta, finish, usage].map(event);
            return stream_of(events.into_iter().chain(["data: [DONE]\n\n".to_owned()]));
        }
        _ => {
            let message = json!({"role": "assistant", "content": "Well."});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            json!({"object": "chat.completion", "choices": [choice], "usage": chat_usage})
        }
    };
    vec![answer("200 OK", "", body.to_string())]
}

/// An error as each format has it.
fn write_error(format: Format, status: u16, kind: &str, message: &str) -> Vec<ProviderStep> {
    let error = json!({"type": kind, "message": message});
    let body = match format {
        Format::Messages => json!({"type": "error", "error": error}),
        _ => json!({"error": error}),
    };
    vec![answer(&format!("{status} Refused"), "", body.to_string())]
}

/// A conversation that grows by questions and answers.
struct Talk {
    format: Format,
    model: &'static str,
    streams: bool,
    /// In the name that the format has for it; `None`: Messages gets one of 100.
    cap: Option<u32>,
    /// Tokens of thinking, in Messages.
    thinking: Option<u32>,
    messages: Vec<Value>,
}

impl Talk {
    /// `name` stands in the first message, so that each talk is a session of its own.
    fn new(format: Format, name: &str) -> Self {
        let first = json!({"role": "user", "content": format!("I am {name}. Read all files.")});
        Self {
            format,
            model: "m",
            streams: false,
            cap: None,
            thinking: None,
            messages: vec![first],
        }
    }

    /// Adds questions and answers of about so many tokens.
    fn grow(&mut self, tokens: usize) -> &mut Self {
        for nth in 0..tokens / 1_000 {
            let at = self.messages.len();
            let text = format!("{at} {nth} has planks of oak and a rope; ").repeat(150);
            self.say(json!(&text[..3_940]));
        }
        self
    }

    fn say(&mut self, content: Value) -> &mut Self {
        self.messages
            .push(json!({"role": "assistant", "content": "Well."}));
        self.messages
            .push(json!({"role": "user", "content": content}));
        self
    }

    async fn ask(&self, proxy: &RunningProxy) -> ClientAnswer {
        let (path, list, cap) = match self.format {
            Format::Messages => ("/v1/messages", "messages", "max_tokens"),
            Format::Responses => ("/v1/responses", "input", "max_output_tokens"),
            _ => ("/v1/chat/completions", "messages", "max_tokens"),
        };
        let mut body = json!({"model": self.model, list: self.messages});
        if let Some(tokens) = self.cap {
            body[cap] = tokens.into();
        }
        match self.format {
            Format::Messages if self.cap.is_none() => body["max_tokens"] = 100.into(),
            Format::Responses => body["store"] = false.into(),
            _ => {}
        }
        if let Some(tokens) = self.thinking {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": tokens});
        }
        if self.streams {
            body["stream"] = true.into();
        }
        let client = proxy.client();
        let request = client
            .request(Method::POST, path)
            .header("content-type", "application/json")
            .header("x-plimsoll-recovery", "off");
        client.send_with(request, body.to_string()).await
    }
}

fn header<'a>(came: &'a ClientAnswer, name: &str) -> &'a str {
    let value = came.headers.get(format!("x-plimsoll-{name}"));
    value.map_or("", |value| value.to_str().unwrap())
}

#[track_caller]
fn check(came: &ClientAnswer, status: u16, attempts: &str, context: &str) {
    let found = (came.status.as_u16(), header(came, "attempts"));
    assert_eq!(found, (status, attempts), "{context}: {}", came.text());
}
