use std::io;

use http::{Method, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tracing::Level;

use super::RequestRecord;
use crate::{support::log::ThreadLog, wire::whole_body};

fn logged(run: impl FnOnce()) -> serde_json::Value {
    let log = ThreadLog::begin(Level::INFO);
    run();
    let [line] = log.lines().try_into().expect("one line");
    line
}

#[test]
fn one_line_is_written_when_the_answer_ends() {
    let line = logged(|| {
        let mut record = RequestRecord::new(&Method::POST, "/v1/chat/completions");
        record.set_model("m");
        let mut facts = record.notes.facts();
        facts.provider = Some("up".to_owned());
        facts.attempts = Some(2);
        drop(facts);
        let answer = record.attach_to_response(Response::new(whole_body("hello")));
        let body = answer.into_body().collect();
        futures_util::FutureExt::now_or_never(body)
            .unwrap()
            .unwrap();
    });
    assert_eq!(line["method"], "POST");
    assert_eq!(line["path"], "/v1/chat/completions");
    assert_eq!(line["model"], "m");
    assert_eq!(line["provider"], "up");
    assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &5.into()));
    assert_eq!(line["attempts"], 2);
    assert_eq!(line["outcome"], "done");
    assert!(line["duration_ms"].as_f64() >= line["first_byte_ms"].as_f64());
}

#[test]
fn an_answer_that_ends_with_trailers_is_done() {
    let line = logged(|| {
        let frames: [io::Result<_>; 2] = [
            Ok(Frame::data("hi".into())),
            Ok(Frame::trailers(http::HeaderMap::new())),
        ];
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        let mut answer =
            RequestRecord::new(&Method::GET, "/").attach_to_response(Response::new(body));
        // A server polls no more once the trailers came.
        for _ in 0..2 {
            let frame = answer.body_mut().frame();
            futures_util::FutureExt::now_or_never(frame).unwrap();
        }
    });
    assert_eq!(line["outcome"], "done");
}

#[test]
fn a_client_that_disconnects_early_is_logged() {
    let line = logged(|| drop(RequestRecord::new(&Method::GET, "/v1/models")));
    assert_eq!(line["outcome"], "client_left");
    let line = logged(|| {
        let record = RequestRecord::new(&Method::GET, "/v1/models");
        drop(record.attach_to_response(Response::new(whole_body("hello"))));
    });
    assert_eq!(line["outcome"], "client_left");
}
