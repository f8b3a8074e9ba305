use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, pending},
    stream::iter,
};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::{FooterOptions, StreamOptions};
use crate::{
    relay::{
        self, AnswerDriver, AnswerFilter, Format, ModelAnswer, PrecedingText, ResponseSummary,
        StreamFooter,
    },
    wire::{Body, whole_body},
};

mod messages;
mod responses;

const STREAM: &str = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

const fn footer(trailers: &'static [&'static str]) -> FooterOptions {
    FooterOptions {
        trailers,
        max_wait: Duration::from_millis(50),
    }
}

fn options(footer: FooterOptions) -> StreamOptions {
    StreamOptions {
        footer,
        ..StreamOptions::default()
    }
}

/// Drives a stream of one answer.
struct Ending {
    options: StreamOptions,
    on_end: Box<dyn FnOnce(ResponseSummary) -> BoxFuture<'static, StreamFooter> + Send>,
}

#[async_trait]
impl AnswerDriver for Ending {
    async fn end_answer(
        self: Box<Self>,
        summary: ResponseSummary,
        _: ModelAnswer,
        _: PrecedingText,
    ) -> StreamFooter {
        (self.on_end)(summary).await
    }
}

fn stream_answer(answer: Response<Body>, ending: Ending) -> Response<Body> {
    let options = ending.options.clone();
    relay::stream_answer(answer, Some(Box::new(ending)), options)
}

/// Relays without anything at the end.
fn stream_unended(format: Format, answer: Response<Body>) -> Response<Body> {
    let options = StreamOptions {
        format,
        ..StreamOptions::default()
    };
    relay::stream_answer(answer, None, options)
}

async fn end(trailers: &'static [&'static str]) -> (String, Option<HeaderMap>) {
    let on_end = |summary: ResponseSummary| {
        assert!(summary.is_complete());
        let mut closing = StreamFooter {
            comment: Some(": end\n\n".into()),
            ..StreamFooter::default()
        };
        closing.trailers.insert("x-end", "1".parse().unwrap());
        async { closing }.boxed()
    };
    let ending = Ending {
        options: options(footer(trailers)),
        on_end: Box::new(on_end),
    };
    let answer = stream_answer(Response::new(whole_body(STREAM)), ending);
    assert_eq!(
        answer.headers().contains_key("trailer"),
        !trailers.is_empty()
    );
    let body = answer.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned();
    let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
    (text, trailers)
}

#[tokio::test]
async fn the_footer_comes_before_done_and_in_trailers() {
    let (text, trailers) = end(&["x-end"]).await;
    assert_eq!(
        text,
        STREAM.replace("data: [DONE]", ": end\n\ndata: [DONE]")
    );
    assert_eq!(trailers.unwrap()["x-end"], "1");
    let (_, trailers) = end(&[]).await;
    assert_eq!(trailers, None);
}

#[tokio::test]
async fn a_slow_store_does_not_hold_the_answer() {
    let ending = Ending {
        options: options(footer(&[])),
        on_end: Box::new(|_| pending().boxed()),
    };
    let answer = stream_answer(Response::new(whole_body(STREAM)), ending);
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), STREAM);
}

const PROXY_CALL: &str = "data: {\"id\":\"a\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"o\",\"function\":{\"name\":\"clear_mind\",\"arguments\":\"{}\"}}]}}]}\n\ndata: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

/// What the driver was called with.
#[derive(Default)]
struct DriverCalls {
    turns: Vec<ModelAnswer>,
    end: Option<(ResponseSummary, ModelAnswer, PrecedingText)>,
}

/// Gives these answers, then none.
struct Scripted {
    answers: Vec<Response<Body>>,
    calls: Arc<Mutex<DriverCalls>>,
    /// For each request in turn; `None` for all others.
    left_out: Vec<u32>,
}

#[async_trait]
impl AnswerDriver for Scripted {
    async fn next_answer(&mut self, turn: ModelAnswer) -> Option<Response<Body>> {
        self.calls.lock().unwrap().turns.push(turn);
        if !self.left_out.is_empty() {
            self.left_out.remove(0);
        }
        (!self.answers.is_empty()).then(|| self.answers.remove(0))
    }

