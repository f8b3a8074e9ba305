use std::collections::VecDeque;

use bytes::Bytes;
use proptest::prelude::*;

use super::{Pipeline, PipelineOutput, filtering};
use crate::{
    conversation::Format,
    format::usage::Usage,
    relay::{
        AnswerFilter, ResponseSummary,
        tests::{random_pieces, recordings},
    },
};

const MAX_HELD: usize = Format::Chat.rules().max_whole_event;

fn plain(strip: bool) -> Pipeline {
    filtering(AnswerFilter::default(), strip)
}

/// The output, the position of the end in it, and the summary.
fn pass<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    strip: bool,
) -> (Vec<u8>, Option<usize>, ResponseSummary) {
    let mut pipeline = plain(strip);
    let mut out = VecDeque::new();
    for piece in pieces {
        pipeline.push(Bytes::copy_from_slice(piece), &mut out);
    }
    pipeline.finish_stream(false, &mut out);
    let (mut bytes, mut end) = (Vec::new(), None);
    for piece in out {
        match piece {
            PipelineOutput::Bytes(piece) => bytes.extend_from_slice(&piece),
            PipelineOutput::End => {
                assert_eq!(end, None, "the answer ends once");
                end = Some(bytes.len());
            }
        }
    }
    (bytes, end, pipeline.response_summary())
}

const TEXT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hé\"}}]}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n";
const USAGE: &str = "data: {\"id\":\"x\",\"choices\": [],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn check_every_cut(stream: &str, strip: bool, expected: &str) -> ResponseSummary {
    let stream = stream.as_bytes();
    let (bytes, end, summary) = pass([stream], strip);
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
    for at in 0..=stream.len() {
        let (first, rest) = stream.split_at(at);
        for pieces in [vec![first, rest], vec![first, b"", rest]] {
            let cut = pass(pieces, strip);
            assert_eq!(cut, (bytes.clone(), end, summary.clone()), "cut at {at}");
        }
    }
    let cut = pass(stream.chunks(1), strip);
    assert_eq!(cut, (bytes, end, summary.clone()), "cut everywhere");
    summary
}

#[test]
fn only_the_injected_usage_chunk_is_removed() {
    for end in ["\n", "\r\n", "\r"] {
        let [text, finish, usage, done] =
            [TEXT, FINISH, USAGE, DONE].map(|event| event.replace('\n', end));
        let all = format!(": hi{end}{end}{text}{finish}{usage}{done}");
        let summary = check_every_cut(&all, true, &all.replace(&usage, ""));
        assert_eq!(summary.usage.map(|usage| usage.prompt_tokens), Some(7));
        assert!(summary.is_complete());
        check_every_cut(&all, false, &all);
    }
    // One that cannot be read is no more asked for.
    for usage in [
        "{}",
        r#"{"prompt_tokens":"7","completion_tokens":-2}"#,
        r#"{"input":{"tokens":7}}"#,
        r#""seven""#,
        "[7,2]",
        "7",
    ] {
        let chunk = format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n");
        let all = format!("{TEXT}{FINISH}{chunk}{DONE}");
        let summary = check_every_cut(&all, true, &all.replace(&chunk, ""));
        assert_eq!(summary.usage, None, "{usage}");
        check_every_cut(&all, false, &all);
    }
    let none = format!("{TEXT}data: {{\"choices\":[],\"usage\":null}}\n\n{FINISH}{DONE}");
    check_every_cut(&none, true, &none);
    let last = USAGE.trim_end();
    check_every_cut(
        &format!("{TEXT}{FINISH}{last}"),
        true,
        &format!("{TEXT}{FINISH}"),
    );
    let cumulative = TEXT.replace("}]}", "}],\"usage\":{\"prompt_tokens\":7}}");
    check_every_cut(&cumulative, true, &cumulative);
    let filters = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n";
    check_every_cut(filters, true, filters);
}

#[test]
fn a_chunk_that_may_have_choices_stays_at_every_cut() {
    // A line of an unknown field is not read, but its bytes count when the event is held.
    let odd = USAGE.replace("}}\n", "}}\nx: {\"choices\":[{}\n");
    let all = format!("{TEXT}{FINISH}{odd}{DONE}");
    check_every_cut(&all, true, &all);
    // And one that is too long to be held.
    let long = USAGE.replace("\"x\"", &format!("\"{}\"", "x".repeat(MAX_HELD)));
    let all = format!("{TEXT}{FINISH}{long}{DONE}");
    let all = all.as_bytes();
    let whole = pass([all], true);
    assert_eq!(whole.0, all);
    for at in [200, 300, 9_000, all.len() - DONE.len() - 1] {
        assert_eq!(pass([&all[..at], &all[at..]], true), whole, "cut at {at}");
    }
}

