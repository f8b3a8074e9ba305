//! Streams and whole answers of Messages.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};

use self::{
    accumulate::accumulate,
    script::{Answer, Block, client_usage, event},
};
use super::{
    AnswerFilter, BOTH, Relayed, TEXT, TOOLS, cut_at, filtering_as,
    generated::{CLOSING, NO_FILTER, OPENING, check_hostile_events},
    run_pipeline,
};
use crate::{
    conversation::Format,
    json::text,
    relay::{
        StreamOptions, edit_whole_answer,
        pipeline::{Pipeline, PipelineOutput},
    },
};

mod accumulate;
mod properties;
mod script;
mod waiting_texts;

const FORMAT: Format = Format::Messages;
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn run(answers: &[&str], filter: AnswerFilter) -> Relayed {
    super::run_as(FORMAT, answers, filter)
}

fn text_block(pieces: &[&'static str]) -> Block {
    Block::Text {
        pieces: pieces.to_vec(),
        cited: false,
    }
}

fn call(name: &'static str) -> Block {
    Block::Call {
        name,
        input: vec!["{\"b\":1,", "\"a\":\"x\"}"],
    }
}

fn answer_of(blocks: &[Block], stop_reason: &'static str) -> Answer {
    Answer {
        blocks: blocks.to_vec(),
        stop_reason,
        usage: (100, 20),
        pings: false,
    }
}

/// Answers up to the one that ends for the client, which is added if there is none.
fn to_the_end(answers: &[Answer]) -> Vec<Answer> {
    let last = answer_of(&[text_block(&["z"])], "end_turn");
    let end = answers.iter().position(|answer| !answer.is_for_proxy());
    match end {
        Some(end) => answers[..=end].to_vec(),
        None => [answers, &[last]].concat(),
    }
}

fn streams(answers: &[Answer]) -> Vec<String> {
    let ids = (0..answers.len()).map(|at| format!("msg_{at}"));
    let streams = answers.iter().zip(ids);
    streams.map(|(answer, id)| answer.stream(&id)).collect()
}

/// The message that the client should have in the end.
fn expected_message(answers: &[Answer]) -> Value {
    let mut message = answers.last().unwrap().message("msg_0");
    let content = answers.iter().flat_map(Answer::client_content);
    message["content"] = content.collect();
    let had_any = answers.len() > 1 || answers.iter().any(|it| !it.blocks.is_empty());
    if had_any && message["content"] == json!([]) {
        message["content"] = json!([{"type": "text", "text": "Noted."}]);
    }
    message["usage"] = client_usage(answers);
    message
}

#[test]
fn a_stream_passes_as_it_came_at_every_cut() {
    let mut answer = answer_of(
        &[
            Block::Thinking(vec!["hm", " so"]),
            Block::Text {
                pieces: vec!["He", "llo <cont"],
                cited: true,
            },
            text_block(&[]),
            Block::Other(0),
            Block::Other(1),
            Block::Other(2),
            Block::Other(3),
            call("get"),
        ],
        "tool_use",
    );
    answer.pings = true;
    let stream = answer.stream("msg_0");
    for filter in [NO_FILTER, TOOLS, TEXT, BOTH] {
        let relayed = run(&[&stream], filter);
        assert_eq!(relayed.bytes, stream);
        assert_eq!(relayed.ended, stream.len() - STOP.len());
        let summary = &relayed.summary;
        assert!(summary.done && summary.finished && !summary.cut_off);
        assert_eq!(summary.finish_reason, Some("tool_use"));
        assert_eq!(summary.text, text::digest_text(b"Hello <cont"));
        assert_eq!(summary.call_ids, [text::digest_text(b"toolu_7")]);
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
    // Other clients' spellings of the same events.
    let unnamed: String = stream.replace("event: ", "id: ");
    let spaced = stream.replace(
        "{\"type\":\"message_stop\"}",
        "{ \"type\" : \"message_stop\" }",
    );
    for stream in [unnamed, spaced] {
        let relayed = run(&[&stream], NO_FILTER);
        assert_eq!(relayed.bytes, stream);
        assert!(relayed.ended < stream.len());
    }
}

#[test]
fn nothing_but_the_end_waits_without_a_filter() {
    let answer = answer_of(&[text_block(&["Hello"]), call("get")], "tool_use");
    let mut pipeline = filtering_as(FORMAT, NO_FILTER, false);
    let mut sent = 0;
    let stream = answer.stream("msg_0");
    let end = stream.len() - STOP.len();
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
        // Up to where `message_stop` differs from `message_start`.
        assert!(held <= "event: message_sto".len(), "{held} at {at}");
    }
    assert_eq!(sent, end);
}

#[test]
fn proxy_calls_are_removed_and_blocks_renumbered() {
    let answer = answer_of(
        &[
            text_block(&["a"]),
            call("add_reminder"),
            Block::Thinking(vec!["t"]),
            call("get"),
            call("clear_mind"),
        ],
        "tool_use",
    );
    let relayed = run(&[&answer.stream("msg_0")], TOOLS);
    assert_eq!(
        accumulate(&relayed.bytes),
        expected_message(std::slice::from_ref(&answer))
    );
    let turn = &relayed.turns[0];
    assert_eq!(turn.client_calls, 1);
    let calls: Vec<_> = turn.proxy_calls.iter().collect();
    assert_eq!(calls.len(), 2);
    assert_eq!(
        (&*calls[0].id, &*calls[0].name, calls[0].before),
        ("toolu_1", "add_reminder", 0)
    );
    assert_eq!(
        (&*calls[1].id, &*calls[1].name, calls[1].before),
        ("toolu_4", "clear_mind", 1)
    );
    assert_eq!(&*calls[0].arguments, "{\"b\":1,\"a\":\"x\"}");
    assert_eq!(
        &*calls[0].json,
        r#"{"id":"toolu_1","input":{"b":1,"a":"x"},"name":"add_reminder","type":"tool_use"}"#
    );
    // The same answer in one piece.
    let whole = super::whole_as(FORMAT, TOOLS, &[answer.message("msg_0").to_string()]);
    let json: Value = serde_json::from_slice(&whole[0].0).unwrap();
    assert_eq!(json, expected_message(&[answer]));
}

#[test]
fn an_answer_that_is_cut_off_ends_for_the_client() {
    for (reason, window) in [
        ("max_tokens", false),
        ("refusal", false),
        ("pause_turn", false),
        ("model_context_window_exceeded", true),
    ] {
        let answer = answer_of(&[text_block(&["a"]), call("clear_mind")], reason);
        let relayed = run(&[&answer.stream("msg_0")], TOOLS);
        let message = accumulate(&relayed.bytes);
        assert_eq!(message["stop_reason"], reason);
        assert_eq!(message["content"].as_array().unwrap().len(), 1);
        assert_eq!(relayed.summary.window_exceeded, window);
        assert_eq!(relayed.summary.cut_off, reason == "max_tokens");
        assert_eq!(relayed.turns[0].proxy_calls.len(), 1);
    }
    // After an error, no other answer follows.
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n";
    let stream = answer_of(&[call("clear_mind")], "tool_use").stream("msg_0");
    let stream = stream.replacen(
        "event: message_delta",
        &format!("{error}event: message_delta"),
        1,
    );
    let relayed = run(&[&stream], TOOLS);
    assert!(relayed.summary.error && relayed.bytes.contains(error));
    assert!(relayed.bytes.contains("\"stop_reason\":\"end_turn\""));
}

#[test]
fn several_answers_are_one_message() {
    let note = [
        Block::Thinking(vec!["t"]),
        text_block(&["Let me note that."]),
        call("add_reminder"),
    ];
    let mut answers = [
        answer_of(&note, "tool_use"),
        answer_of(&note[2..], "tool_use"),
        answer_of(&[text_block(&["Ready"]), call("get")], "tool_use"),
    ];
    answers[2].usage = (130, 7);
    let streams = streams(&answers);
    let relayed = run(&[&streams[0], &streams[1], &streams[2]], TOOLS);
    let message = accumulate(&relayed.bytes);
    assert_eq!(message, expected_message(&answers));
    assert_eq!(
        message["usage"],
        json!({"input_tokens": 127, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 47})
    );
    assert_eq!(relayed.preceding.chars as usize, "Let me note that.".len());
    assert_eq!(
        relayed.summary.text,
        text::digest_text(b"Let me note that.Ready")
    );
    assert_eq!(relayed.summary.usage.unwrap().completion_tokens, Some(47));
    assert_eq!(
        &*relayed.turns[0].message,
        r#"{"role":"assistant","content":[{"signature":"sig==","thinking":"t","type":"thinking"},{"citations":[],"text":"Let me note that.","type":"text"},{"id":"toolu_2","input":{"b":1,"a":"x"},"name":"add_reminder","type":"tool_use"}]}"#
    );
    assert_eq!(&*relayed.turns[2].message, "");
}

#[test]
fn a_text_that_becomes_empty_is_removed_with_its_block() {
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
        let blocks = [text_block(&pieces), Block::Thinking(vec!["t"]), call("get")];
        let answer = answer_of(&blocks, "tool_use");
        let relayed = run(&[&answer.stream("msg_0")], TEXT);
        let message = accumulate(&relayed.bytes);
        let content = message["content"].as_array().unwrap();
        assert_eq!(content.len(), 2 + usize::from(left.is_some()), "{pieces:?}");
        if let Some(left) = left {
            assert_eq!(content[0]["text"], left);
        }
        let package = relayed.turns[0].package.as_ref();
        assert_eq!(package.is_some(), pieces.concat().contains(OPENING));
        if left.is_none() {
            assert_eq!(package.unwrap().before_chars, 0);
        }
    }
}