    fn left_out_tokens(&self) -> Option<u32> {
        self.left_out.first().copied()
    }

    async fn end_answer(
        self: Box<Self>,
        summary: ResponseSummary,
        last: ModelAnswer,
        preceding: PrecedingText,
    ) -> StreamFooter {
        let earlier = self
            .calls
            .lock()
            .unwrap()
            .end
            .replace((summary, last, preceding));
        assert!(earlier.is_none(), "the end comes once");
        StreamFooter {
            comment: Some(": end\n\n".into()),
            ..StreamFooter::default()
        }
    }
}

fn events(body: impl Into<Bytes>) -> Response<Body> {
    let answer = Response::builder().header("content-type", "text/event-stream");
    answer.body(whole_body(body)).unwrap()
}

fn filter(
    first: Response<Body>,
    answers: Vec<Response<Body>>,
) -> (Response<Body>, Arc<Mutex<DriverCalls>>) {
    filter_as(Format::Chat, first, answers, Vec::new())
}

fn filter_as(
    format: Format,
    first: Response<Body>,
    answers: Vec<Response<Body>>,
    left_out: Vec<u32>,
) -> (Response<Body>, Arc<Mutex<DriverCalls>>) {
    const FILTER: AnswerFilter = AnswerFilter {
        tools: &["clear_mind"],
        package: true,
    };
    let calls = Arc::new(Mutex::new(DriverCalls::default()));
    let driver = Scripted {
        answers,
        calls: Arc::clone(&calls),
        left_out,
    };
    let options = StreamOptions {
        format,
        filter: FILTER,
        left_out: driver.left_out_tokens(),
        ..options(footer(&[]))
    };
    let answer = relay::stream_answer(first, Some(Box::new(driver)), options);
    (answer, calls)
}

/// All bytes up to the end, and whether that was abnormal.
async fn read(answer: Response<Body>) -> (String, bool) {
    let mut body = answer.into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => text.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => return (String::from_utf8(text).unwrap(), true),
        }
    }
    (String::from_utf8(text).unwrap(), false)
}

#[tokio::test]
async fn an_answer_for_the_proxy_only_is_continued() {
    let first = format!("{PROXY_CALL}{USAGE}");
    let (answer, calls) = filter(events(first), vec![events(PROXY_CALL), events(STREAM)]);
    let (text, broke) = read(answer).await;
    assert_eq!(
        text,
        STREAM.replace("data: [DONE]", ": end\n\ndata: [DONE]")
    );
    assert!(!broke);
    let calls = calls.lock().unwrap();
    assert_eq!(calls.turns.len(), 2);
    assert_eq!(calls.turns[0].usage.unwrap().prompt_tokens, 7);
    let (summary, last, preceding) = calls.end.as_ref().unwrap();
    assert!(summary.is_complete() && summary.usage.is_none());
    assert_eq!(
        (last.client_calls, preceding),
        (0, &PrecedingText::default())
    );
}

#[tokio::test]
async fn without_a_next_answer_the_stream_breaks() {
    let mut refused = events("{}");
    *refused.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let json = Response::new(whole_body("{\"choices\":[]}"));
    for answers in [vec![], vec![refused], vec![json], vec![events("")]] {
        let (answer, calls) = filter(events(PROXY_CALL), answers);
        let (text, broke) = read(answer).await;
        assert!(broke && text.contains("provider_bad_answer"), "{text}");
        assert!(!text.contains("clear_mind"));
        let calls = calls.lock().unwrap();
        assert_eq!(calls.turns.len(), 1);
        let (summary, last, _) = calls.end.as_ref().unwrap();
        assert!(!summary.is_complete());
        assert_eq!(*last, ModelAnswer::default());
    }
}

