use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, future::pending, stream::iter};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::{Closing, Ending, sifted, stream};
use crate::{
    relay::{Before, Heard, Rounds, Sifting, Spoken},
    wire::{Body, whole},
};

const STREAM: &str = "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

async fn end(trailers: &'static [&'static str]) -> (String, Option<HeaderMap>) {
    let on_end = |heard: Heard| {
        assert!(heard.complete());
        let mut closing = Closing {
            comment: Some(": end\n\n".into()),
            ..Closing::default()
        };
        closing.trailers.insert("x-end", "1".parse().unwrap());
        async { closing }.boxed()
    };
    let ending = Ending {
        strip_usage: false,
        trailers,
        on_end: Box::new(on_end),
    };
    let answer = stream(Response::new(whole(STREAM)), ending);
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
        trailers: &[],
        on_end: Box::new(|_| pending().boxed()),
    };
    let answer = stream(Response::new(whole(STREAM)), ending);
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), STREAM);
}

const OURS: &str = "data: {\"id\":\"a\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"o\",\"function\":{\"name\":\"clear_mind\",\"arguments\":\"{}\"}}]}}]}\n\ndata: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

/// What a round was told.
#[derive(Default)]
struct Told {
    spoken: Vec<Spoken>,
    end: Option<(Heard, Spoken, Before)>,
}

/// Gives the answers in their order, then none.
struct Scripted {
    answers: Vec<Response<Body>>,
    told: Arc<Mutex<Told>>,
}

#[async_trait]
impl Rounds for Scripted {
    async fn go_on(&mut self, spoken: Spoken) -> Option<Response<Body>> {
        self.told.lock().unwrap().spoken.push(spoken);
        (!self.answers.is_empty()).then(|| self.answers.remove(0))
    }

    async fn end(self: Box<Self>, heard: Heard, last: Spoken, before: Before) -> Closing {
        let told = self.told.lock().unwrap().end.replace((heard, last, before));
        assert!(told.is_none(), "the end comes once");
        Closing {
            comment: Some(": end\n\n".into()),
            ..Closing::default()
        }
    }
}

fn events(body: impl Into<Bytes>) -> Response<Body> {
    let answer = Response::builder().header("content-type", "text/event-stream");
    answer.body(whole(body)).unwrap()
}

fn sift(first: Response<Body>, answers: Vec<Response<Body>>) -> (Response<Body>, Arc<Mutex<Told>>) {
    const SIFTING: Sifting = Sifting {
        tools: &["clear_mind"],
        package: true,
    };
    let told = Arc::new(Mutex::new(Told::default()));
    let rounds = Scripted {
        answers,
        told: Arc::clone(&told),
    };
    (sifted(first, SIFTING, Box::new(rounds), false, &[]), told)
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
    assert!(heard.complete() && heard.usage.is_none());
    assert_eq!((&*last.finish, before), ("stop", &Before::default()));
}

#[tokio::test]
async fn without_a_next_answer_the_stream_breaks() {
    let mut refused = events("{}");
    *refused.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let json = Response::new(whole("{\"choices\":[]}"));
    for answers in [vec![], vec![refused], vec![json], vec![events("")]] {
        let (answer, told) = sift(events(OURS), answers);
        let (text, broke) = read(answer).await;
        assert!(broke && text.contains("provider_bad_answer"), "{text}");
        assert!(!text.contains("clear_mind"));
        let told = told.lock().unwrap();
        assert_eq!(told.spoken.len(), 1);
        let (heard, last, _) = told.end.as_ref().unwrap();
        assert!(!heard.complete());
        assert_eq!(*last, Spoken::default());
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
    assert!(told.lock().unwrap().end.as_ref().unwrap().0.blind);
}
