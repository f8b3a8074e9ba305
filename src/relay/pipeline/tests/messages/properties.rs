//! What holds of every answer of Messages.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    FORMAT, STOP, accumulate::accumulate, expected_message, script::answer, streams, to_the_end,
};
use crate::{
    conversation::Format,
    format::AnswerRewriter,
    relay::pipeline::tests::{
        BOTH, TOOLS, check_echo, cut_at, filtering_as,
        generated::{NO_FILTER, PROXY_TOOLS, check_damaged_stream, damage, damage_stream},
        run_pipeline, whole_as,
    },
};

proptest! {
    #[test]
    fn any_stream_for_the_client_passes_as_it_came(answer in answer(true), size in 1_usize..90) {
        let stream = answer.stream("msg_0");
        for filter in [NO_FILTER, TOOLS, BOTH] {
            let pipeline = filtering_as(FORMAT, filter, false);
            let relayed = run_pipeline(pipeline, &[&stream], |answer| cut_at(answer, size));
            prop_assert_eq!(&relayed.bytes, &stream);
            prop_assert_eq!(relayed.ended, stream.len() - STOP.len());
        }
        prop_assert_eq!(accumulate(&stream), answer.message("msg_0"));
    }

    #[test]
    fn the_client_gets_its_blocks_in_both_modes(
        answers in prop::collection::vec(answer(false), 1..4),
        size in 1_usize..90,
    ) {
        let answers = to_the_end(&answers);
        let streams = streams(&answers);
        let streams: Vec<_> = streams.iter().map(|stream| &**stream).collect();
        let relay = |size: usize| {
            let pipeline = filtering_as(FORMAT, BOTH, false);
            run_pipeline(pipeline, &streams, |answer| cut_at(answer, size))
        };
        let relayed = relay(usize::MAX);
        prop_assert_eq!(&relay(size), &relayed);
        prop_assert_eq!(&relay(1), &relayed);
        let mut expected = expected_message(&answers);
        prop_assert_eq!(&accumulate(&relayed.bytes), &expected);
        let content = &expected["content"];
        if content.as_array().is_some_and(|blocks| !blocks.is_empty()) {
            let echo = json!({"role": "assistant", "content": content}).to_string();
            check_echo(Format::Messages, &echo, &relayed.summary);
        }
        for (turn, answer) in relayed.turns.iter().zip(&answers) {
            prop_assert!(turn.message.is_empty() || Format::Messages.index_items(&[&turn.message]).is_some());
            let names: Vec<_> = turn.proxy_calls.iter().map(|call| &*call.name).collect();
            prop_assert!(names.iter().all(|name| PROXY_TOOLS.contains(name)));
            let calls = answer.blocks.iter().filter(|block| block.is_proxy_call());
            prop_assert_eq!(names.len(), calls.count());
            if !turn.message.is_empty() {
                let mut message: Value = serde_json::from_str(&turn.message).unwrap();
                let mut content = answer.message("")["content"].take();
                let blocks = content.as_array_mut().unwrap();
                blocks.retain(|block| block["type"] != "text" || block["text"] != "");
                prop_assert_eq!(message["content"].take(), content);
            }
        }
        // In one piece: the same content, calls and messages.
        let bodies = answers.iter().enumerate();
        let bodies = bodies.map(|(at, answer)| answer.message(&format!("msg_{at}")).to_string());
        let bodies: Vec<_> = bodies.collect();
        let whole = whole_as(FORMAT, BOTH, &bodies);
        let json: Value = serde_json::from_slice(&whole.last().unwrap().0).unwrap();
        expected["id"] = json!("msg_0");
        prop_assert_eq!(json, expected);
        for ((_, whole), turn) in whole.iter().zip(&relayed.turns) {
            prop_assert_eq!(&whole.package, &turn.package);
            prop_assert_eq!(whole.client_calls, turn.client_calls);
            prop_assert_eq!(whole.usage, turn.usage);
            let parse = |json: &str| serde_json::from_str::<Value>(json).ok();
            prop_assert_eq!(parse(&whole.message), parse(&turn.message));
        }
    }

    #[test]
    fn damaged_streams_do_not_panic(
        answers in prop::collection::vec(answer(false), 1..3),
        damage in damage(),
        size in 1_usize..200,
    ) {
        let stream = damage_stream(&streams(&answers).concat(), damage);
        check_damaged_stream(FORMAT, &stream, size);
        let mut rewriter = AnswerRewriter::new(FORMAT, BOTH, None);
        for line in stream.split(|byte| *byte == b'\n') {
            let json = line.strip_prefix(b"data: ").unwrap_or(line);
            let json: Vec<u8> = String::from_utf8_lossy(json).replace("\"content_block\":{", "\"content\":[{").into();
            let _ = rewriter.take_whole(&json.into());
        }
    }
}