#[test]
fn the_bound_of_held_events_holds_at_every_cut() {
    for end in ["\n", "\r\n", "\r"] {
        for more in 0..5 {
            let usage = USAGE.replace('\n', end);
            let most = MAX_HELD + more - 2;
            let filler = "x".repeat(most - usage.len() + 1);
            let usage = usage.replace("\"x\"", &format!("\"{filler}\""));
            assert_eq!(usage.len(), most);
            let [text, done] = [TEXT, DONE].map(|event| event.replace('\n', end));
            let all = format!("{text}{usage}{done}");
            let whole = pass([all.as_bytes()], true);
            let stays = whole.0.len() == all.len();
            assert_eq!(stays, most > MAX_HELD);
            let last = text.len() + most;
            for at in (text.len()..text.len() + 9).chain(last - 9..last + 9) {
                let (first, rest) = all.as_bytes().split_at(at);
                assert_eq!(
                    pass([first, rest], true),
                    whole,
                    "{end:?} {more} cut at {at}"
                );
                assert_eq!(
                    pass([first, b"", rest], true),
                    whole,
                    "{end:?} {more} cut at {at}"
                );
            }
        }
    }
}

#[test]
fn the_answer_ends_before_the_whole_done_event() {
    for end in ["\n", "\r\n", "\r"] {
        for event in [
            "id: 5\ndata: [DONE]\n\n",
            "event: done\nid: 5\ndata:[DONE]\n\n",
            "data: [DONE]\nid: 5\nretry: 7\n\n",
            "data:\ndata: [DONE]\n\n",
            "data\ndata:[DONE] \ndata:\n\n",
            "x: 1\n id: 5\ndatum: 7\ndata: [DONE]\n\n",
        ] {
            let all = format!("{TEXT}{FINISH}{event}").replace('\n', end);
            for strip in [true, false] {
                check_every_cut(&all, strip, &all);
            }
            let ends = format!("{TEXT}{FINISH}").replace('\n', end).len();
            assert_eq!(pass([all.as_bytes()], false).1, Some(ends));
        }
    }
}

/// It goes out, and the answer ends with the stream.
#[test]
fn after_a_done_event_that_cannot_be_held_the_answer_ends_last() {
    for end in ["\n", "\r\n", "\r"] {
        let comment = "id: 5\n: soon\ndata: [DONE]\n\n".to_owned();
        let long = format!("id: {}\ndata: [DONE]\n\n", "5".repeat(MAX_HELD));
        for event in [comment, long] {
            let [text, event] = [TEXT, &event].map(|it| it.replace('\n', end));
            let all = format!("{text}{event}: bye{end}{end}");
            let whole = pass([all.as_bytes()], false);
            assert_eq!((whole.0.len(), whole.1), (all.len(), Some(all.len())));
            assert!(whole.2.done);
            let near = |at: usize| (at.saturating_sub(20)..at + 20).collect::<Vec<_>>();
            let cuts = [near(text.len()), near(text.len() + event.len())].concat();
            for at in cuts.into_iter().filter(|at| *at <= all.len()) {
                let (first, rest) = all.as_bytes().split_at(at);
                assert_eq!(pass([first, rest], false), whole, "{end:?} cut at {at}");
            }
            let bytes = all.as_bytes().chunks(1);
            assert_eq!(pass(bytes, false), whole, "{end:?} cut everywhere");
        }
    }
}

#[test]
fn choices_before_the_data_are_seen_at_every_cut() {
    let odd = USAGE.replace("data: ", "id: \"choices\":[1]\ndata: ");
    let all = format!("{TEXT}{FINISH}{odd}{DONE}");
    check_every_cut(&all, true, &all);
}

#[test]
fn a_comment_goes_out_at_once() {
    for before in ["", "id: 5\n"] {
        let mut pipeline = plain(false);
        let mut out = VecDeque::new();
        pipeline.push(Bytes::from(before), &mut out);
        pipeline.push(Bytes::from_static(b": still here\n"), &mut out);
        let bytes: usize = out
            .iter()
            .map(|piece| match piece {
                PipelineOutput::Bytes(bytes) => bytes.len(),
                PipelineOutput::End => 0,
            })
            .sum();
        assert_eq!(bytes, before.len() + 13);
    }
}