#[test]
fn left_out_tokens_are_added_where_the_prompt_is_reported() {
    let relay = |answers: &[String], left_out: u32| {
        let changes = StreamOptions {
            format: FORMAT,
            left_out: Some(left_out),
            ..StreamOptions::default()
        };
        let answers: Vec<_> = answers.iter().map(|it| &**it).collect();
        let pipeline = Pipeline::new(changes, None);
        run_pipeline(pipeline, &answers, |answer| cut_at(answer, 7))
    };
    let answer = answer_of(&[text_block(&["a"])], "end_turn");
    let stream = answer.stream("msg_0");
    let relayed = relay(std::slice::from_ref(&stream), 1_000);
    assert_eq!(
        relayed.bytes,
        stream.replace("\"input_tokens\":97", "\"input_tokens\":1097")
    );
    assert_eq!(relayed.summary.usage.unwrap().prompt_tokens, 100);
    // The last iteration is the prompt; both counts are what a client may read.
    let iterations = r#""usage":{"input_tokens":50,"cache_read_input_tokens":1,"iterations":[{"type":"message","input_tokens":20,"output_tokens":1},{"type":"compaction","input_tokens":9},{"type":"message","input_tokens":30,"cache_read_input_tokens":4,"output_tokens":2},{"type":"advisor_message","input_tokens":5}],"output_tokens":20}"#;
    let stream = stream.replace("\"usage\":{\"output_tokens\":20}", iterations);
    let relayed = relay(std::slice::from_ref(&stream), 1_000);
    let usage = relayed.summary.usage.unwrap();
    assert_eq!(
        (usage.prompt_tokens, usage.completion_tokens),
        (34, Some(20))
    );
    let message = accumulate(&relayed.bytes);
    assert_eq!(message["usage"]["input_tokens"], 1_050);
    assert_eq!(message["usage"]["iterations"][2]["input_tokens"], 1_030);
    assert_eq!(message["usage"]["iterations"][0]["input_tokens"], 20);
    // A prompt of 0 is not known yet.
    let zero = answer.stream("msg_0").replace(
        r#""cache_creation_input_tokens":1,"cache_read_input_tokens":2,"input_tokens":97"#,
        r#""input_tokens":0"#,
    );
    let known = zero.replace(
        "{\"output_tokens\":20}",
        "{\"input_tokens\":8,\"output_tokens\":20}",
    );
    let relayed = relay(&[known], 1_000);
    assert_eq!(relayed.summary.usage.unwrap().prompt_tokens, 8);
    assert_eq!(accumulate(&relayed.bytes)["usage"]["input_tokens"], 1_008);
    assert!(
        relayed
            .bytes
            .starts_with(zero.split_once("\n\n").unwrap().0)
    );
}

