//! Usage in anything that calls itself an answer: a number that is reported stands there.

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Response, StatusCode};
use plimsoll::{
    format::{AnswerEvent, chat::answer, usage::Usage},
    relay::{self, BufferedAnswer},
    wire::{self, sse::SseSplitter},
};
use serde_json::Value;

pub(super) fn check(data: &[u8]) {
    // Spans are found in what is no JSON too: it goes on as it came.
    if let Ok(json) = serde_json::from_slice(data)
        && let Some(usage) = read(data)
    {
        stands(usage, &json);
        assert_eq!(Usage::latest_report(Some(usage), usage), usage);
    }
    whole(data);
    received(data);
    let mut splitter = SseSplitter::new(1 << 16);
    splitter.push(Bytes::copy_from_slice(data));
    while let Some(event) = splitter.next_event() {
        if let Some(message) = event.message {
            whole(&message.data);
        }
    }
    let _ = answer::read_answer(data);
}

/// The data as a `usage`.
fn read(data: &[u8]) -> Option<Usage> {
    let answer = answer::read_answer(&[b"{\"usage\":", data, b"}"].concat()).ok()?;
    answer.events.iter().find_map(|event| match event {
        AnswerEvent::Usage(report) => report.usage,
        _ => None,
    })
}

/// Each number is one of some usage, as serde_json reads it.
fn stands(usage: Usage, json: &Value) {
    let numbers = [
        Some(usage.prompt_tokens),
        usage.completion_tokens,
        usage.cached_tokens,
    ];
    for number in numbers.into_iter().flatten() {
        assert!(
            holds(json, f64::from(number)),
            "{number} is nowhere in {json}"
        );
    }
}

fn holds(json: &Value, wanted: f64) -> bool {
    match json {
        Value::Number(number) => number.as_f64() == Some(wanted),
        Value::Array(items) => items.iter().any(|item| holds(item, wanted)),
        Value::Object(members) => members.values().any(|member| holds(member, wanted)),
        _ => false,
    }
}

/// A whole answer goes on as it came, and its summary agrees with it.
fn whole(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let read = relay::buffer_answer(Response::new(wire::whole_body(body)), "up", |_| true);
    let read = read.now_or_never().expect("all of it is there");
    let Ok(BufferedAnswer::Complete {
        head,
        body,
        summary,
    }) = read
    else {
        let json = serde_json::from_slice::<Value>(data);
        assert!(json.is_err(), "JSON was no answer");
        return;
    };
    assert_eq!((head.status, &body[..]), (StatusCode::OK, data));
    if let Some(usage) = summary.usage {
        let text = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
        match serde_json::from_slice(text) {
            Ok(json) => stands(usage, &json),
            Err(error) => assert!(lax(&error), "{usage:?} of what is no JSON: {error}"),
        }
    }
}

/// What a reading of some members passes over and a tree does not: numbers out of range, texts that are
/// no UTF-8 or have half a surrogate pair, nesting.
fn lax(error: &serde_json::Error) -> bool {
    let said = error.to_string();
    [
        "number out of range",
        "surrogate",
        "escape",
        "unicode",
        "recursion limit",
    ]
    .iter()
    .any(|it| said.contains(it))
}

/// What was left out is added to two numbers, and nothing else changes.
fn received(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let mut headers = HeaderMap::new();
    let same = relay::add_left_out_tokens(&mut headers, body.clone(), None);
    assert_eq!(same.as_ptr(), body.as_ptr());
    let edited = relay::add_left_out_tokens(&mut headers, body.clone(), Some(1_000));
    let digits = |bytes: &[u8]| {
        let kept = bytes.iter().copied().filter(|byte| !byte.is_ascii_digit());
        kept.collect::<Vec<_>>()
    };
    if serde_json::from_slice::<Value>(data).is_ok() {
        assert_eq!(digits(&edited), digits(data), "more than numbers changed");
        let json = serde_json::from_slice::<Value>(&edited);
        assert!(json.is_ok(), "{}", String::from_utf8_lossy(&edited));
    }
}
