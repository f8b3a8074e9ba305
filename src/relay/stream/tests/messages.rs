//! Streams of Messages.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt;
use http::Response;
use serde_json::Value;

use super::{
    Body, DriverCalls, Ending, Format, StreamFooter, StreamOptions, broken, events, filter_as,
    footer, options, read, stream_answer, stream_unended,
};

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n";
const PROXY_CALL: &str = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"o\",\"name\":\"clear_mind\",\"input\":{}}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
const CALLS: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":5}}\n\n";
const END: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n";
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn filter(
    first: Response<Body>,
    answers: Vec<Response<Body>>,
    left_out: Vec<u32>,
) -> (Response<Body>, Arc<Mutex<DriverCalls>>) {
    filter_as(Format::Messages, first, answers, left_out)
}

#[tokio::test]
async fn the_footer_comes_before_the_end_marker() {
    let stream = [START, END, STOP].concat();
    let ending = Ending {
        options: StreamOptions {
            format: Format::Messages,
            ..options(footer(&[]))
        },
        on_end: Box::new(|summary| {
            assert!(summary.is_complete());
            let comment = Some(": end\n\n".into());
            async {
                StreamFooter {
                    comment,
                    ..StreamFooter::default()
                }
            }
            .boxed()
        }),
    };
    let (text, broke) = read(stream_answer(events(stream), ending)).await;
    assert!(!broke);
    assert_eq!(text, [START, END, ": end\n\n", STOP].concat());
}

#[tokio::test]
async fn an_answer_for_the_proxy_only_is_continued_in_one_message() {
    let first = [START, PROXY_CALL, CALLS, STOP].concat();
    let last = [START, END, STOP].concat();
    let answers = vec![events(first.clone()), events(last)];
    let (answer, calls) = filter(events(first), answers, vec![10, 20, 30]);
    let (text, broke) = read(answer).await;
    assert!(!broke);
    let start = START.replace("\"input_tokens\":7", "\"input_tokens\":17");
    let end = END.replace(
        "{\"output_tokens\":2}",
        "{\"input_tokens\":37,\"output_tokens\":12}",
    );
    // An answer without any block could not be sent back.
    let rest = text.strip_prefix(&start).unwrap();
    let rest = rest.strip_suffix(&[&*end, ": end\n\n", STOP].concat());
    let block = rest.unwrap();
    assert_eq!(block.matches("\"text\":\"Noted.\"").count(), 1, "{block}");
    assert_eq!(block.matches("event: ").count(), 3, "{block}");
    let calls = calls.lock().unwrap();
    assert_eq!(calls.turns.len(), 2);
    let usage = calls.turns[0].usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (7, Some(5)));
    let (summary, ..) = calls.end.as_ref().unwrap();
    assert_eq!(summary.usage.unwrap().completion_tokens, Some(12));
}

#[tokio::test]
async fn a_broken_stream_ends_with_an_error_event() {
    let piece = "event: content_block_delta\ndata: {\"type\":\"content_blo";
    let (answer, calls) = filter(broken(&[START, piece]), vec![], vec![]);
    let (text, broke) = read(answer).await;
    assert!(broke);
    let (sent, data) = text.split_once("event: error\ndata: ").unwrap();
    assert_eq!(sent.trim_end(), [START, ": end"].concat());
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&data["type"], &data["error"]["type"]),
        (&"error".into(), &"api_error".into())
    );
    assert!(calls.lock().unwrap().end.is_some());
    // Without a next answer, and without an end marker.
    let first = [START, PROXY_CALL, CALLS].concat();
    for (first, answers) in [(first, vec![events("")]), (START.to_owned(), vec![])] {
        let (answer, _) = filter(events(first), answers, vec![]);
        let (text, broke) = read(answer).await;
        assert!(broke && text.contains("event: error") && !text.contains("clear_mind"));
    }
    // An error of the provider ends the stream for the client too, and is not repeated.
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n";
    let (answer, calls) = filter(events([START, error].concat()), vec![], vec![]);
    let (text, broke) = read(answer).await;
    assert!(!broke);
    assert_eq!(text, [START, error, ": end\n\n"].concat());
    assert!(calls.lock().unwrap().end.as_ref().unwrap().0.error);
}

#[tokio::test]
async fn half_a_message_is_no_whole_one() {
    let source = Response::new(crate::wire::whole_body(Bytes::from_static(
        START.as_bytes(),
    )));
    let (text, broke) = read(stream_unended(Format::Messages, source)).await;
    assert!(broke && text.starts_with(START) && text.contains("event: error"));
}
