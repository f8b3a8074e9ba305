//! The built-in provider: chat completions, Messages and Responses without a network, for a first look and for tests.
//!
//! It counts tokens, has a window and a prefix cache, and refuses an overlong or invalid conversation in
//! the words of OpenAI or Anthropic. A scripted agent answers, and follows a notice of recovery or a request for a summary.
//! Nothing of `wire`, `guard` or `recovery` is used here, so that a mistake there cannot hide behind the
//! same mistake here; only the table of models' rules is, which is data.
//!
//! The same request always gets the same answer, cached tokens apart. No clock, no I/O.

mod bound_reasoning;
mod completion;
mod demo_agent;
mod memory_requests;
mod messages_answer;
mod messages_request;
mod model_rules;
mod request;
mod responses_answer;
mod responses_request;
mod schema;
mod scripted_agent;
mod token_count;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use bound_reasoning::BoundReasoning;
use completion::{Completion, SimulatedBody, json_response};
pub use demo_agent::DemoAgent;
use request::{SimulatedRefusal, SimulatedRequest};
use token_count::SimulatedPrompt;

/// Names of all models, with their windows in tokens, the answer included.
pub const MODELS: &[(&str, u32)] = &[
    ("plimsoll-8k", 8_192),
    ("plimsoll-32k", 32_768),
    ("plimsoll-128k", 128_000),
    ("plimsoll-200k", 200_000),
    ("plimsoll-1m", 1_000_000),
    // These reason. The reasoning of the first is not bound to what stood before it, that of the others is.
    ("claude-opus-4-8-32k", 32_768),
    ("claude-sonnet-5-5-32k", 32_768),
    ("claude-sonnet-5-5-128k", 128_000),
    ("gpt-6.2-sol-32k", 32_768),
    ("gpt-6.2-sol-128k", 128_000),
    // Answers of these must come back with their reasoning, or with the signatures of their calls.
    ("kimi-k3-32k", 32_768),
    ("deepseek-v4-flash-32k", 32_768),
    ("gemini-3.8-flash-32k", 32_768),
];

const RESPONSES_OVERFLOW: &str =
    "Your input exceeds the context window of this model. Please adjust your input and try again.";

/// The requests that are answered, by the end of their paths.
const ROUTES: [(&str, SimulatedApi, RequestAim); 5] = [
    ("/chat/completions", SimulatedApi::Chat, RequestAim::Answer),
    ("/messages", SimulatedApi::Messages, RequestAim::Answer),
    (
        "/messages/count_tokens",
        SimulatedApi::Messages,
        RequestAim::Count,
    ),
    ("/responses", SimulatedApi::Responses, RequestAim::Answer),
    (
        "/responses/input_tokens",
        SimulatedApi::Responses,
        RequestAim::Count,
    ),
];

/// The API that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulatedApi {
    Chat,
    Messages,
    Responses,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestAim {
    Answer,
    /// Only the prompt's tokens are wanted.
    Count,
}

/// Answers one request. The path may have any prefix before `/chat/completions`, `/messages`, `/responses` or
/// `/models`.
///
/// Never fails: an invalid request gets a 4xx, as from OpenAI or Anthropic.
pub async fn answer_request(request: Request<Bytes>) -> Response<SimulatedBody> {
    let id = format!("req_{:016x}", xxh3_64(request.body()));
    let (method, path) = (request.method(), request.uri().path());
    let end = path.trim_end_matches('/');
    let mut routes = ROUTES.iter().filter(|_| method == Method::POST);
    let route = routes.find(|(route, ..)| end.ends_with(route));
    let answer = match route {
        Some((_, api, aim)) => answer_conversation(*api, *aim, &request),
        None if method == Method::GET && end.ends_with("/models") => Ok(list_models()),
        None => Err(SimulatedRefusal {
            status: StatusCode::NOT_FOUND,
            ..SimulatedRefusal::new(format!("Invalid URL ({method} {path})"))
        }),
    };
    let is_messages = route.is_some_and(|(_, api, _)| *api == SimulatedApi::Messages);
    let mut response = answer.unwrap_or_else(|refusal| {
        let body = match is_messages {
            true => refusal.to_messages_body(&id),
            false => refusal.to_body(),
        };
        json_response(refusal.status, &body)
    });
    if let Ok(id) = HeaderValue::from_str(&id) {
        let name = if is_messages {
            "request-id"
        } else {
            "x-request-id"
        };
        response.headers_mut().insert(name, id);
    }
    response
}

fn list_models() -> Response<SimulatedBody> {
    let models = MODELS.iter().map(|(name, window)| {
        json!({"id": name, "object": "model", "created": completion::CREATED, "owned_by": "plimsoll",
            "context_length": window})
    });
    let list = json!({"object": "list", "data": models.collect::<Vec<Value>>()});
    json_response(StatusCode::OK, &list)
}

