//! What the proxy writes is read as what it means.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{AnswerEvents, EventKind, ResponsesAnswer, is_keepalive, read_answer, read_event};
use crate::{
    format::{
        FinishKind, SentEvents,
        answer::usage::Usage,
        errors::error_body::ErrorBody,
        responses::answer::{empty_answer, error_event},
    },
    wire::sse::{SseMessage, SseSplitter},
};

/// What clients read of a text that the proxy wrote as a stream.
fn written_events(stream: &Bytes) -> Vec<(SseMessage, ResponsesAnswer)> {
    let mut splitter = SseSplitter::new(1 << 20);
    splitter.push(stream.clone());
    let messages = std::iter::from_fn(|| splitter.next_event());
    let messages = messages.map(|event| event.message.unwrap());
    messages
        .map(|message| {
            let answer = read_event(&message);
            (message, answer)
        })
        .collect()
}

#[test]
fn what_the_proxy_writes_is_read_back() {
    let error = ErrorBody {
        message: "m\n\"".into(),
        code: Some("context_length_exceeded".into()),
        ..ErrorBody::default()
    };
    let events = written_events(&error_event(&error, &SentEvents::default()));
    let [(message, answer)] = &events[..] else {
        panic!("one event");
    };
    assert!(answer.is_end() && answer.has_error() && !is_keepalive(message));
    let parsed = ErrorBody::parse_body(&message.data).unwrap();
    assert_eq!((parsed.message, parsed.code), (error.message, error.code));
    let usage = Usage {
        prompt_tokens: 30,
        completion_tokens: Some(5),
        cached_tokens: Some(20),
        cache_written_tokens: Some(4),
    };
    let events = written_events(&empty_answer(true, "m", Some(usage)));
    let kinds: Vec<_> = events.iter().map(|(_, answer)| answer.kind).collect();
    assert_eq!(kinds, [EventKind::Begin, EventKind::End]);
    let whole = empty_answer(false, "m", Some(usage));
    let whole = read_answer(&whole).unwrap();
    assert!(whole.has_message());
    for answer in [&events[1].1, &whole] {
        let finish = answer.find_finish().unwrap();
        assert_eq!(
            (finish.kind, answer.has_error()),
            (FinishKind::Other, false)
        );
        assert_eq!(answer.iter_reports().next().unwrap().usage, Some(usage));
    }
    for (message, _) in events {
        let data: Value = serde_json::from_slice(&message.data).unwrap();
        assert_eq!(data["type"].as_str().unwrap().as_bytes(), message.name);
        assert_eq!(data["response"]["output"], json!([]));
    }
}
