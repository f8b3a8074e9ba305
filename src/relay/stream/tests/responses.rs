//! Streams of Responses.

use serde_json::Value;

use super::{
    Ending, Format, StreamFooter, StreamOptions, broken, events, filter_as, footer, options, read,
    stream_answer, stream_unended,
};
use futures_util::FutureExt;

const FORMAT: Format = Format::Responses;
const START: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"output\":[],\"usage\":null}}\n\n";
const PROXY_CALL: &str = "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"type\":\"function_call\",\"call_id\":\"o\",\"name\":\"clear_mind\",\"arguments\":\"\"}}\n\nevent: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"sequence_number\":2,\"output_index\":0,\"item\":{\"type\":\"function_call\",\"call_id\":\"o\",\"name\":\"clear_mind\",\"arguments\":\"{}\"}}\n\n";
const CALLED: &str = "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":{\"id\":\"r\",\"status\":\"completed\",\"output\":[{\"type\":\"function_call\",\"call_id\":\"o\",\"name\":\"clear_mind\",\"arguments\":\"{}\"}],\"usage\":{\"input_tokens\":7,\"output_tokens\":5}}}\n\n";
const END: &str = "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":1,\"response\":{\"id\":\"r\",\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\":7,\"output_tokens\":2}}}\n\n";

#[tokio::test]
async fn the_footer_comes_before_the_last_event() {
    let failed = END.replace("completed", "failed");
    let incomplete = END.replace("completed", "incomplete");
    for (end, is_complete) in [(END, true), (&failed, false), (&incomplete, true)] {
        let ending = Ending {
            options: StreamOptions {
                format: FORMAT,
                ..options(footer(&[]))
            },
            on_end: Box::new(move |summary| {
                assert_eq!(summary.is_complete(), is_complete);
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
        let (text, broke) = read(stream_answer(events([START, end].concat()), ending)).await;
        assert!(!broke);
        assert_eq!(text, [START, ": end\n\n", end].concat());
    }
}

#[tokio::test]
async fn an_answer_for_the_proxy_only_is_continued_in_one_response() {
    let first = [START, PROXY_CALL, CALLED].concat();
    let last = [START, END].concat().replace("\"r\"", "\"s\"");
    let answers = vec![events(first.clone()), events(last)];
    let (answer, calls) = filter_as(FORMAT, events(first), answers, vec![10, 20, 30]);
    let (text, broke) = read(answer).await;
    assert!(!broke);
    let end = END.replace("\"input_tokens\":7", "\"input_tokens\":37");
    let end = end.replace("\"output_tokens\":2", "\"output_tokens\":12");
    assert_eq!(text, [START, ": end\n\n", &end].concat());
    let calls = calls.lock().unwrap();
    assert_eq!(calls.turns.len(), 2);
    assert!(calls.turns[0].message.contains("\"call_id\":\"o\""));
    let usage = calls.turns[0].usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (7, Some(5)));
    let (summary, ..) = calls.end.as_ref().unwrap();
    assert_eq!(summary.usage.unwrap().completion_tokens, Some(12));
}

#[tokio::test]
async fn a_broken_stream_ends_with_a_failed_response() {
    let piece = "event: response.output_text.delta\ndata: {\"type\":\"response.out";
    let (answer, calls) = filter_as(FORMAT, broken(&[START, piece]), vec![], vec![]);
    let (text, broke) = read(answer).await;
    assert!(broke);
    let (sent, data) = text.split_once("event: response.failed\ndata: ").unwrap();
    assert_eq!(sent.trim_end(), [START, ": end"].concat());
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["response"]["error"]["code"], "provider_bad_answer");
    assert!(calls.lock().unwrap().end.is_some());
    assert_eq!(data["sequence_number"], 1);
    assert_eq!(data["response"]["id"], "r");
    // Without a next answer, and without a last event.
    let first = [START, PROXY_CALL, CALLED].concat();
    for (first, answers) in [(first, vec![events("")]), (START.to_owned(), vec![])] {
        let (answer, _) = filter_as(FORMAT, events(first), answers, vec![]);
        let (text, broke) = read(answer).await;
        assert!(broke && text.contains("response.failed") && !text.contains("clear_mind"));
    }
    // An error of the provider ends the stream for the client too, and is not repeated.
    let error = "event: error\ndata: {\"type\":\"error\",\"sequence_number\":1,\"code\":\"c\",\"message\":\"m\"}\n\n";
    let (answer, calls) = filter_as(FORMAT, events([START, error].concat()), vec![], vec![]);
    let (text, broke) = read(answer).await;
    assert!(!broke);
    assert_eq!(text, [START, error, ": end\n\n"].concat());
    assert!(calls.lock().unwrap().end.as_ref().unwrap().0.error);
}

/// The failed response ends what the client has, wherever the stream breaks off.
#[tokio::test(start_paused = true)]
async fn a_failed_response_continues_the_numbers_and_the_id() {
    let second = [START, PROXY_CALL].concat().replace("\"r\"", "\"s\"");
    let delta = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":3,\"output_index\":0,\"delta\":\"a\"}\n\n";
    let second: &'static str = [&second[..], delta].concat().leak();
    let alone: &'static str = second.replace("\"s\"", "\"r\"").leak();
    let check = |text: &str, has_answer: bool| {
        let (sent, data) = text.split_once("event: response.failed\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        let whole = sent
            .split_inclusive("\n\n")
            .filter(|event| event.ends_with("}\n\n"));
        let numbers = whole.filter_map(|event| {
            let (_, data) = event.split_once("data: ")?;
            serde_json::from_str::<Value>(data).ok()?["sequence_number"].as_u64()
        });
        let next = numbers.last().map_or(0, |last| last + 1);
        assert_eq!(data["sequence_number"], next, "{text}");
        let id = if has_answer { "r" } else { "resp_plimsoll" };
        assert_eq!(data["response"]["id"], id, "{text}");
    };
    for at in 0..=second.len() {
        // As it came, and behind an answer that was for the proxy only.
        let answer = broken(&[&alone[..at]]);
        let (text, broke) = read(stream_unended(FORMAT, answer)).await;
        assert!(broke);
        check(&text, at >= START.len() - 2);
        let first = [START, PROXY_CALL, CALLED].concat();
        let answers = vec![broken(&[&second[..at]])];
        let (answer, _) = filter_as(FORMAT, events(first), answers, vec![]);
        let (text, broke) = read(answer).await;
        assert!(broke && !text.contains("clear_mind"));
        check(&text, true);
    }
}

#[tokio::test]
async fn a_last_event_that_is_too_long_to_be_read_is_no_break() {
    let image = "x".repeat(3 << 20);
    let item =
        format!("\"output\":[{{\"type\":\"image_generation_call\",\"result\":\"{image}\"}}]");
    let stream = [START, &END.replace("\"output\":[]", &item)].concat();
    let (text, broke) = read(stream_unended(FORMAT, events(stream.clone()))).await;
    assert!(!broke && text == stream);
    let (answer, calls) = filter_as(FORMAT, events(stream.clone()), vec![], vec![]);
    let (text, broke) = read(answer).await;
    assert!(!broke && text == stream + ": end\n\n");
    assert!(calls.lock().unwrap().end.as_ref().unwrap().0.unreadable);
}