#[test]
fn an_event_is_held_only_while_it_may_be_a_usage_chunk() {
    let mut pipeline = plain(true);
    let mut out = VecDeque::new();
    pipeline.push(
        Bytes::from_static(b"data: {\"id\":1,\"choices\" : [ "),
        &mut out,
    );
    assert!(out.is_empty());
    pipeline.push(Bytes::from_static(b"{\"index\""), &mut out);
    assert!(!out.is_empty());
    out.clear();
    pipeline.push(Bytes::from_static(b":0}]}\n\n: hi\n"), &mut out);
    let Some(PipelineOutput::Bytes(last)) = out.back() else {
        panic!("nothing relayed")
    };
    assert!(last.ends_with(b": hi\n"));
    out.clear();
    pipeline.push(Bytes::from(vec![b'x'; MAX_HELD + 1]), &mut out);
    assert_eq!(out.len(), 1);
}

#[test]
fn the_answer_ends_before_done() {
    let stream = format!("{TEXT}{FINISH}{DONE}");
    let (_, end, _) = pass([stream.as_bytes()], false);
    assert_eq!(end, Some(TEXT.len() + FINISH.len()));
    let (_, end, summary) = pass([TEXT.as_bytes()], false);
    assert_eq!(end, Some(TEXT.len()));
    assert!(!summary.is_complete());
}

#[test]
fn digests_of_text_and_call_ids_ignore_chunking() {
    let stream = |deltas: &[&str]| {
        let events = deltas
            .iter()
            .map(|delta| format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n"));
        let all: String = events.collect();
        let (_, _, summary) = pass([all.as_bytes()], false);
        (summary.text, summary.call_ids)
    };
    let whole = stream(&[
        r#"{"content":"a\"b"}"#,
        r#"{"tool_calls":[{"index":0,"id":"x"},{"index":1,"id":"y"}]}"#,
    ]);
    let pieces = stream(&[
        r#"{"content":"a"}"#,
        r#"{"content":"\""}"#,
        r#"{"content":[{"type":"text","text":"b"},{"type":"thinking","text":"no"}]}"#,
        r#"{"content":null,"tool_calls":[{"index":0,"id":"x"}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"","function":{}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"x","function":{}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"\u0079"}]}"#,
    ]);
    assert_eq!(whole, pieces);
    assert_eq!(whole.1.len(), 2);
}

#[test]
fn recorded_streams_come_out_identical_at_every_cut() {
    for (file, stream, prompt) in recordings() {
        let (bytes, end, summary) = pass([&stream[..]], false);
        assert_eq!(bytes, stream, "{file}");
        let found = |usage: Option<Usage>| usage.map(|usage| u64::from(usage.prompt_tokens));
        assert_eq!(found(summary.usage), prompt, "{file}");
        assert!(summary.finished || summary.done || summary.error, "{file}");
        let same = |pieces: &[&[u8]]| {
            assert!(
                pass(pieces.iter().copied(), false) == (bytes.clone(), end, summary.clone()),
                "{file}"
            );
        };
        // At every byte; long streams, which have thousands of like events, in steps.
        let step = if stream.len() < 20_000 { 1 } else { 97 };
        for at in
            (0..stream.len()).filter(|at| at % step == 0 || *at < 50 || at + 50 > stream.len())
        {
            same(&[&stream[..at], &stream[at..]]);
        }
        same(&stream.chunks(1).collect::<Vec<_>>());
        for seed in 1..20 {
            same(&random_pieces(&stream, seed));
        }
        let (stripped, _, with) = pass([&stream[..]], true);
        assert_eq!(with, summary);
        let (again, ..) = pass(stream.chunks(3), true);
        assert!(stripped == again, "{file}");
    }
}

proptest! {
    #[test]
    fn any_pieces_pass_alike(order in prop::collection::vec(0usize..5, 0..8), sizes in prop::collection::vec(1usize..40, 1..8), strip: bool) {
        let events = [TEXT, FINISH, USAGE, DONE, ": ping\n\n"];
        let stream: String = order.iter().map(|index| events[*index]).collect();
        let mut rest = stream.as_bytes();
        let mut pieces = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, others) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = others;
        }
        let whole = pass([stream.as_bytes()], strip);
        prop_assert_eq!(pass(pieces, strip), whole.clone());
        let kept: String = order.iter().filter(|index| !strip || **index != 2).map(|index| events[*index]).collect();
        prop_assert_eq!(String::from_utf8(whole.0).unwrap(), kept);
    }
}
