//! Any stream at any cut, recorded or generated.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    BOTH, DONE, TOOLS, call, calls, chunk, client, cut_at, filtering, finish,
    generated::{damage, damage_stream},
    messages, more, run_cut, say, usage, whole,
};
use crate::{
    conversation::Format,
    format::AnswerRewriter,
    relay::{
        pipeline::PipelineOutput,
        tests::{random_pieces, recordings},
    },
};

#[test]
fn recorded_streams_pass_byte_for_byte() {
    for (file, stream, _) in recordings() {
        let Ok(text) = std::str::from_utf8(&stream) else {
            continue;
        };
        let whole = run_cut(&[text], BOTH, false, |answer| vec![answer]);
        assert!(whole.bytes == text, "{file}");
        for seed in 1..4 {
            let cut = run_cut(&[text], BOTH, false, |answer| random_pieces(answer, seed));
            assert!(cut == whole, "{file}");
        }
        if file.contains("parallel") {
            assert!(whole.turns[0].client_calls > 1, "{file}");
        }
    }
}

fn event() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("clear_mind"),
        Just("get"),
        Just("add"),
        Just("add_rem"),
        Just("inder"),
        Just("")
    ];
    prop_oneof![
        (
            0u32..4,
            name.clone(),
            prop_oneof![Just(""), Just("{}")],
            0usize..3
        )
            .prop_map(|(index, name, arguments, id)| calls(&[call(
                index,
                ["", "a", "b"][id],
                name,
                arguments
            )])),
        (0u32..4, 0u32..4, name)
            .prop_map(|(a, b, name)| calls(&[call(a, "x", name, ""), call(b, "y", "get", "{}")])),
        (0u32..4).prop_map(|index| more(index, "{\"a\":1}")),
        prop_oneof![
            Just("<"),
            Just("x"),
            Just("<continuation_package>"),
            Just("</continuation_package>"),
            Just(" ")
        ]
        .prop_map(|text| say(&[text])),
        Just(chunk(json!({"role": "assistant", "content": ""}))),
        Just(": ping\n\n".to_owned()),
        Just("data: {\"choices\":[{\"delta\":{\"tool_calls\":[null,{}]}}]}\r\n\r\n".to_owned()),
        Just(
            "data: {\"choices\":\ndata: [{\"delta\":\ndata: {\"content\":\"<y\"}}]}\n\n".to_owned()
        ),
        Just(usage(3, 4)),
    ]
}

/// A stream of these calls, with arguments in `pieces` pieces.
fn answer_of(all: &[Value], text: &str, pieces: usize) -> String {
    let mut stream = chunk(json!({"role": "assistant", "content": text}));
    for call in all {
        let arguments: Vec<_> = call["function"]["arguments"]
            .as_str()
            .unwrap()
            .chars()
            .collect();
        let mut first = call.clone();
        first["function"]["arguments"] = json!("");
        stream += &calls(&[first]);
        for piece in arguments.chunks(arguments.len().div_ceil(pieces).max(1)) {
            let mut fragment = json!({"function": {"arguments": piece.iter().collect::<String>()}});
            if let Some(index) = call.get("index") {
                fragment["index"] = index.clone();
            }
            stream += &calls(&[fragment]);
        }
    }
    stream + &finish("tool_calls") + DONE
}

/// Index, name and arguments of each call by its id. The first fragment of a call must have the id.
fn calls_of(stream: &str) -> HashMap<String, (Option<u64>, String, String)> {
    let mut found = HashMap::new();
    let mut last = String::new();
    for message in messages(stream) {
        for call in message["choices"][0]["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            if let Some(id) = call["id"].as_str() {
                last = id.to_owned();
            }
            let entry: &mut (Option<u64>, String, String) = found.entry(last.clone()).or_default();
            entry.0 = call["index"].as_u64();
            entry.1 += call["function"]["name"].as_str().unwrap_or_default();
            entry.2 += call["function"]["arguments"].as_str().unwrap_or_default();
        }
    }
    found
}

