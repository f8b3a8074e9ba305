//! Streams and whole answers of Responses.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;
use proptest::prelude::*;
use serde_json::{Value, json};

use self::{
    accumulate::accumulate,
    items::{Item, OTHERS, Part},
    script::{Answer, answer, event},
};
use super::{
    AnswerFilter, BOTH, Relayed, TEXT, TOOLS, cut_at, filtering_as,
    generated::{
        CLOSING, NO_FILTER, OPENING, PROXY_TOOLS, check_damaged_stream, check_hostile_events,
        damage, damage_stream,
    },
    run_pipeline,
};
use crate::{
    conversation::Format,
    format::AnswerRewriter,
    json::text::digest_text,
    relay::{
        StreamOptions, edit_whole_answer,
        pipeline::{Pipeline, PipelineOutput},
    },
};

mod accumulate;
mod any;
mod ends;
mod items;
mod script;

const FORMAT: Format = Format::Responses;

fn run(answers: &[&str], filter: AnswerFilter) -> Relayed {
    super::run_as(FORMAT, answers, filter)
}

fn relay(answers: &[String], filter: AnswerFilter, left_out: u32, size: usize) -> Relayed {
    let changes = StreamOptions {
        format: FORMAT,
        filter,
        left_out: Some(left_out),
        ..StreamOptions::default()
    };
    let answers: Vec<_> = answers.iter().map(|it| &**it).collect();
    let pipeline = Pipeline::new(changes, None);
    run_pipeline(pipeline, &answers, |answer| cut_at(answer, size))
}

/// Asserts that several cuts give the same. To cut everywhere, as [`run`] does, is slow.
fn relay_cut(answers: &[String], filter: AnswerFilter) -> Relayed {
    let whole = relay(answers, filter, 0, usize::MAX);
    for size in [1, 2, 7, 61, 997] {
        assert_eq!(relay(answers, filter, 0, size), whole, "pieces of {size}");
    }
    whole
}

