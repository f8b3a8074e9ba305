//! The built-in provider: chat completions, Messages and Responses without a network, for a first look and for tests.
//!
//! It counts tokens, has a window and a prefix cache, and refuses an overlong or invalid conversation in
//! the words of OpenAI or Anthropic. A scripted agent answers, and follows a notice of recovery or a request for a summary.
//! Nothing of `wire`, `guard` or `recovery` is used here, so that a mistake there cannot hide behind the
//! same mistake here.
//!
//! The same request always gets the same answer, cached tokens apart. No clock, no I/O.

mod completion;
mod demo_agent;
mod memory_requests;
mod messages_answer;
mod messages_request;
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

use completion::{Completion, SimulatedBody, json_response};
pub use demo_agent::DemoAgent;
use messages_answer::SimulatedMessage;
use messages_request::{MessagesRequest, write_refusal};
use request::{SimulatedRefusal, SimulatedRequest};
use token_count::SimulatedPrompt;

/// Names of all models, with their windows in tokens, the answer included.
pub const MODELS: &[(&str, u32)] = &[
    ("plimsoll-8k", 8_192),
    ("plimsoll-32k", 32_768),
    ("plimsoll-128k", 128_000),
    ("plimsoll-200k", 200_000),
    ("plimsoll-1m", 1_000_000),
];

