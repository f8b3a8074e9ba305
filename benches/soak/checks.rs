//! Checks of every answer, and of every request that reaches a provider.

use serde_json::Value;

use super::{
    conversation::{ClientConversation, MARK, MARK_LENGTH, SendOptions, provider_text},
    faults::ProviderFault,
    run_state::RunState,
};
use crate::support::{ClientAnswer, agent};

/// The result of a checked answer.
pub(crate) enum CheckedAnswer {
    /// A good answer, with the message that the client echoes.
    Good(Value),
    /// An allowed failure, by kind.
    Failed(String),
}

/// Texts of other conversations in a request.
pub(crate) fn find_foreign_text(body: &[u8], own: &str) -> Option<String> {
    memchr::memmem::find_iter(body, MARK.as_bytes()).find_map(|at| {
        let found = body.get(at..at + MARK_LENGTH)?;
        let digits = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'.';
        // A marker that the guard cut through belongs to no conversation.
        let complete = found[MARK.len()..].iter().all(digits);
        (complete && found != own.as_bytes())
            .then(|| format!("a text of {}", String::from_utf8_lossy(found)))
    })
}

/// A stream without its usage chunk and the proxy's comments.
pub(crate) fn without_usage(events: &str) -> String {
    filter_events(events, |event| !event.contains("\"choices\":[],"))
}

fn without_comments(events: &str) -> String {
    filter_events(events, |event| !event.starts_with(": plimsoll"))
}

fn filter_events(events: &str, wanted: impl Fn(&str) -> bool) -> String {
    events
        .split_inclusive("\n\n")
        .filter(|event| wanted(event))
        .collect()
}

pub(crate) fn digest_body(seed: u64, bytes: &[u8]) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed))
}

/// Compares an answer with what the provider sent.
///
/// # Errors
/// If a byte differs, or no such answer is allowed.
pub(crate) fn check_answer(
    world: &RunState,
    talk: &ClientConversation,
    how: SendOptions,
    answer: ClientAnswer,
) -> Result<(CheckedAnswer, Option<agent::AgentGeneration>), String> {
    let header = |name: &str| {
        let value = answer.headers.get(name).and_then(|it| it.to_str().ok());
        value.map(str::to_owned)
    };
    let fault = header("x-soak-fault");
    if answer.status != 200 {
        let kind = classify_refusal(&answer, fault)?;
        return Ok((CheckedAnswer::Failed(kind), None));
    }
    let body = if answer.whole && fault.is_none() {
        String::from_utf8(answer.body.to_vec()).map_err(|error| error.to_string())?
    } else {
        // It may be cut within a character.
        String::from_utf8_lossy(&answer.body).into_owned()
    };
    let (digest, known) = (header("x-soak-digest"), header("x-soak-which").is_some());
    if !answer.whole {
        // The client sees no head of a later tool round.
        let rounds = digest.as_deref() == Some("ours");
        if !how.streams || (fault.is_none() && known && !rounds) {
            return Err(format!("broken off for no reason: {}", text_end(&body)));
        }
        if !body.contains("\"error\"") {
            return Err(format!("broken off without a word: {}", text_end(&body)));
        }
        check_text_origin(world, talk, &stream_text(&body), true)?;
        return Ok((CheckedAnswer::Failed("broken".to_owned()), None));
    }
    if let Some(fault) = &fault {
        if how.streams && ProviderFault::breaks_stream(fault) {
            return Err(format!(
                "half an answer for a whole one: {}",
                text_end(&body)
            ));
        }
        if how.streams {
            check_text_origin(world, talk, &stream_text(&body), true)?;
        }
        return Ok((CheckedAnswer::Failed(format!("200 {fault}")), None));
    }
    let unseen = digest.as_deref() == Some("ours") || !known;
    if how.streams && unseen && ProviderFault::shows_in(&body) {
        check_text_origin(world, talk, &stream_text(&body), true)?;
        return Ok((
            CheckedAnswer::Failed("200 with a fault of a later head".to_owned()),
            None,
        ));
    }
    // Where a tool round failed and the request was sent without it, its usage is added to the
    // answer's.
    let rounds = header("x-plimsoll-billed-tokens").is_some() || body.contains(" billed-tokens=");
    if let Some(wanted) = digest.filter(|it| it != "ours" && !rounds) {
        let told = if how.streams {
            without_comments(&body)
        } else {
            body
        };
        // The answer names the model as the client does; the provider calls each of them "m".
        let named = format!("\"model\":\"{}\"", talk.model);
        let told = told.replace(&named, "\"model\":\"m\"");
        if digest_body(world.seed, told.as_bytes()) != wanted {
            let differs = world.describe_difference(&wanted, &told);
            return Err(format!("a byte is wrong: {differs}"));
        }
    }
    let generation = agent::assemble_answer(answer, how.streams);
    agent::assert_nothing_of_proxy(&generation);
    check_text_origin(world, talk, generation.text(), false)?;
    for call in generation.message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let arguments = call["function"]["arguments"].as_str().unwrap_or("");
        let read: Value = serde_json::from_str(arguments)
            .map_err(|error| format!("arguments {arguments:?}: {error}"))?;
        let block = read["block"].as_str().unwrap_or("");
        if block.is_empty() {
            return Err(format!("a call that nobody made: {call}"));
        }
        check_text_origin(world, talk, block, false)?;
    }
    Ok((
        CheckedAnswer::Good(generation.message.clone()),
        Some(generation),
    ))
}