fn message(pieces: &[&'static str]) -> Item {
    Item::Message(vec![text_part(pieces)])
}

fn text_part(pieces: &[&'static str]) -> Part {
    Part::Text {
        pieces: pieces.to_vec(),
        annotated: false,
    }
}

fn reasoning(encrypted: bool) -> Item {
    Item::Reasoning {
        summary: vec!["h", "m"],
        content: vec!["t"],
        encrypted,
    }
}

fn call(name: &'static str) -> Item {
    Item::Call {
        name,
        arguments: vec!["{\"b\":1,", "\"a\":\"x\"}"],
    }
}

fn answer_of(items: &[Item], status: &'static str) -> Answer {
    Answer {
        items: items.to_vec(),
        status,
        usage: (100, 20),
        keepalives: false,
        stored: true,
        lists_output: true,
    }
}

/// Answers of one server, up to the one that ends for the client, which is added if there is none.
fn to_the_end(mut answers: Vec<Answer>) -> Vec<Answer> {
    let end = answers.iter().position(|answer| !answer.is_for_proxy());
    match end {
        Some(end) => answers.truncate(end + 1),
        None => answers.push(answer_of(&[message(&["z"])], "completed")),
    }
    let lists_output = answers[0].lists_output;
    for answer in &mut answers {
        answer.lists_output = lists_output;
    }
    answers
}

fn streams(answers: &[Answer]) -> Vec<String> {
    let answers = answers.iter().enumerate();
    answers.map(|(at, answer)| answer.stream(at)).collect()
}

fn bodies(answers: &[Answer]) -> Vec<String> {
    let answers = answers.iter().enumerate();
    answers
        .map(|(at, answer)| answer.whole(at).to_string())
        .collect()
}

fn client_items(answers: &[Answer]) -> Vec<Value> {
    let answers = answers.iter().enumerate();
    answers
        .flat_map(|(at, answer)| answer.client_items(at))
        .collect()
}

/// The response that the client should have in the end.
fn expected_response(answers: &[Answer], left_out: u32) -> Value {
    let last = answers.last().unwrap();
    let mut response = last.response(0, client_items(answers));
    let output: u32 = answers.iter().map(|answer| answer.usage.1).sum();
    let prompt = last.usage.0 + left_out;
    response["usage"]["input_tokens"] = prompt.into();
    response["usage"]["output_tokens"] = output.into();
    response["usage"]["total_tokens"] = (prompt + output).into();
    response
}

/// Asserts that the client gets the items of these answers, in a stream and whole.
fn check_answers(answers: &[Answer], relayed: &Relayed, left_out: u32) {
    let (items, response) = accumulate(&relayed.bytes);
    let mut expected = expected_response(answers, left_out);
    assert_eq!(Value::from(items), expected["output"]);
    if !answers[0].lists_output {
        expected["output"] = json!([]);
    }
    assert_eq!(response, expected);
    for (at, (turn, answer)) in relayed.turns.iter().zip(answers).enumerate() {
        let names: Vec<_> = turn.proxy_calls.iter().map(|call| &*call.name).collect();
        assert!(names.iter().all(|name| PROXY_TOOLS.contains(name)));
        let calls = answer.items.iter().filter(|item| item.is_proxy_call());
        assert_eq!(names.len(), calls.count());
        if !turn.message.is_empty() {
            let list: Value = serde_json::from_str(&format!("[{}]", turn.message)).unwrap();
            assert_eq!(list, Value::from(answer.continued_items(at)));
        } else if turn.package.is_some() || !names.is_empty() {
            panic!("no message");
        }
    }
}

#[test]
fn a_stream_passes_as_it_came_at_every_cut() {
    let mut answer = answer_of(
        &[
            reasoning(true),
            Item::Message(vec![
                Part::Text {
                    pieces: vec!["He", "llo <cont"],
                    annotated: true,
                },
                text_part(&["\u{e9}"]),
            ]),
            Item::Message(vec![Part::Refusal(vec!["I can", "not"])]),
            Item::Message(vec![]),
            call("get"),
            Item::Custom(vec!["x"]),
        ],
        "completed",
    );
    answer.keepalives = true;
    answer.items.extend((0..OTHERS.len()).map(Item::Other));
    let stream = answer.stream(0);
    let last = stream.rfind("event: response.completed").unwrap();
    assert_eq!(
        accumulate(&stream),
        (answer.whole_items(0), answer.whole(0))
    );
    for filter in [NO_FILTER, TOOLS, TEXT, BOTH] {
        let whole = relay_cut(std::slice::from_ref(&stream), filter);
        assert_eq!(whole.bytes, stream);
        assert_eq!(whole.ended, last);
        let summary = &whole.summary;
        assert!(summary.done && summary.finished && !summary.cut_off);
        assert_eq!(summary.finish_reason, Some("completed"));
        assert_eq!(summary.text, digest_text("Hello <cont\u{e9}".as_bytes()));
        let ids = ["call_item_0_4", "call_item_0_5"].map(|id| digest_text(id.as_bytes()));
        assert_eq!(summary.call_ids, ids);
        let usage = summary.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (100, Some(20))
        );
        assert_eq!(
            (usage.cached_tokens, usage.cache_written_tokens),
            (Some(2), Some(1))
        );
    }
    // Other servers' spellings of the same events.
    let unnamed: String = stream.replace("event: ", "id: ");
    for stream in [unnamed, stream.replace('\n', "\r\n")] {
        for filter in [NO_FILTER, BOTH] {
            let relayed = relay(std::slice::from_ref(&stream), filter, 0, 5);
            assert_eq!(relayed.bytes, stream);
            assert!(stream[relayed.ended..].contains("response.completed"));
        }
    }
}

#[test]
fn proxy_calls_are_removed_at_every_cut() {
    let items = [
        message(&["a"]),
        call("add_reminder"),
        call("get"),
        call("clear_mind"),
    ];
    let answer = answer_of(&items, "completed");
    let relayed = run(&[&answer.stream(0)], TOOLS);
    check_answers(std::slice::from_ref(&answer), &relayed, 0);
    let turn = &relayed.turns[0];
    assert_eq!(turn.client_calls, 1);
    let calls: Vec<_> = turn.proxy_calls.iter().collect();
    assert_eq!(
        (&*calls[0].id, &*calls[0].name, calls[0].before),
        ("call_item_0_1", "add_reminder", 0)
    );
    assert_eq!(
        (&*calls[1].id, &*calls[1].name, calls[1].before),
        ("call_item_0_3", "clear_mind", 1)
    );
    assert_eq!(&*calls[0].arguments, "{\"b\":1,\"a\":\"x\"}");
    assert_eq!(
        serde_json::from_str::<Value>(&calls[0].json).unwrap(),
        answer.whole_items(0)[1]
    );
}

#[test]
fn several_answers_are_one_response() {
    let note = [
        reasoning(true),
        message(&["Let me note that."]),
        call("add_reminder"),
    ];
    let mut answers = [
        answer_of(&note, "completed"),
        answer_of(&note[2..], "completed"),
        answer_of(&[message(&["Ready"]), call("get")], "completed"),
    ];
    answers[2].usage = (130, 7);
    let relayed = relay_cut(&streams(&answers), TOOLS);
    check_answers(&answers, &relayed, 0);
    let (_, response) = accumulate(&relayed.bytes);
    assert_eq!(response["usage"]["output_tokens"], 47);
    assert_eq!(relayed.preceding.chars as usize, "Let me note that.".len());
    assert_eq!(relayed.summary.text, digest_text(b"Let me note that.Ready"));
    assert_eq!(relayed.summary.usage.unwrap().completion_tokens, Some(47));
    assert_eq!(&*relayed.turns[2].message, "");
}

#[test]
fn reasoning_that_nobody_keeps_is_not_sent_back() {
    for (encrypted, stored, kept) in [
        (true, false, true),
        (false, true, true),
        (false, false, false),
    ] {
        let mut answer = answer_of(&[reasoning(encrypted), call("clear_mind")], "completed");
        answer.stored = stored;
        let answers = to_the_end(vec![answer]);
        let relayed = relay(&streams(&answers), TOOLS, 0, 50);
        let message = &relayed.turns[0].message;
        assert_eq!(message.contains("\"reasoning\""), kept, "{message}");
        assert_eq!(message.contains("\"id\""), kept, "{message}");
        assert!(message.contains("\"call_id\""), "{message}");
    }
}

#[test]
fn a_text_that_becomes_empty_is_removed_with_its_item() {
    for (pieces, left) in [
        (vec![OPENING, "a", CLOSING], None),
        (vec!["\n", OPENING, CLOSING, " \n"], None),
        (
            vec!["a", "<continuation_pack", "age>b", CLOSING, "c"],
            Some("ac"),
        ),
        (vec![OPENING, "never closed"], None),
        (
            vec!["<continuation", "_packag"],
            Some("<continuation_packag"),
        ),
        (vec!["<cont", "x"], Some("<contx")),
        (vec![" "], Some(" ")),
    ] {
        let items = [message(&pieces), reasoning(true), call("get")];
        let answer = answer_of(&items, "completed");
        let relayed = relay_cut(&[answer.stream(0)], TEXT);
        let (items, _) = accumulate(&relayed.bytes);
        assert_eq!(items.len(), 2 + usize::from(left.is_some()), "{pieces:?}");
        if let Some(left) = left {
            assert_eq!(items[0]["content"][0]["text"], left);
        }
        check_answers(&[answer], &relayed, 0);
        let package = relayed.turns[0].package.as_ref();
        assert_eq!(package.is_some(), pieces.concat().contains(OPENING));
    }
}

#[test]
fn a_refusal_is_neither_removed_nor_held() {
    let block = text_part(&[OPENING, "a", CLOSING]);
    let refusal = Part::Refusal(vec!["I can", "not"]);
    for parts in [
        vec![refusal.clone()],
        vec![block.clone(), refusal.clone()],
        vec![refusal, block],
    ] {
        // A block alone is followed by another answer.
        let answers = to_the_end(vec![answer_of(&[Item::Message(parts)], "completed")]);
        let streams = streams(&answers);
        let relayed = relay(&streams, BOTH, 0, 11);
        check_answers(&answers, &relayed, 0);
        let whole = super::whole_as(FORMAT, BOTH, &bodies(&answers));
        let json: Value = serde_json::from_slice(&whole.last().unwrap().0).unwrap();
        assert_eq!(json, expected_response(&answers, 0));
        let mut pipeline = filtering_as(FORMAT, BOTH, false);
        let (begin, _) = streams[0]
            .split_once("event: response.refusal.done")
            .unwrap();
        let mut out = VecDeque::new();
        pipeline.push(Bytes::copy_from_slice(begin.as_bytes()), &mut out);
        let sent = out.iter().any(|piece| match piece {
            PipelineOutput::Bytes(bytes) => bytes.windows(5).any(|it| it == b"\"not\""),
            PipelineOutput::End => false,
        });
        assert!(sent);
    }
}

#[test]
fn texts_wait_only_while_they_may_be_the_proxys() {
    let item = message(&["Hello", " <b>", " <cont", "rol>"]);
    let stream = answer_of(&[item], "completed").stream(0);
    let mut pipeline = filtering_as(FORMAT, BOTH, false);
    let mut counts = Vec::new();
    for event in stream.split_inclusive("\n\n") {
        let mut out = VecDeque::new();
        pipeline.push(Bytes::copy_from_slice(event.as_bytes()), &mut out);
        let sent = out.iter().map(|piece| match piece {
            PipelineOutput::Bytes(bytes) => bytes.windows(2).filter(|it| it == b"\n\n").count(),
            PipelineOutput::End => 0,
        });
        counts.push(sent.sum::<usize>());
    }
    // Two events of the response; item and part wait for their text; four pieces, three ends, the last event.
    assert_eq!(counts, [1, 1, 0, 0, 3, 1, 0, 2, 1, 1, 1, 1]);
}

#[test]
fn nothing_but_the_end_waits_without_a_filter() {
    let answer = answer_of(&[message(&["Hello"]), call("get")], "completed");
    let mut pipeline = filtering_as(FORMAT, NO_FILTER, false);
    let mut sent = 0;
    let stream = answer.stream(0);
    let end = stream.rfind("event: ").unwrap();
    for (at, byte) in stream.as_bytes().iter().enumerate().take(end) {
        let mut out = VecDeque::new();
        pipeline.push(Bytes::copy_from_slice(&[*byte]), &mut out);
        sent += out
            .into_iter()
            .map(|piece| match piece {
                PipelineOutput::Bytes(bytes) => bytes.len(),
                PipelineOutput::End => 0,
            })
            .sum::<usize>();
        let held = at + 1 - sent;
        // Up to where the names differ.
        assert!(held <= "event: response.in".len(), "{held} at {at}");
    }
    assert_eq!(sent, end);
}

/// The test takes minutes where each chunk has the pipeline read again what came before.
#[test]
fn a_long_end_in_small_chunks_is_read_once() {
    let text = "word ".repeat(390 << 10);
    let output = json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]);
    let response = json!({"status": "completed", "output": output});
    let data = format!(r#"{{"type":"response.completed","response":{response}}}"#);
    for name in ["event: response.completed\n", ""] {
        let stream = format!("{name}data: {data}\n\n");
        let answers = [stream.as_str()];
        let relayed = run_pipeline(filtering_as(FORMAT, NO_FILTER, false), &answers, |it| {
            cut_at(it, 16)
        });
        assert!(relayed.bytes == stream);
        // Its end is marked before the event, which was held as a whole.
        assert_eq!(relayed.ended, 0);
        assert!(relayed.summary.done);
    }
}

#[test]
fn whole_answers_without_the_proxys_items_stay_as_they_came() {
    let spelt = r#" {"id":"resp","object":"response","status":"completed", "output": [ {"type":"message","content":[{"type":"output_text","text":"\u0061<"}]}, {"type":"function_call","call_id":"i","name":"get","arguments":"{\"b\":1.50}"} ],"usage":{"input_tokens":1e1,"output_tokens":2}}"#;
    let whole = super::whole_as(FORMAT, BOTH, &[spelt.into()]);
    assert_eq!(whole[0].0, spelt);
    assert_eq!(whole[0].1.client_calls, 1);
    let body = Bytes::from(spelt.replace("1e1", "10"));
    let edited = edit_whole_answer(FORMAT, &mut HeaderMap::new(), body, Some(5), None);
    assert_eq!(edited, spelt.replace("1e1", "15"));
}
