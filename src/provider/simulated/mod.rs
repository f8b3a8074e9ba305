//! The built-in provider: chat completions, Messages and Responses without a network, for a first look and the demo.
//!
//! It counts tokens, has a window and a prefix cache, and refuses what is too long in the words of OpenAI or Anthropic.
//! Nothing of `format`, `guard` or `recovery` is used here, so that a mistake there cannot hide behind the same
//! mistake here.
//!
//! The same request always gets the same answer, cached tokens apart. No clock, no I/O.

mod agent;
mod answer;
mod demo_agent;
mod prompt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use answer::{Completion, SimulatedBody};
pub use demo_agent::DemoAgent;
use prompt::SimulatedPrompt;

/// Names of all models, with their windows in tokens, the answer included.
pub const MODELS: &[(&str, u32)] = &[
    ("plimsoll-8k", 8_192),
    ("plimsoll-32k", 32_768),
    ("plimsoll-128k", 128_000),
    ("plimsoll-200k", 200_000),
    ("plimsoll-1m", 1_000_000),
];

const RESPONSES_OVERFLOW: &str =
    "Your input exceeds the context window of this model. Please adjust your input and try again.";

/// The API that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulatedApi {
    Chat,
    Messages,
    Responses,
}

/// The requests that are answered, by the end of their paths.
const ROUTES: [(&str, SimulatedApi); 3] = [
    ("/chat/completions", SimulatedApi::Chat),
    ("/messages", SimulatedApi::Messages),
    ("/responses", SimulatedApi::Responses),
];

/// Clients branch on the status and the code; the message is for people.
#[derive(Debug)]
struct SimulatedRefusal {
    status: StatusCode,
    code: Option<&'static str>,
    message: String,
}

const TOO_LONG: Option<&str> = Some("context_length_exceeded");

fn refuse(
    status: StatusCode,
    code: Option<&'static str>,
    message: impl Into<String>,
) -> SimulatedRefusal {
    SimulatedRefusal {
        status,
        code,
        message: message.into(),
    }
}

impl SimulatedRefusal {
    fn to_body(&self, api: SimulatedApi) -> Value {
        let message = &self.message;
        if api == SimulatedApi::Messages {
            let kind = match self.status {
                StatusCode::NOT_FOUND => "not_found_error",
                _ => "invalid_request_error",
            };
            return json!({"type": "error", "error": {"type": kind, "message": message}});
        }
        json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": self.code}})
    }
}

/// Answers one request. The path may have any prefix before `/chat/completions`, `/messages`, `/responses` or
/// `/models`.
///
/// Never fails: an invalid request gets a 4xx, as from OpenAI or Anthropic.
pub async fn answer_request(request: Request<Bytes>) -> Response<SimulatedBody> {
    let (method, path) = (request.method(), request.uri().path());
    let end = path.trim_end_matches('/');
    let route = ROUTES.iter().find(|(route, _)| end.ends_with(route));
    let route = route.filter(|_| method == Method::POST);
    let answer = match route {
        Some((_, api)) => answer_conversation(*api, &request),
        None if method == Method::GET && end.ends_with("/models") => Ok(list_models()),
        None => {
            let message = format!("Invalid URL ({method} {path})");
            Err(refuse(StatusCode::NOT_FOUND, None, message))
        }
    };
    answer.unwrap_or_else(|refusal| {
        let api = route.map_or(SimulatedApi::Chat, |(_, api)| *api);
        answer::write_json(refusal.status, &refusal.to_body(api))
    })
}

fn list_models() -> Response<SimulatedBody> {
    let models = MODELS.iter().map(|(name, window)| {
        json!({"id": name, "object": "model", "created": answer::CREATED, "owned_by": "plimsoll",
            "context_length": window})
    });
    let list = json!({"object": "list", "data": models.collect::<Vec<Value>>()});
    answer::write_json(StatusCode::OK, &list)
}

/// The model of that name, also with `simulated/` before it.
fn find_model(name: &str) -> Result<(&'static str, u32), SimulatedRefusal> {
    let bare = name.strip_prefix("simulated/").unwrap_or(name);
    let found = MODELS.iter().find(|(name, _)| *name == bare);
    found.copied().ok_or_else(|| {
        let message = format!("The model `{name}` does not exist or you do not have access to it.");
        refuse(StatusCode::NOT_FOUND, Some("model_not_found"), message)
    })
}

fn answer_conversation(
    api: SimulatedApi,
    request: &Request<Bytes>,
) -> Result<Response<SimulatedBody>, SimulatedRefusal> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let invalid = |message| refuse(StatusCode::BAD_REQUEST, None, message);
    if !body.is_object() {
        return Err(invalid("We could not parse the JSON body of your request."));
    }
    let name = body["model"].as_str();
    let name = name.ok_or_else(|| invalid("you must provide a model parameter"))?;
    let (model, window) = find_model(name)?;
    let messages = prompt::list_messages(api, &body);
    if messages.is_empty() {
        return Err(invalid("at least one message is required"));
    }
    match api {
        SimulatedApi::Chat => check_pairs(&messages)?,
        SimulatedApi::Messages => check_version(request.headers(), &body)?,
        SimulatedApi::Responses => {}
    }
    let prompt = SimulatedPrompt::count_prompt(cache_owner(request, model), &body, &messages);
    let caps = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
    let cap = caps.iter().find_map(|name| body[*name].as_u64());
    let cap = cap.map(|cap| u32::try_from(cap).unwrap_or(u32::MAX));
    let room = find_room(api, window, prompt.tokens, cap)?;
    let limit = cap.map_or(room, |cap| cap.min(room));
    let text = agent::describe_itself(prompt.tokens, window);
    let reply = agent::make_reply(&body, prompt.hash, limit, text);
    // Messages caches only what has a marker.
    let is_cached = api != SimulatedApi::Messages || body.to_string().contains("\"cache_control\"");
    let completion = Completion {
        id: xxh3_64_with_seed(request.body(), prompt.hash),
        call_id: prompt.hash,
        api,
        model,
        reply,
        prompt_tokens: prompt.tokens,
        cached_tokens: if is_cached { prompt.read_cache() } else { 0 },
    };
    Ok(if body["stream"] == true {
        completion.write_stream(body["stream_options"]["include_usage"] == true)
    } else {
        completion.write_body()
    })
}