/// The kind of an allowed error.
fn classify_refusal(answer: &ClientAnswer, fault: Option<String>) -> Result<String, String> {
    let (status, text) = (answer.status.as_u16(), answer.text());
    if let Some(code) = answer.headers.get("x-plimsoll-error") {
        let code = code.to_str().unwrap_or("");
        let known = [
            "provider_unreachable",
            "provider_bad_answer",
            "provider_timeout",
            "context_length_exceeded",
            "overloaded",
        ];
        return if known.contains(&code) {
            Ok(code.to_owned())
        } else {
            Err(format!("{status} {code}: {text}"))
        };
    }
    if fault.is_some() || text.contains("context_length_exceeded") {
        return Ok(format!("theirs {status}"));
    }
    Err(format!("an error of nobody's: {status} {text}"))
}

/// Compares a text with the provider's for this turn of this conversation. `cut`: it may end
/// anywhere.
fn check_text_origin(
    world: &RunState,
    talk: &ClientConversation,
    text: &str,
    cut: bool,
) -> Result<(), String> {
    let mut rest = text;
    while !rest.trim().is_empty() {
        let numbers = rest.strip_prefix('[').and_then(|it| it.split_once("] "));
        let numbers = numbers.and_then(|(numbers, _)| numbers.split_once(':'));
        let read = numbers.and_then(|(number, length)| {
            Some((u64::from_str_radix(number, 16).ok()?, length.parse().ok()?))
        });
        let Some((number, length)) = read else {
            let begun = rest.trim_start().starts_with("<continuation_package>");
            return if cut && (rest.len() < 40 || begun) {
                Ok(())
            } else {
                Err(format!("nobody said {rest:?}"))
            };
        };
        let whole = provider_text(world.seed, &talk.marker, talk.turn, number, length);
        match rest.strip_prefix(&whole) {
            Some(after) => rest = after,
            None if cut && whole.starts_with(rest) => return Ok(()),
            None => return Err(format!("{whole:?} was said, and {rest:?} came")),
        }
    }
    Ok(())
}

/// The text in the events of a stream that may be incomplete.
fn stream_text(events: &str) -> String {
    let lines = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let chunks = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    chunks
        .filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned()))
        .collect()
}

fn text_end(text: &str) -> &str {
    let mut from = text.len().saturating_sub(600);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
