use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Pipeline, PipelineOutput, StreamOptions};
use crate::{
    conversation::{Format, answer_digest},
    format::{AnswerRewriter, RewrittenAnswer},
    relay::{AnswerFilter, ModelAnswer, PrecedingText, ResponseSummary},
};

mod asked_model;
mod blocks;
mod calls;
mod cuts;
mod generated;
mod messages;
mod plain;
mod responses;
mod rounds;
mod toy;
mod usage;

const TOOLS: AnswerFilter = AnswerFilter {
    tools: &["add_reminder", "update_reminder", "clear_mind"],
    package: false,
};
const TEXT: AnswerFilter = AnswerFilter {
    tools: &[],
    package: true,
};
const BOTH: AnswerFilter = AnswerFilter {
    package: true,
    ..TOOLS
};
const DONE: &str = "data: [DONE]\n\n";

/// A whole response as the client gets it, and what the pipeline reports.
#[derive(Clone, Debug, PartialEq)]
struct Relayed {
    bytes: String,
    turns: Vec<ModelAnswer>,
    preceding: PrecedingText,
    summary: ResponseSummary,
    ended: usize,
}

fn filtering(filter: AnswerFilter, strip_usage: bool) -> Pipeline {
    filtering_as(Format::Chat, filter, strip_usage)
}

fn filtering_as(format: Format, filter: AnswerFilter, strip_usage: bool) -> Pipeline {
    let changes = StreamOptions {
        format,
        filter,
        strip_usage,
        ..StreamOptions::default()
    };
    Pipeline::new(changes, None)
}

fn cut_at(stream: &[u8], size: usize) -> Vec<&[u8]> {
    stream.chunks(size).collect()
}

/// Runs answers through the pipeline, each cut by `cut`.
fn run_cut<'a>(
    answers: &[&'a str],
    filter: AnswerFilter,
    strip: bool,
    cut: impl Fn(&'a [u8]) -> Vec<&'a [u8]>,
) -> Relayed {
    run_pipeline(filtering(filter, strip), answers, cut)
}

fn run_pipeline<'a>(
    mut pipeline: Pipeline,
    answers: &[&'a str],
    cut: impl Fn(&'a [u8]) -> Vec<&'a [u8]>,
) -> Relayed {
    let (mut out, mut turns) = (VecDeque::new(), Vec::new());
    for answer in answers {
        if !turns.is_empty() || pipeline.is_for_proxy() {
            assert!(
                pipeline.is_for_proxy(),
                "the answer was not for the proxy: {out:?}"
            );
            turns.push(pipeline.begin_answer());
        } else if pipeline.drained {
            panic!("the first answer was the last");
        }
        for piece in cut(answer.as_bytes()) {
            pipeline.push(Bytes::copy_from_slice(piece), &mut out);
        }
        pipeline.finish_stream(false, &mut out);
    }
    assert!(!pipeline.is_for_proxy(), "another answer is wanted");
    turns.push(pipeline.model_answer());
    let (mut bytes, mut ended) = (Vec::new(), usize::MAX);
    for piece in out {
        match piece {
            PipelineOutput::Bytes(piece) => bytes.extend_from_slice(&piece),
            PipelineOutput::End => {
                assert_eq!(ended, usize::MAX, "the answer ends once");
                ended = bytes.len();
            }
        }
    }
    Relayed {
        bytes: String::from_utf8(bytes).unwrap(),
        turns,
        preceding: pipeline.preceding_text(),
        summary: pipeline.response_summary(),
        ended,
    }
}

/// Asserts that the answer has the digest that the session recorded where the client sends it back as this item.
fn check_echo(format: Format, echo: &str, summary: &ResponseSummary) {
    let indexed = format.index_items(&[echo]).unwrap();
    let recorded = answer_digest(summary.text, &summary.call_ids);
    assert_eq!(indexed.items[0].short_digest, recorded, "{echo}");
    let calls = indexed.digest_calls(&indexed.items[0]);
    assert_eq!(calls, summary.calls_digest, "{echo}");
}

/// Asserts that every cut gives the same, and returns it.
fn run(answers: &[&str], filter: AnswerFilter) -> Relayed {
    run_as(Format::Chat, answers, filter)
}

fn run_as(format: Format, answers: &[&str], filter: AnswerFilter) -> Relayed {
    let pipeline = || filtering_as(format, filter, false);
    let whole = run_pipeline(pipeline(), answers, |answer| vec![answer]);
    let longest = answers.iter().map(|answer| answer.len()).max().unwrap_or(0);
    for at in 0..longest {
        let cut = run_pipeline(pipeline(), answers, |answer| {
            let (left, right) = answer.split_at(at.min(answer.len()));
            vec![left, right]
        });
        assert_eq!(cut, whole, "cut at {at}");
    }
    for size in [1, 2, 7] {
        let cut = run_pipeline(pipeline(), answers, |answer| cut_at(answer, size));
        assert_eq!(cut, whole, "pieces of {size}");
    }
    for end in ["\r\n", "\r"] {
        let spelled: Vec<_> = answers
            .iter()
            .map(|answer| answer.replace('\n', end))
            .collect();
        let spelled: Vec<_> = spelled.iter().map(|answer| &**answer).collect();
        let other = run_pipeline(pipeline(), &spelled, |answer| cut_at(answer, 1));
        assert_eq!(other.turns, whole.turns);
        assert_eq!(messages(&other.bytes), messages(&whole.bytes), "{end:?}");
        let again = run_pipeline(pipeline(), &spelled, |answer| vec![answer]);
        assert_eq!(again, other);
    }
    whole
}

/// The JSON of all events.
fn messages(stream: &str) -> Vec<Value> {
    let lines = stream.split(['\n', '\r']);
    let data = lines.filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data)))
        .collect()
}

