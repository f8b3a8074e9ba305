//! A stream through the relay: the client gets the same bytes however the input is cut, and the
//! provider's bytes but for the proxy's own.

use std::{cell::RefCell, convert::Infallible, sync::mpsc};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use http::{Response, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use plimsoll::{
    relay::{
        self, AnswerDriver, AnswerFilter, Format, ModelAnswer, PrecedingText, ResponseSummary,
        StreamFooter, StreamOptions,
    },
    wire::Body,
};
use tokio::runtime::{Builder, Runtime};

use super::pieces;

thread_local! {
    /// A runtime with a paused clock, which advances only while every task waits.
    static RUNTIME: RefCell<Runtime> = RefCell::new(
        Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
    );
}

const TOOLS: &[&str] = &["add_reminder", "clear_mind"];
const NEXT: &[u8] = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"z\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// What the relay sent, and what it read.
#[derive(Debug, PartialEq)]
struct Came {
    bytes: Vec<u8>,
    whole: bool,
    heard: Option<ResponseSummary>,
    spoken: Vec<ModelAnswer>,
}

pub(super) fn check(stream: &[u8], cut: u8, way: u8) {
    let strip = way & 1 == 1;
    let left_out = (way & 2 == 2).then_some(1_000);
    let sifts = way & 4 == 4;
    let format = match way & 8 {
        0 => Format::Chat,
        _ => Format::Messages,
    };
    let run = |pieces: &[&[u8]]| {
        RUNTIME.with_borrow(|it| it.block_on(relay_bytes(pieces, format, strip, left_out, sifts)))
    };
    let mut whole = run(&[stream]);
    let mut cut = run(&pieces(stream, cut));
    for came in [&mut whole, &mut cut] {
        // Bytes behind the final event are read only where they arrive together with it.
        if came.heard.take_if(|heard| heard.done).is_some() {
            came.spoken.clear();
        }
    }
    assert_eq!(cut, whole, "a cut changes what goes out");
    if !strip && left_out.is_none() && !sifts {
        assert!(whole.bytes.starts_with(stream), "a byte of it changed");
        assert!(!whole.whole || whole.bytes == stream);
    }
}

async fn relay_bytes(
    pieces: &[&[u8]],
    format: Format,
    strip_usage: bool,
    left_out: Option<u32>,
    sifts: bool,
) -> Came {
    let (tell, told) = mpsc::channel();
    let mut options = StreamOptions {
        format,
        strip_usage,
        left_out,
        ..StreamOptions::default()
    };
    let answer = answer(pieces);
    if sifts {
        options.filter = AnswerFilter {
            tools: TOOLS,
            package: true,
        };
    }
    let turns = Turns {
        tell,
        left: 1,
        left_out,
    };
    let answer = relay::stream_answer(answer, Some(Box::new(turns)), options);
    let mut came = read(answer.into_body()).await;
    for told in told.try_iter() {
        match told {
            Told::Ended(heard) => assert!(came.heard.replace(*heard).is_none(), "it ends once"),
            Told::Round(spoken) if sifts => came.spoken.push(*spoken),
            Told::Round(_) => {}
        }
    }
    came
}

fn answer(pieces: &[&[u8]]) -> Response<Body> {
    let frames: Vec<_> = pieces
        .iter()
        .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
        .collect();
    let body = StreamBody::new(stream::iter(frames));
    let body = body.map_err(|never: Infallible| match never {});
    Response::builder()
        .header(CONTENT_TYPE, "text/event-stream")
        .body(body.boxed_unsync())
        .expect("a head")
}

async fn read(mut body: Body) -> Came {
    let mut came = Came {
        bytes: Vec::new(),
        whole: true,
        heard: None,
        spoken: Vec::new(),
    };
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => came.bytes.extend_from_slice(&data),
            Ok(Err(_)) => {}
            Err(_) => came.whole = false,
        }
    }
    came
}

enum Told {
    Round(Box<ModelAnswer>),
    Ended(Box<ResponseSummary>),
}

/// Continues once.
struct Turns {
    tell: mpsc::Sender<Told>,
    left: usize,
    left_out: Option<u32>,
}

#[async_trait]
impl AnswerDriver for Turns {
    async fn next_answer(&mut self, spoken: ModelAnswer) -> Option<Response<Body>> {
        let _ = self.tell.send(Told::Round(Box::new(spoken)));
        self.left = self.left.checked_sub(1)?;
        Some(answer(&[NEXT]))
    }

    async fn end_answer(
        self: Box<Self>,
        heard: ResponseSummary,
        last: ModelAnswer,
        _: PrecedingText,
    ) -> StreamFooter {
        let _ = self.tell.send(Told::Round(Box::new(last)));
        let _ = self.tell.send(Told::Ended(Box::new(heard)));
        StreamFooter::default()
    }

    fn left_out_tokens(&self) -> Option<u32> {
        self.left_out
    }
}
