use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, future::pending, stream::iter};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::{Ending, FooterOptions, stream_answer, stream_sifted_answer};
use crate::{
    relay::{
        AnswerFilter, AssistantTurn, PrecedingText, ResponseSummary, StreamFooter, TurnDriver,
    },
    wire::{Body, whole_body},
};

const STREAM: &str = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

const fn foot(trailers: &'static [&'static str]) -> FooterOptions {
    FooterOptions {
        trailers,
        within: Duration::from_millis(50),
    }
}

async fn end(trailers: &'static [&'static str]) -> (String, Option<HeaderMap>) {
    let on_end = |heard: ResponseSummary| {
        assert!(heard.is_complete());
        let mut closing = StreamFooter {
            comment: Some(": end\n\n".into()),
            ..StreamFooter::default()
        };
        closing.trailers.insert("x-end", "1".parse().unwrap());
        async { closing }.boxed()
    };
    let ending = Ending {
        strip_usage: false,
        left_out: None,
        foot: foot(trailers),
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
async fn the_end_speaks_before_done_and_in_trailers() {
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
async fn storing_that_hangs_holds_nobody_up() {
    let ending = Ending {
        strip_usage: false,
        left_out: None,
        foot: foot(&[]),
        on_end: Box::new(|_| pending().boxed()),
    };
    let answer = stream_answer(Response::new(whole_body(STREAM)), ending);
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), STREAM);
}

const OURS: &str = "data: {\"id\":\"a\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"o\",\"function\":{\"name\":\"clear_mind\",\"arguments\":\"{}\"}}]}}]}\n\ndata: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

/// What a round was told.
#[derive(Default)]
struct Told {
    spoken: Vec<AssistantTurn>,
    end: Option<(ResponseSummary, AssistantTurn, PrecedingText)>,
}

/// Gives the answers in their order, then none.
struct Scripted {
    answers: Vec<Response<Body>>,
    told: Arc<Mutex<Told>>,
    /// Of each request, the first one first; of the others none.
    left_out: Vec<u32>,
}

#[async_trait]
impl TurnDriver for Scripted {
    async fn next_turn(&mut self, spoken: AssistantTurn) -> Option<Response<Body>> {
        self.told.lock().unwrap().spoken.push(spoken);
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
        heard: ResponseSummary,
        last: AssistantTurn,
        before: PrecedingText,
    ) -> StreamFooter {
        let told = self.told.lock().unwrap().end.replace((heard, last, before));
        assert!(told.is_none(), "the end comes once");
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

fn sift(first: Response<Body>, answers: Vec<Response<Body>>) -> (Response<Body>, Arc<Mutex<Told>>) {
    sift_received(first, answers, Vec::new())
}

fn sift_received(
    first: Response<Body>,
    answers: Vec<Response<Body>>,
    left_out: Vec<u32>,
) -> (Response<Body>, Arc<Mutex<Told>>) {
    const SIFTING: AnswerFilter = AnswerFilter {
        tools: &["clear_mind"],
        package: true,
    };
    let told = Arc::new(Mutex::new(Told::default()));
    let rounds = Scripted {
        answers,
        told: Arc::clone(&told),
        left_out,
    };
    (
        stream_sifted_answer(first, SIFTING, Box::new(rounds), false, foot(&[])),
        told,
    )
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
async fn an_answer_for_us_alone_is_gone_on_with() {
    let first = format!("{OURS}{USAGE}");
    let (answer, told) = sift(events(first), vec![events(OURS), events(STREAM)]);
    let (text, broke) = read(answer).await;
    assert_eq!(
        text,
        STREAM.replace("data: [DONE]", ": end\n\ndata: [DONE]")
    );
    assert!(!broke);
    let told = told.lock().unwrap();
    assert_eq!(told.spoken.len(), 2);
    assert_eq!(told.spoken[0].usage.unwrap().prompt_tokens, 7);
    let (heard, last, before) = told.end.as_ref().unwrap();
    assert!(heard.is_complete() && heard.usage.is_none());
    assert_eq!((last.client_calls, before), (0, &PrecedingText::default()));
}

#[tokio::test]
async fn without_a_next_answer_the_stream_breaks() {
    let mut refused = events("{}");
    *refused.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let json = Response::new(whole_body("{\"choices\":[]}"));
    for answers in [vec![], vec![refused], vec![json], vec![events("")]] {
        let (answer, told) = sift(events(OURS), answers);
        let (text, broke) = read(answer).await;
        assert!(broke && text.contains("provider_bad_answer"), "{text}");
        assert!(!text.contains("clear_mind"));
        let told = told.lock().unwrap();
        assert_eq!(told.spoken.len(), 1);
        let (heard, last, _) = told.end.as_ref().unwrap();
        assert!(!heard.is_complete());
        assert_eq!(*last, AssistantTurn::default());
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
    let (answer, told) = sift(broken(&[text, "data: {\"choi"]), vec![]);
    let (came, broke) = read(answer).await;
    assert!(broke && came.starts_with(text) && came.contains("provider_bad_answer"));
    assert!(!came.contains("choi\n"), "half an event goes nowhere");
    assert!(told.lock().unwrap().end.is_some());
    // The calls are known: what breaks behind them is no loss.
    let (answer, _) = sift(broken(&[OURS]), vec![events(STREAM)]);
    assert!(!read(answer).await.1);
}

#[tokio::test]
async fn nothing_waits_for_the_next_chunk() {
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
        let (answer, _) = sift(source, vec![]);
        let mut body = answer.into_body();
        let mut came = Vec::new();
        while let Some(frame) = body.frame().now_or_never() {
            came.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(came, first.as_bytes());
    }
}

#[tokio::test]
async fn a_provider_that_does_not_hang_up_is_not_waited_for() {
    let mut source = events("");
    let one =
        futures_util::stream::once(async { Ok(Frame::data(Bytes::from_static(OURS.as_bytes()))) });
    let stalled = futures_util::StreamExt::chain(one, futures_util::stream::pending());
    *source.body_mut() = StreamBody::new(stalled).boxed_unsync();
    let (answer, _) = sift(source, vec![events(STREAM)]);
    assert!(!read(answer).await.1);
}

const SAID: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"total_tokens\":10}}\n\n";

/// What the client reads of a stream, and the prompt tokens that were heard.
async fn metered(
    answer: Response<Body>,
    left_out: Option<u32>,
    strip_usage: bool,
) -> (Response<()>, String, Option<u32>) {
    let heard = Arc::new(Mutex::new(None));
    let told = Arc::clone(&heard);
    let ending = Ending {
        strip_usage,
        left_out,
        foot: foot(&[]),
        on_end: Box::new(move |heard| {
            *told.lock().unwrap() = heard.usage.map(|usage| usage.prompt_tokens);
            async { StreamFooter::default() }.boxed()
        }),
    };
    let (head, body) = stream_answer(answer, ending).into_parts();
    let (text, broke) = read(Response::new(body)).await;
    assert!(!broke);
    let heard = *heard.lock().unwrap();
    (Response::from_parts(head, ()), text, heard)
}

#[tokio::test]
async fn the_client_reads_what_it_sent_and_health_what_the_provider_said() {
    let all = format!("{SAID}{USAGE}");
    let grown = all
        .replace("\"prompt_tokens\":9", "\"prompt_tokens\":109")
        .replace("\"total_tokens\":10", "\"total_tokens\":110")
        .replace("\"prompt_tokens\":7", "\"prompt_tokens\":107");
    for (left_out, expected) in [(None, &all), (Some(0), &all), (Some(100), &grown)] {
        let (_, text, heard) = metered(events(all.clone()), left_out, false).await;
        assert_eq!((&text, heard), (expected, Some(7)));
        let (_, text, heard) = metered(events(all.clone()), left_out, true).await;
        let chunk = expected.len() - USAGE.len() + "data: [DONE]\n\n".len();
        assert!(
            text.len() <= chunk && expected.starts_with(text.split("data: [DONE]").next().unwrap())
        );
        assert_eq!(heard, Some(7));
    }
    // What ends in the middle of a number has all of it.
    let (_, text, _) = metered(
        events(format!(
            "{SAID}data: [DONE]\n\ndata: {{\"usage\":{{\"prompt_tokens\":12"
        )),
        Some(1),
        false,
    )
    .await;
    assert!(text.ends_with("\"prompt_tokens\":12"), "{text}");
}

#[tokio::test]
async fn a_compressed_stream_goes_on_unpacked_where_its_numbers_change() {
    let packed = |encoding: &'static str| {
        let bytes = zstd::encode_all(format!("{SAID}{USAGE}").as_bytes(), 3).unwrap();
        let mut answer = events(bytes);
        let encoding = encoding.parse().unwrap();
        answer.headers_mut().insert("content-encoding", encoding);
        answer
    };
    let (head, text, heard) = metered(packed("zstd"), Some(100), false).await;
    assert!(!head.headers().contains_key("content-encoding"));
    assert!(text.contains("\"prompt_tokens\":107"), "{text}");
    assert_eq!(heard, Some(7));
    for (encoding, left_out) in [("zstd", None), ("zstd", Some(0)), ("odd", Some(100))] {
        let ending = Ending {
            left_out,
            ..Ending::without_effects()
        };
        let answer = stream_answer(packed(encoding), ending);
        assert_eq!(answer.headers()["content-encoding"], encoding);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let expected = packed(encoding).into_body().collect().await.unwrap();
        assert_eq!(body, expected.to_bytes());
    }
}

#[tokio::test]
async fn each_round_has_what_was_left_out_of_its_own_request() {
    for (left_out, prompt, total) in [
        (vec![], 9, 12),
        (vec![100], 9, 12),
        (vec![100, 200], 209, 212),
        (vec![0, 200], 209, 212),
    ] {
        let first = format!("{OURS}{USAGE}");
        let (answer, told) = sift_received(events(first), vec![events(SAID)], left_out);
        let (text, _) = read(answer).await;
        let usage = format!(
            "{{\"prompt_tokens\":{prompt},\"completion_tokens\":3,\"total_tokens\":{total}}}"
        );
        assert!(text.contains(&usage), "{text}");
        let told = told.lock().unwrap();
        let heard = told.end.as_ref().unwrap().0.usage.unwrap();
        assert_eq!((heard.prompt_tokens, heard.completion_tokens), (9, Some(3)));
    }
}

#[tokio::test]
async fn compressed_answers_go_on_unpacked_or_untouched() {
    let packed = |text: &str| {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(text.as_bytes()).unwrap();
        let mut answer = events(writer.finish().unwrap());
        answer
            .headers_mut()
            .insert("content-encoding", "gzip".parse().unwrap());
        answer
    };
    let (answer, _) = sift(packed(OURS), vec![packed(STREAM)]);
    assert!(!answer.headers().contains_key("content-encoding"));
    let (text, _) = read(answer).await;
    assert_eq!(
        text,
        STREAM.replace("data: [DONE]", ": end\n\ndata: [DONE]")
    );

    let mut strange = events(OURS);
    strange
        .headers_mut()
        .insert("content-encoding", "compress".parse().unwrap());
    let (answer, told) = sift(strange, vec![]);
    assert!(answer.headers().contains_key("content-encoding"));
    assert_eq!(read(answer).await, (OURS.to_owned(), false));
    assert!(told.lock().unwrap().end.as_ref().unwrap().0.unreadable);
}