fn cache_owner(request: &Request<Bytes>, model: &str) -> u64 {
    // SECURITY: a cache shared between keys would show one client what another has sent.
    let mut names = [header::AUTHORIZATION.as_str(), "x-api-key"].into_iter();
    let key = names.find_map(|name| request.headers().get(name));
    let key = xxh3_64(key.map_or(b"", HeaderValue::as_bytes));
    xxh3_64_with_seed(model.as_bytes(), key)
}

/// Refuses what `anthropic-version: 2026-10-21` and later ones refuse: members for sampling, documents of the model, and
/// cited texts of the user.
fn check_version(headers: &HeaderMap, body: &Value) -> Result<(), SimulatedRefusal> {
    let version = headers.get("anthropic-version");
    if version.is_none_or(|version| version.as_bytes() < &b"2026-10-21"[..]) {
        return Ok(());
    }
    let mut names = ["temperature", "top_p", "top_k"].into_iter();
    let mut refused = names
        .find(|name| body.get(name).is_some())
        .map(str::to_owned);
    let entries = body["messages"].as_array().into_iter().flatten();
    for (at, entry) in entries.enumerate() {
        let is_user = entry["role"] == "user";
        let blocks = entry["content"].as_array().into_iter().flatten();
        let fault = blocks.into_iter().any(|block| {
            if is_user {
                has_cited_text(block)
            } else {
                entry["role"] == "assistant" && block["type"] == "document"
            }
        });
        let what = if is_user { "citations" } else { "document" };
        refused = refused.or(fault.then(|| format!("messages.{at}.content: {what}")));
    }
    refused.map_or(Ok(()), |what| {
        let message = format!("{what}: Extra inputs are not permitted");
        Err(refuse(StatusCode::BAD_REQUEST, None, message))
    })
}

/// Whether a block, or one inside it, is a text with citations.
fn has_cited_text(block: &Value) -> bool {
    let has_citations = block["citations"]
        .as_array()
        .is_some_and(|it| !it.is_empty());
    let mut inner = block["content"].as_array().into_iter().flatten();
    block["type"] == "text" && has_citations || inner.any(has_cited_text)
}

/// Refuses a chat completion with a result that has no call directly before it, or a call without its result.
fn check_pairs(messages: &[&Value]) -> Result<(), SimulatedRefusal> {
    let mut open_calls: Vec<&Value> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = &message["tool_call_id"];
            let call = open_calls.iter().position(|call| call["id"] == *id);
            let orphan = "Invalid parameter: messages with role 'tool' must be a response to a preceding message \
                          with 'tool_calls'.";
            open_calls.remove(call.ok_or_else(|| refuse(StatusCode::BAD_REQUEST, None, orphan))?);
        } else if open_calls.is_empty() {
            open_calls.extend(message["tool_calls"].as_array().into_iter().flatten());
        } else {
            break;
        }
    }
    let unanswered = "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
                      'tool_call_id'.";
    if open_calls.is_empty() {
        Ok(())
    } else {
        Err(refuse(StatusCode::BAD_REQUEST, None, unanswered))
    }
}

/// The tokens that the window leaves for the answer.
///
/// # Errors
/// The prompt does not fit the window, in the words that the clients of each API look for.
fn find_room(
    api: SimulatedApi,
    window: u32,
    prompt: u32,
    cap: Option<u32>,
) -> Result<u32, SimulatedRefusal> {
    // In the other APIs, the window just ends the answer.
    let asked = cap.filter(|_| api == SimulatedApi::Chat).unwrap_or(0);
    let total = prompt.saturating_add(asked);
    if total <= window {
        return Ok(window - prompt);
    }
    let (code, message) = match api {
        SimulatedApi::Chat => {
            let excess = match asked {
                0 => format!("your messages resulted in {prompt} tokens"),
                _ => format!(
                    "you requested {total} tokens ({prompt} in the messages, {asked} in the completion)"
                ),
            };
            let message = format!(
                "This model's maximum context length is {window} tokens. However, {excess}. Please reduce the length \
                 of the messages."
            );
            (TOO_LONG, message)
        }
        SimulatedApi::Messages => {
            let message = format!("prompt is too long: {prompt} tokens > {window} maximum");
            (None, message)
        }
        SimulatedApi::Responses => (TOO_LONG, RESPONSES_OVERFLOW.to_owned()),
    };
    Err(refuse(StatusCode::BAD_REQUEST, code, message))
}

#[cfg(test)]
mod tests;