/// The model of that name, also with `simulated/` before it.
fn find_model(name: &str) -> Result<(&'static str, u32), SimulatedRefusal> {
    let bare = name.strip_prefix("simulated/").unwrap_or(name);
    let found = MODELS.iter().find(|(name, _)| *name == bare);
    let message = || format!("The model `{name}` does not exist or you do not have access to it.");
    found.copied().ok_or_else(|| SimulatedRefusal {
        status: StatusCode::NOT_FOUND,
        code: Some("model_not_found"),
        ..SimulatedRefusal::new(message())
    })
}

/// Reads a request of any API as a chat completion, and answers it in the form of its API.
fn answer_conversation(
    api: SimulatedApi,
    aim: RequestAim,
    request: &Request<Bytes>,
) -> Result<Response<SimulatedBody>, SimulatedRefusal> {
    let mut body = serde_json::from_slice(request.body()).unwrap_or_default();
    let reasoning = BoundReasoning::check(api, &mut body, request.headers())?;
    let chat = SimulatedRequest::from_body(api, body)?;
    let prompt = count_prompt(request, &chat);
    if aim == RequestAim::Count {
        let mut count = json!({"input_tokens": prompt.tokens});
        if api == SimulatedApi::Responses {
            count["object"] = "response.input_tokens".into();
        }
        return Ok(json_response(StatusCode::OK, &count));
    }
    let cap = chat.answer_limit();
    let room = find_room(api, chat.window, prompt.tokens, cap)?;
    let (cacheable, cached) = match chat.is_cached {
        true => (prompt.cacheable_tokens(), prompt.read_cache()),
        false => (0, 0),
    };
    let id = xxh3_64_with_seed(request.body(), prompt.hash);
    let limit = cap.map_or(room, |cap| cap.min(room));
    let thought = reasoning.make_thought(limit);
    let thought_tokens = thought.as_ref().map_or(0, |thought| thought.tokens);
    let mut reply = scripted_agent::make_reply(&chat, prompt.hash, limit - thought_tokens);
    reply.tokens += thought_tokens;
    let completion = Completion {
        id,
        prompt_hash: prompt.hash,
        model: chat.model,
        reply,
        thought,
        transformations: reasoning.transformations,
        prompt_tokens: prompt.tokens,
        cached_tokens: cached,
        cache_written: cacheable.saturating_sub(cached),
        window_is_limit: cap.is_some_and(|cap| room < cap),
    };
    Ok(match chat.is_streamed() {
        true => completion.write_stream(api, chat.includes_usage()),
        false => completion.write_body(api),
    })
}

fn count_prompt(request: &Request<Bytes>, chat: &SimulatedRequest) -> SimulatedPrompt {
    // SECURITY: a cache shared between keys would show one client what another has sent.
    let mut names = [header::AUTHORIZATION.as_str(), "x-api-key"].into_iter();
    let owner = names.find_map(|name| request.headers().get(name));
    let owner = xxh3_64(owner.map_or(b"", HeaderValue::as_bytes));
    let seed = xxh3_64_with_seed(chat.model.as_bytes(), owner);
    SimulatedPrompt::count_prompt(seed, chat.schemas(), chat.messages())
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
    let room = window.checked_sub(prompt);
    match api {
        SimulatedApi::Chat => check_window(window, prompt, cap).map(|()| room.unwrap_or(0)),
        SimulatedApi::Messages if cap.is_none() => {
            Err(SimulatedRefusal::new("max_tokens: Field required"))
        }
        SimulatedApi::Messages => room.ok_or_else(|| {
            let excess = format!("{prompt} tokens > {window} maximum");
            SimulatedRefusal::new(format!("prompt is too long: {excess}"))
        }),
        SimulatedApi::Responses => room.ok_or_else(|| SimulatedRefusal {
            code: Some("context_length_exceeded"),
            ..SimulatedRefusal::for_parameter("input", RESPONSES_OVERFLOW)
        }),
    }
}

/// Refuses a prompt that does not fit the window, in the sentence that every client looks for.
fn check_window(window: u32, prompt: u32, limit: Option<u32>) -> Result<(), SimulatedRefusal> {
    let total = prompt.saturating_add(limit.unwrap_or(0));
    if total <= window {
        return Ok(());
    }
    let excess = match limit {
        None => format!(
            "your messages resulted in {prompt} tokens. Please reduce the length of the messages."
        ),
        Some(limit) => format!(
            "you requested {total} tokens ({prompt} in the messages, {limit} in the completion). \
             Please reduce the length of the messages or completion."
        ),
    };
    Err(SimulatedRefusal {
        code: Some("context_length_exceeded"),
        ..SimulatedRefusal::for_parameter(
            "messages",
            format!("This model's maximum context length is {window} tokens. However, {excess}"),
        )
    })
}

#[cfg(test)]
mod tests;