proptest! {
    #[test]
    fn damaged_streams_do_not_panic(
        events in prop::collection::vec(event(), 0..8),
        damage in damage(),
        size in 1usize..200,
    ) {
        let stream = damage_stream(&(events.concat() + &finish("tool_calls") + DONE), damage);
        let mut pipeline = filtering(BOTH, true);
        let mut out = VecDeque::new();
        for answer in [&stream, &stream] {
            for piece in answer.chunks(size) {
                pipeline.push(Bytes::copy_from_slice(piece), &mut out);
            }
            pipeline.finish_stream(size % 2 == 0, &mut out);
            if pipeline.is_for_proxy() {
                pipeline.begin_answer();
            }
        }
        let mut rewriter = AnswerRewriter::new(Format::Chat, BOTH, None);
        for line in stream.split(|byte| *byte == b'\n') {
            let json = line.strip_prefix(b"data: ").unwrap_or(line);
            let json: Vec<u8> = String::from_utf8_lossy(json).replace("\"delta\"", "\"message\"").into();
            let _ = rewriter.take_whole(&json.into());
        }
    }

    #[test]
    fn any_stream_is_the_same_at_any_cut(events in prop::collection::vec(event(), 0..10), sizes in prop::collection::vec(1usize..60, 1..6), reason in 0usize..4) {
        let end = ["", "stop", "tool_calls", "length"][reason];
        let end = if end.is_empty() { String::new() } else { finish(end) + DONE };
        let stream = events.concat() + &end;
        let last = say(&["z"]) + &finish("stop") + DONE;
        let run = |cut: &dyn Fn(&[u8]) -> Vec<Bytes>| {
            let mut pipeline = filtering(BOTH, false);
            let mut out = VecDeque::new();
            let mut turns = Vec::new();
            for answer in [&stream, &last] {
                cut(answer.as_bytes()).into_iter().for_each(|piece| pipeline.push(piece, &mut out));
                pipeline.finish_stream(false, &mut out);
                if !pipeline.is_for_proxy() {
                    break;
                }
                turns.push(pipeline.begin_answer());
            }
            turns.push(pipeline.model_answer());
            let bytes: Vec<u8> = out.into_iter().flat_map(|piece| match piece {
                PipelineOutput::Bytes(bytes) => bytes.to_vec(),
                PipelineOutput::End => Vec::new(),
            }).collect();
            (String::from_utf8(bytes).unwrap(), turns, pipeline.preceding_text(), pipeline.response_summary())
        };
        let whole = run(&|answer| vec![Bytes::copy_from_slice(answer)]);
        let cut = run(&|answer| {
            let mut pieces = Vec::new();
            let mut rest = answer;
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, others) = rest.split_at((*size).min(rest.len()));
                pieces.push(Bytes::copy_from_slice(piece));
                rest = others;
            }
            pieces
        });
        prop_assert_eq!(&cut, &whole);
        let one = run(&|answer| answer.chunks(1).map(Bytes::copy_from_slice).collect());
        prop_assert_eq!(&one, &whole);
        for turn in &whole.1 {
            prop_assert!(turn.message.is_empty() || serde_json::from_str::<Value>(&turn.message).is_ok());
        }
    }

    #[test]
    fn the_client_gets_its_calls_and_the_text_in_both_modes(
        called in prop::collection::vec((0usize..5, 0usize..4), 1..6),
        style in 0usize..3,
        pieces in 1usize..5,
        size in 1usize..90,
        text in prop_oneof![Just(""), Just("Let me see."), Just("hm ")],
    ) {
        const NAMES: [&str; 5] = ["add_reminder", "clear_mind", "get", "add", "add_reminders"];
        const ARGUMENTS: [&str; 4] = ["", "{}", "{\"a\":\"é\\n\"}", "no json"];
        let all: Vec<_> = called.iter().enumerate().map(|(at, (name, arguments))| {
            let mut call = call(at as u32, &format!("id{at}"), NAMES[*name], ARGUMENTS[*arguments]);
            if style == 1 {
                call["index"] = json!(0);
            } else if style == 2 {
                call.as_object_mut().unwrap().remove("index");
            }
            call
        }).collect();
        let answer = answer_of(&all, text, pieces);
        let one = json!({"id": "one", "choices": [{"message": {"role": "assistant", "content": text, "tool_calls": all}, "finish_reason": "tool_calls"}]});
        let last = json!({"id": "two", "choices": [{"message": {"role": "assistant", "content": "End."}, "finish_reason": "stop"}]});
        let alone = called.iter().all(|(name, _)| *name < 2);
        let end = say(&["End."]) + &finish("stop") + DONE;
        let answers = if alone { vec![&*answer, &*end] } else { vec![&*answer] };
        let relayed = run_cut(&answers, TOOLS, false, |answer| cut_at(answer, size));

        let mut answers = whole(TOOLS, &[one.to_string(), last.to_string()]);
        if alone {
            prop_assert_eq!(answers.len(), 2);
            prop_assert_eq!(&answers[0].1.proxy_calls, &relayed.turns[0].proxy_calls);
        }
        let (json, turn) = answers.pop().unwrap();
        let message = serde_json::from_slice::<Value>(&json).unwrap()["choices"][0]["message"].clone();
        prop_assert_eq!(turn.client_calls, relayed.turns.last().unwrap().client_calls);
        prop_assert_eq!(client(&relayed.bytes).0, message["content"].as_str().unwrap());
        let client_calls: Vec<_> = all.iter().zip(&called).filter(|(_, (name, _))| *name > 1).collect();
        let kept = message["tool_calls"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(kept.len(), client_calls.len());
        let mut streamed = calls_of(&relayed.bytes);
        for (at, (call, _)) in client_calls.iter().enumerate() {
            let mut call = (*call).clone();
            if style == 0 {
                call["index"] = json!(at);
            }
            prop_assert_eq!(&call, &kept[at]);
            let id = call["id"].as_str().unwrap();
            prop_assert_eq!(streamed.remove(id), Some((call["index"].as_u64(), call["function"]["name"].as_str().unwrap().to_owned(), call["function"]["arguments"].as_str().unwrap().to_owned())));
        }
        prop_assert!(streamed.is_empty());
    }
}
