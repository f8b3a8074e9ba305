//! The built-in provider: OpenAI's chat completions without a network.
//!
//! It answers with fixed texts and with tool calls that fit the request's schemas, counts tokens by
//! a rule of its own, has a window and a prefix cache, and refuses an overlong or invalid
//! conversation in OpenAI's words. It does what a notice of recovery or a request for a summary
//! asks. Nothing of `wire`, `guard` or `recovery` is used here, so that their mistakes cannot hide
//! behind the same mistake on this side.
//!
//! The same request always gets the same answer, cached tokens apart. No clock, no I/O.

mod check;
mod count;
mod notice;
mod prompt;
mod refusal;
mod render;
mod reply;
mod request;
mod schema;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use prompt::Prompt;
use refusal::Refusal;
use render::{CREATED, Envelope, json_response};
use request::{ChatRequest, NOT_JSON};

/// A model of the simulated provider.
#[derive(Clone, Copy, Debug)]
struct Model {
    name: &'static str,
    /// In tokens, the answer's included.
    window: u32,
}

/// Names and windows of all models.
const MODELS: &[(&str, u32)] = &[
    ("plimsoll-8k", 8_192),
    ("plimsoll-32k", 32_768),
    ("plimsoll-128k", 128_000),
    ("plimsoll-200k", 200_000),
    ("plimsoll-1m", 1_000_000),
];

/// Every model with its window in tokens.
pub fn models() -> &'static [(&'static str, u32)] {
    MODELS
}

/// Answers one request. The path may have any prefix before `/chat/completions` or `/models`.
///
/// Never fails: whatever is wrong with the request is said in a 4xx, as OpenAI would.
pub async fn answer(request: Request<Bytes>) -> Response<UnsyncBoxBody<Bytes, std::io::Error>> {
    let id = format!("req_{:016x}", xxh3_64(request.body()));
    let mut response = route(&request).unwrap_or_else(|refusal| {
        let mut response = json_response(refusal.status, &refusal.body());
        if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = HeaderValue::from_static("GET, POST");
            response.headers_mut().insert(header::ALLOW, allowed);
        }
        response
    });
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

fn route(request: &Request<Bytes>) -> Result<Response<render::Body>, Refusal> {
    let path = request.uri().path().trim_end_matches('/');
    let method = request.method();
    let wanted = if path.ends_with("/chat/completions") {
        &Method::POST
    } else if path.ends_with("/models") || path.contains("/models/") {
        &Method::GET
    } else {
        let message = format!("Invalid URL ({method} {path})");
        return Err(Refusal::plain(StatusCode::NOT_FOUND, message));
    };
    if method != wanted {
        let message = format!("Not allowed to {method} on {path} (HINT: use {wanted})");
        return Err(Refusal::plain(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    if wanted == Method::POST {
        return complete(request);
    }
    let name = path.rsplit_once("/models").map_or("", |(_, name)| name);
    let body = match name.trim_start_matches('/') {
        "" => json!({"object": "list", "data": MODELS.iter().map(described).collect::<Vec<_>>()}),
        name => {
            let found = find_model(name)?;
            described(&(found.name, found.window))
        }
    };
    Ok(json_response(StatusCode::OK, &body))
}

fn described((name, window): &(&str, u32)) -> Value {
    json!({"id": name, "object": "model", "created": CREATED, "owned_by": "plimsoll",
        "context_length": window})
}

/// The model of that name, with or without its provider's before a slash.
fn find_model(name: &str) -> Result<Model, Refusal> {
    let bare = name.strip_prefix("simulated/").unwrap_or(name);
    let found = MODELS.iter().find(|(name, _)| *name == bare);
    let (name, window) = *found.ok_or_else(|| Refusal {
        status: StatusCode::NOT_FOUND,
        message: format!("The model `{name}` does not exist or you do not have access to it."),
        param: None,
        code: Some("model_not_found"),
    })?;
    Ok(Model { name, window })
}

fn complete(request: &Request<Bytes>) -> Result<Response<render::Body>, Refusal> {
    let body = parse_json(request.body())?;
    let chat = ChatRequest::parse(&body)?;
    // SECURITY: a cache shared between keys would tell one client what another has sent.
    let owner = request.headers().get(header::AUTHORIZATION);
    let owner = xxh3_64(owner.map_or(b"", HeaderValue::as_bytes));
    let seed = xxh3_64(chat.model.name.as_bytes());
    let prompt = Prompt::count(seed, &chat.schemas, chat.messages);
    check_window(&chat, &prompt)?;
    let replies = reply::make_replies(&chat, &prompt);
    let id = xxh3_64_with_seed(request.body(), prompt.hash);
    let envelope = Envelope {
        id: format!("chatcmpl-{id:016x}"),
        request: &chat,
        prompt_tokens: prompt.tokens(),
        cached_tokens: prompt.read_cache(owner),
    };
    Ok(match chat.stream {
        true => render::write_events(&envelope, &replies),
        false => render::write_whole(&envelope, &replies),
    })
}

fn parse_json(body: &[u8]) -> Result<Value, Refusal> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let parsed = serde_json::from_slice(body);
    // JSON may hold half a surrogate pair, which no `String` can.
    let parsed = parsed.or_else(|_| serde_json::from_slice(&replace_surrogates(body)));
    parsed.map_err(|_| Refusal::plain(StatusCode::BAD_REQUEST, NOT_JSON))
}

/// The same text with every escaped surrogate made one of U+FFFD.
fn replace_surrogates(body: &[u8]) -> Vec<u8> {
    let mut replaced = body.to_vec();
    let mut at = 0;
    while let Some(escape) = replaced.get_mut(at..) {
        at += match escape {
            [
                b'\\',
                b'u',
                a @ (b'd' | b'D'),
                b @ (b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F'),
                c,
                d,
                ..,
            ] => {
                [*a, *b, *c, *d] = *b"fffd";
                6
            }
            [b'\\', ..] => 2,
            _ => 1,
        };
        if at >= body.len() {
            break;
        }
    }
    replaced
}

/// Refuses what does not fit the window, in the sentence that every client looks for.
fn check_window(request: &ChatRequest<'_>, prompt: &Prompt) -> Result<(), Refusal> {
    let window = request.model.window;
    let (messages, functions) = (prompt.message_tokens, prompt.function_tokens);
    let completion = request.limit.unwrap_or(0);
    let total = u64::from(prompt.tokens()) + u64::from(completion);
    if total <= u64::from(window) {
        return Ok(());
    }
    let verb = match request.limit {
        None => "your messages resulted in",
        Some(_) => "you requested",
    };
    let (parts, reduce) = match (functions > 0, request.limit.is_some()) {
        (false, false) => (String::new(), "messages"),
        (true, false) => (
            format!(" ({messages} in the messages, {functions} in the functions)"),
            "messages or functions",
        ),
        (false, true) => (
            format!(" ({messages} in the messages, {completion} in the completion)"),
            "messages or completion",
        ),
        (true, true) => (
            format!(
                " ({messages} in the messages, {functions} in the functions, and {completion} in \
                 the completion)"
            ),
            "messages, functions, or completion",
        ),
    };
    Err(Refusal::of(
        "messages",
        Some("context_length_exceeded"),
        format!(
            "This model's maximum context length is {window} tokens. However, {verb} {total} \
             tokens{parts}. Please reduce the length of the {reduce}."
        ),
    ))
}

#[cfg(test)]
mod tests;