/// A body of these pieces that breaks.
fn broken(pieces: &[&'static str]) -> Response<Body> {
    let frames = pieces
        .iter()
        .map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
    let frames: Vec<io::Result<_>> = frames.chain([Err(io::Error::other("cut"))]).collect();
    let mut answer = events("");
    *answer.body_mut() = StreamBody::new(iter(frames)).boxed_unsync();
    answer
}

#[tokio::test]
async fn a_broken_answer_ends_abnormally() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"<co\"}}]}\n\n";
    let (answer, calls) = filter(broken(&[text, "data: {\"choi"]), vec![]);
    let (received, broke) = read(answer).await;
    assert!(broke && received.starts_with(text) && received.contains("provider_bad_answer"));
    assert!(!received.contains("choi\n"), "half an event goes nowhere");
    assert!(calls.lock().unwrap().end.is_some());
    // The calls are known, so a break after them does not matter.
    let (answer, _) = filter(broken(&[PROXY_CALL]), vec![events(STREAM)]);
    assert!(!read(answer).await.1);
}

#[tokio::test]
async fn every_chunk_passes_at_once() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"a <b\"}}]}\n\n";
    for first in [
        text,
        ": ping\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"get\",\"arguments\":\"\"}}]}}]}\n\n",
    ] {
        let one = futures_util::stream::once(async move {
            Ok(Frame::data(Bytes::from_static(first.as_bytes())))
        });
        let stalled = futures_util::StreamExt::chain(one, futures_util::stream::pending());
        let mut source = events("");
        *source.body_mut() = StreamBody::new(stalled).boxed_unsync();
        let (answer, _) = filter(source, vec![]);
        let mut body = answer.into_body();
        let mut received = Vec::new();
        while let Some(frame) = body.frame().now_or_never() {
            received.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(received, first.as_bytes());
    }
}

#[tokio::test]
async fn a_stream_that_stays_open_does_not_delay_the_next_turn() {
    let mut source = events("");
    let one = futures_util::stream::once(async {
        Ok(Frame::data(Bytes::from_static(PROXY_CALL.as_bytes())))
    });
    let stalled = futures_util::StreamExt::chain(one, futures_util::stream::pending());
    *source.body_mut() = StreamBody::new(stalled).boxed_unsync();
    let (answer, _) = filter(source, vec![events(STREAM)]);
    assert!(!read(answer).await.1);
}

const TEXT_AND_USAGE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"total_tokens\":10}}\n\n";

/// Head and body of a stream as the client gets it, and the prompt tokens of its summary.
async fn relay_with_left_out(
    answer: Response<Body>,
    left_out: Option<u32>,
    strip_usage: bool,
) -> (Response<()>, String, Option<u32>) {
    let reported = Arc::new(Mutex::new(None));
    let report = Arc::clone(&reported);
    let ending = Ending {
        options: StreamOptions {
            strip_usage,
            left_out,
            ..options(footer(&[]))
        },
        on_end: Box::new(move |summary| {
            *report.lock().unwrap() = summary.usage.map(|usage| usage.prompt_tokens);
            async { StreamFooter::default() }.boxed()
        }),
    };
    let (head, body) = stream_answer(answer, ending).into_parts();
    let (text, broke) = read(Response::new(body)).await;
    assert!(!broke);
    let reported = *reported.lock().unwrap();
    (Response::from_parts(head, ()), text, reported)
}

#[tokio::test]
async fn the_client_reads_added_prompt_tokens_and_the_summary_does_not() {
    let all = format!("{TEXT_AND_USAGE}{USAGE}");
    let grown = all
        .replace("\"prompt_tokens\":9", "\"prompt_tokens\":109")
        .replace("\"total_tokens\":10", "\"total_tokens\":110")
        .replace("\"prompt_tokens\":7", "\"prompt_tokens\":107");
    for (left_out, expected) in [(None, &all), (Some(0), &all), (Some(100), &grown)] {
        let (_, text, summary) = relay_with_left_out(events(all.clone()), left_out, false).await;
        assert_eq!((&text, summary), (expected, Some(7)));
        let (_, text, summary) = relay_with_left_out(events(all.clone()), left_out, true).await;
        let chunk = expected.len() - USAGE.len() + "data: [DONE]\n\n".len();
        assert!(
            text.len() <= chunk && expected.starts_with(text.split("data: [DONE]").next().unwrap())
        );
        assert_eq!(summary, Some(7));
    }
    // A stream that ends in the middle of a number stays as it is.
    let (_, text, _) = relay_with_left_out(
        events(format!(
            "{TEXT_AND_USAGE}data: [DONE]\n\ndata: {{\"usage\":{{\"prompt_tokens\":12"
        )),
        Some(1),
        false,
    )
    .await;
    assert!(text.ends_with("\"prompt_tokens\":12"), "{text}");
}