fn chunk(delta: Value) -> String {
    ended(delta, Value::Null)
}

fn ended(delta: Value, finish: Value) -> String {
    let chunk =
        json!({"id": "one", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {chunk}\n\n")
}

fn finish(reason: &str) -> String {
    ended(json!({}), json!(reason))
}

fn usage(prompt: u32, completion: u32) -> String {
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion});
    format!(
        "data: {}\n\n",
        json!({"id": "one", "choices": [], "usage": usage})
    )
}

fn call(index: u32, id: &str, name: &str, arguments: &str) -> Value {
    json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn more(index: u32, arguments: &str) -> String {
    chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
}

fn calls(calls: &[Value]) -> String {
    chunk(json!({"tool_calls": calls}))
}

type ClientCall = (u64, String, String, String);

/// What a client's library makes of the stream: text, calls as (index, id, name, arguments), and
/// the finish reason.
fn client(stream: &str) -> (String, Vec<ClientCall>, Option<String>) {
    let (mut text, mut finish) = (String::new(), None);
    let mut calls = Vec::<ClientCall>::new();
    for message in messages(stream) {
        let choice = &message["choices"][0];
        text += choice["delta"]["content"].as_str().unwrap_or_default();
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let index = call["index"].as_u64().unwrap_or(0);
            let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let function = &call["function"];
            if !calls.iter().any(|(at, ..)| *at == index) {
                calls.push((index, String::new(), String::new(), String::new()));
            }
            let known = calls.iter_mut().find(|(at, ..)| *at == index).unwrap();
            known.1 += &text_of(&call["id"]);
            known.2 += &text_of(&function["name"]);
            known.3 += &text_of(&function["arguments"]);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert_eq!(finish, None, "one finish reason");
            finish = Some(reason.to_owned());
        }
    }
    (text, calls, finish)
}

fn client_call(index: u64) -> ClientCall {
    (index, "t".into(), "get".into(), "{\"a\":1}".into())
}

/// Rewrites whole answers in turn. Each comes with its turn; one for the proxy only becomes empty.
fn whole(filter: AnswerFilter, answers: &[String]) -> Vec<(Bytes, ModelAnswer)> {
    whole_as(Format::Chat, filter, answers)
}

fn whole_as(format: Format, filter: AnswerFilter, answers: &[String]) -> Vec<(Bytes, ModelAnswer)> {
    let mut rewriter = AnswerRewriter::new(format, filter, None);
    let mut read = Vec::new();
    for answer in answers {
        let answer = answer.clone().into();
        match rewriter.take_whole(&answer) {
            Some(RewrittenAnswer::ForProxy(turn)) => read.push((Bytes::new(), turn)),
            Some(RewrittenAnswer::ForClient { json, said }) => {
                read.push((json, said));
                return read;
            }
            None => panic!("it cannot be read"),
        }
    }
    panic!("no end");
}

fn say(texts: &[&str]) -> String {
    let deltas = texts.iter().map(|text| {
        format!(
            "data: {{\"id\":\"one\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
        )
    });
    deltas.collect()
}