#[test]
fn whole_answers_without_the_proxys_blocks_stay_as_they_came() {
    let spelt = r#" {"id":"msg","type":"message", "content": [ {"type":"text","text":"\u0061<"}, {"type":"tool_use","id":"i","name":"get","input":{"b":1.50}} ],"stop_reason":"tool_use","usage":{"input_tokens":1e1,"output_tokens":2}}"#;
    let whole = super::whole_as(FORMAT, BOTH, &[spelt.into()]);
    assert_eq!(whole[0].0, spelt);
    assert_eq!(whole[0].1.client_calls, 1);
    let body = Bytes::from(spelt.replace("1e1", "10"));
    let edited = edit_whole_answer(FORMAT, &mut HeaderMap::new(), body, Some(5), None);
    assert_eq!(edited, spelt.replace("1e1", "15"));
}

#[test]
fn hostile_events_do_not_break_the_stream() {
    let start = answer_of(&[], "end_turn").stream("msg_0");
    let start = start.split_inclusive("\n\n").next().unwrap();
    let events = [
        r#"{"type":7,"index":{}}"#,
        r#"{"type":"content_block_start"}"#,
        r#"{"type":"content_block_start","index":-1,"content_block":[]}"#,
        r#"{"type":"content_block_start","index":18446744073709551615,"content_block":{"type":"tool_use","name":"clear_mind"}}"#,
        r#"{"type":"content_block_delta","index":18446744073709551615,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
        r#"{"type":"content_block_start","content_block":{"type":"text","text":5}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"<cont"}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":null}}"#,
        r#"{"type":"content_block_delta","index":9,"delta":{"type":"text_delta","text":"\ud83d"}}"#,
        r#"{"type":"content_block_delta","index":9,"delta":"x"}"#,
        r#"{"type":"content_block_delta","index":9,"delta":{"signature":{}}}"#,
        r#"{"type":"content_block_stop"}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":5},"usage":[]}"#,
        r#"{"type":"message_delta","usage":{"input_tokens":-4,"output_tokens":"x","iterations":[1,{"type":[]}]}}"#,
        r#"{"type":"message_start","message":[]}"#,
    ];
    check_hostile_events(FORMAT, start, &events);
}

#[test]
fn an_empty_answer_ends_the_message() {
    let first = answer_of(&[call("clear_mind")], "tool_use");
    let usage = super::whole_as(
        FORMAT,
        TOOLS,
        &[
            first.message("a").to_string(),
            answer_of(&[], "end_turn").message("b").to_string(),
        ],
    );
    let usage = usage[0].1.usage;
    let empty = FORMAT.empty_answer(true, "m", usage);
    let empty = String::from_utf8(empty.to_vec()).unwrap();
    accumulate(&empty);
    let relayed = run(&[&first.stream("msg_0"), &empty], TOOLS);
    let message = accumulate(&relayed.bytes);
    assert_eq!(
        (&message["content"], &message["stop_reason"]),
        (
            &json!([{"type": "text", "text": "Noted."}]),
            &json!("end_turn")
        )
    );
    assert_eq!(message["usage"]["output_tokens"], 20);
    let whole: Value = serde_json::from_slice(&FORMAT.empty_answer(false, "m", usage)).unwrap();
    assert_eq!(whole["content"], json!([]));
    assert_eq!(event(&json!({"type": "message_stop"})), STOP);
}