#[tokio::test]
async fn a_compressed_stream_is_decompressed_if_its_usage_changes() {
    let compressed = |encoding: &'static str| {
        let bytes = zstd::encode_all(format!("{TEXT_AND_USAGE}{USAGE}").as_bytes(), 3).unwrap();
        let mut answer = events(bytes);
        let encoding = encoding.parse().unwrap();
        answer.headers_mut().insert("content-encoding", encoding);
        answer
    };
    let (head, text, summary) = relay_with_left_out(compressed("zstd"), Some(100), false).await;
    assert!(!head.headers().contains_key("content-encoding"));
    assert!(text.contains("\"prompt_tokens\":107"), "{text}");
    assert_eq!(summary, Some(7));
    for (encoding, left_out) in [("zstd", None), ("zstd", Some(0)), ("odd", Some(100))] {
        let options = StreamOptions {
            left_out,
            ..StreamOptions::default()
        };
        let answer = relay::stream_answer(compressed(encoding), None, options);
        assert_eq!(answer.headers()["content-encoding"], encoding);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let expected = compressed(encoding).into_body().collect().await.unwrap();
        assert_eq!(body, expected.to_bytes());
    }
}

#[tokio::test]
async fn each_turn_adds_the_tokens_left_out_of_its_request() {
    for (left_out, prompt, total) in [
        (vec![], 9, 12),
        (vec![100], 9, 12),
        (vec![100, 200], 209, 212),
        (vec![0, 200], 209, 212),
    ] {
        let first = format!("{PROXY_CALL}{USAGE}");
        let (answer, calls) = filter_as(
            Format::Chat,
            events(first),
            vec![events(TEXT_AND_USAGE)],
            left_out,
        );
        let (text, _) = read(answer).await;
        let usage = format!(
            "{{\"prompt_tokens\":{prompt},\"completion_tokens\":3,\"total_tokens\":{total}}}"
        );
        assert!(text.contains(&usage), "{text}");
        let calls = calls.lock().unwrap();
        let summary = calls.end.as_ref().unwrap().0.usage.unwrap();
        assert_eq!(
            (summary.prompt_tokens, summary.completion_tokens),
            (9, Some(3))
        );
    }
}

#[tokio::test]
async fn compressed_answers_are_decompressed_or_untouched() {
    let compressed = |text: &str| {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(text.as_bytes()).unwrap();
        let mut answer = events(writer.finish().unwrap());
        answer
            .headers_mut()
            .insert("content-encoding", "gzip".parse().unwrap());
        answer
    };
    let (answer, _) = filter(compressed(PROXY_CALL), vec![compressed(STREAM)]);
    assert!(!answer.headers().contains_key("content-encoding"));
    let (text, _) = read(answer).await;
    assert_eq!(
        text,
        STREAM.replace("data: [DONE]", ": end\n\ndata: [DONE]")
    );

    let mut strange = events(PROXY_CALL);
    strange
        .headers_mut()
        .insert("content-encoding", "compress".parse().unwrap());
    let (answer, calls) = filter(strange, vec![]);
    assert!(answer.headers().contains_key("content-encoding"));
    assert_eq!(read(answer).await, (PROXY_CALL.to_owned(), false));
    assert!(calls.lock().unwrap().end.as_ref().unwrap().0.unreadable);
}
