//! Usage in any bytes that are read as an answer: every reported number is in the answer.

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Response, StatusCode};
use plimsoll::{
    format::{AnswerEvent, chat::answer, usage::Usage},
    relay::{self, BufferedAnswer, Format},
    wire::{self, sse::SseSplitter},
};
use serde_json::Value;

pub(super) fn check(data: &[u8]) {
    // Spans are found in invalid JSON too, which is relayed unchanged.
    if let Ok(json) = serde_json::from_slice(data)
        && let Some(usage) = read(data)
    {
        assert_numbers_in(usage, &json);
        assert_eq!(Usage::latest_report(Some(usage), usage), usage);
    }
    check_whole(data);
    check_added_tokens(data);
    let mut splitter = SseSplitter::new(1 << 16);
    splitter.push(Bytes::copy_from_slice(data));
    while let Some(event) = splitter.next_event() {
        if let Some(message) = event.message {
            check_whole(&message.data);
        }
    }
    let _ = answer::read_answer(data);
}

/// The input as the value of `usage`.
fn read(data: &[u8]) -> Option<Usage> {
    let answer = answer::read_answer(&[b"{\"usage\":", data, b"}"].concat()).ok()?;
    answer.events.iter().find_map(|event| match event {
        AnswerEvent::Usage(report) => report.usage,
        _ => None,
    })
}

/// Each number is one of the `usage` objects that serde_json finds.
fn assert_numbers_in(usage: Usage, json: &Value) {
    let numbers = [
        Some(usage.prompt_tokens),
        usage.completion_tokens,
        usage.cached_tokens,
    ];
    for number in numbers.into_iter().flatten() {
        assert!(
            contains_number(json, f64::from(number)),
            "{number} is nowhere in {json}"
        );
    }
}

fn contains_number(json: &Value, wanted: f64) -> bool {
    match json {
        Value::Number(number) => number.as_f64() == Some(wanted),
        Value::Array(items) => items.iter().any(|item| contains_number(item, wanted)),
        Value::Object(members) => members
            .values()
            .any(|member| contains_number(member, wanted)),
        _ => false,
    }
}

/// A buffered answer is relayed unchanged, and what is read of it is in it.
fn check_whole(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let read = relay::buffer_answer(
        Format::Chat,
        Response::new(wire::whole_body(body)),
        "up",
        |_| true,
    );
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
            Ok(json) => assert_numbers_in(usage, &json),
            Err(error) => assert!(is_lax(&error), "{usage:?} of what is no JSON: {error}"),
        }
    }
}

/// Input that the reader of some members accepts and a full parser refuses: numbers out of range,
/// invalid UTF-8, half a surrogate pair, deep nesting.
fn is_lax(error: &serde_json::Error) -> bool {
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

/// The omitted tokens are added to two numbers, and nothing else changes.
fn check_added_tokens(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let mut headers = HeaderMap::new();
    let same = relay::edit_whole_answer(Format::Chat, &mut headers, body.clone(), None, None);
    assert_eq!(same.as_ptr(), body.as_ptr());
    let edited =
        relay::edit_whole_answer(Format::Chat, &mut headers, body.clone(), Some(1_000), None);
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