/// Answers one request. The path may have any prefix before `/chat/completions`, `/messages`, `/responses` or
/// `/models`.
///
/// Never fails: an invalid request gets a 4xx, as from OpenAI or Anthropic.
pub async fn answer_request(request: Request<Bytes>) -> Response<SimulatedBody> {
    let id = format!("req_{:016x}", xxh3_64(request.body()));
    let route = find_route(&request);
    let answer = match route {
        SimulatedRoute::Chat => complete_chat(&request),
        SimulatedRoute::Messages => complete_messages(&request),
        SimulatedRoute::CountTokens => count_message_tokens(&request),
        SimulatedRoute::Responses => complete_response(&request),
        SimulatedRoute::InputTokens => count_input_tokens(&request),
        SimulatedRoute::Models => Ok(list_models()),
        SimulatedRoute::Unknown => Err(SimulatedRefusal {
            status: StatusCode::NOT_FOUND,
            ..SimulatedRefusal::new(format!(
                "Invalid URL ({} {})",
                request.method(),
                request.uri().path()
            ))
        }),
    };
    let is_messages = matches!(
        route,
        SimulatedRoute::Messages | SimulatedRoute::CountTokens
    );
    let mut response = answer.unwrap_or_else(|refusal| {
        let body = match is_messages {
            true => write_refusal(&refusal, &id),
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

#[derive(Clone, Copy)]
enum SimulatedRoute {
    Chat,
    Messages,
    CountTokens,
    Responses,
    InputTokens,
    Models,
    Unknown,
}

fn find_route(request: &Request<Bytes>) -> SimulatedRoute {
    let path = request.uri().path().trim_end_matches('/');
    let (is_post, is_get) = (
        request.method() == Method::POST,
        request.method() == Method::GET,
    );
    match path {
        _ if is_post && path.ends_with("/chat/completions") => SimulatedRoute::Chat,
        _ if is_post && path.ends_with("/messages") => SimulatedRoute::Messages,
        _ if is_post && path.ends_with("/messages/count_tokens") => SimulatedRoute::CountTokens,
        _ if is_post && path.ends_with("/responses") => SimulatedRoute::Responses,
        _ if is_post && path.ends_with("/responses/input_tokens") => SimulatedRoute::InputTokens,
        _ if is_get && path.ends_with("/models") => SimulatedRoute::Models,
        _ => SimulatedRoute::Unknown,
    }
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

fn complete_chat(request: &Request<Bytes>) -> Result<Response<SimulatedBody>, SimulatedRefusal> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let chat = SimulatedRequest::from_body(&body)?;
    let prompt = count_prompt(request, &chat);
    let limit = chat.answer_limit();
    check_window(chat.window, prompt.tokens, limit)?;
    let limit = limit.unwrap_or(chat.window - prompt.tokens);
    let id = xxh3_64_with_seed(request.body(), prompt.hash);
    let completion = Completion {
        id: format!("chatcmpl-{id:016x}"),
        call_id: format!("call_{:016x}", prompt.hash),
        model: chat.model,
        reply: scripted_agent::make_reply(&chat, prompt.hash, limit),
        prompt_tokens: prompt.tokens,
        cached_tokens: prompt.read_cache(),
    };
    Ok(match chat.is_streamed() {
        true => completion.write_events(chat.includes_usage()),
        false => completion.write_whole(),
    })
}

fn count_prompt(request: &Request<Bytes>, chat: &SimulatedRequest<'_>) -> SimulatedPrompt {
    // SECURITY: a cache shared between keys would show one client what another has sent.
    let mut names = [header::AUTHORIZATION.as_str(), "x-api-key"].into_iter();
    let owner = names.find_map(|name| request.headers().get(name));
    let owner = xxh3_64(owner.map_or(b"", HeaderValue::as_bytes));
    let seed = xxh3_64_with_seed(chat.model.as_bytes(), owner);
    SimulatedPrompt::count_prompt(seed, chat.schemas(), chat.messages)
}

fn complete_messages(
    request: &Request<Bytes>,
) -> Result<Response<SimulatedBody>, SimulatedRefusal> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let messages = MessagesRequest::from_body(&body)?;
    let missing = || SimulatedRefusal::new("max_tokens: Field required");
    let cap = messages.max_tokens.ok_or_else(missing)?;
    let chat = SimulatedRequest::from_body(&messages.chat)?;
    let prompt = count_prompt(request, &chat);
    let (tokens, window) = (prompt.tokens, chat.window);
    if tokens > window {
        return Err(SimulatedRefusal::new(format!(
            "prompt is too long: {tokens} tokens > {window} maximum"
        )));
    }
    let room = window - tokens;
    let read = if messages.has_markers {
        prompt.read_cache()
    } else {
        0
    };
    let cacheable = if messages.has_markers {
        prompt.cacheable_tokens()
    } else {
        0
    };
    let id = xxh3_64_with_seed(request.body(), prompt.hash);
    let answer = SimulatedMessage {
        completion: Completion {
            id: format!("msg_{id:016x}"),
            call_id: format!("toolu_{:016x}", prompt.hash),
            model: chat.model,
            reply: scripted_agent::make_reply(&chat, prompt.hash, cap.min(room)),
            prompt_tokens: tokens,
            cached_tokens: read,
        },
        cache_written: cacheable - read,
        window_is_limit: room < cap,
    };
    Ok(match body["stream"] == true {
        true => answer.write_events(),
        false => answer.write_whole(),
    })
}

fn count_message_tokens(
    request: &Request<Bytes>,
) -> Result<Response<SimulatedBody>, SimulatedRefusal> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let messages = MessagesRequest::from_body(&body)?;
    let chat = SimulatedRequest::from_body(&messages.chat)?;
    let tokens = count_prompt(request, &chat).tokens;
    Ok(json_response(
        StatusCode::OK,
        &json!({"input_tokens": tokens}),
    ))
}

fn complete_response(
    request: &Request<Bytes>,
) -> Result<Response<SimulatedBody>, SimulatedRefusal> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let chat = responses_request::rewrite_request(&body)?;
    let chat = SimulatedRequest::from_body(&chat)?;
    let prompt = count_prompt(request, &chat);
    let room = chat.window.checked_sub(prompt.tokens);
    let room = room.ok_or_else(|| SimulatedRefusal {
        code: Some("context_length_exceeded"),
        ..SimulatedRefusal::for_parameter("input", "Your input exceeds the context window of this model. Please adjust your input and try again.")
    })?;
    let limit = chat.answer_limit().map_or(room, |limit| limit.min(room));
    let id = xxh3_64_with_seed(request.body(), prompt.hash);
    let completion = Completion {
        id: format!("resp_{id:016x}"),
        call_id: format!("call_{:016x}", prompt.hash),
        model: chat.model,
        reply: scripted_agent::make_reply(&chat, prompt.hash, limit),
        prompt_tokens: prompt.tokens,
        cached_tokens: prompt.read_cache(),
    };
    Ok(match body["stream"] == true {
        true => completion.write_response_events(),
        false => completion.write_response(),
    })
}

fn count_input_tokens(
    request: &Request<Bytes>,
) -> Result<Response<SimulatedBody>, SimulatedRefusal> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let chat = responses_request::rewrite_request(&body)?;
    let chat = SimulatedRequest::from_body(&chat)?;
    let tokens = count_prompt(request, &chat).tokens;
    let count = json!({"object": "response.input_tokens", "input_tokens": tokens});
    Ok(json_response(StatusCode::OK, &count))
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
