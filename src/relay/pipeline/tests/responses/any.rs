//! Any stream and any answer, generated, hostile or damaged.

use super::*;
use crate::{
    conversation::Format,
    relay::pipeline::tests::{check_echo, whole_as},
};

#[test]
fn hostile_events_do_not_break_the_stream() {
    let begun = answer_of(&[], "completed").stream(0);
    let start = begun.split_inclusive("\n\n").next().unwrap();
    let events = [
        r#"{"type":7,"output_index":{},"sequence_number":[]}"#,
        // After an error, no other answer follows.
        r#"{"type":"error"}"#,
        r#"{"type":"response.output_item.added"}"#,
        r#"{"type":"response.output_item.added","output_index":-1,"item":[]}"#,
        r#"{"type":"response.output_item.added","output_index":18446744073709551615,"sequence_number":18446744073709551615,"item":{"type":"function_call","name":"clear_mind"}}"#,
        r#"{"type":"response.output_item.done","output_index":18446744073709551615,"sequence_number":18446744073709551615,"item":{"type":"function_call","id":7,"id":null,"name":"clear_mind"}}"#,
        r#"{"type":"response.output_item.added","item":{"type":"message","content":[5,null,{"type":"output_text","text":{}}]}}"#,
        r#"{"type":"response.output_text.delta","delta":"<cont"}"#,
        r#"{"type":"response.output_text.delta","output_index":9,"delta":"\ud83d"}"#,
        r#"{"type":"response.output_text.done","output_index":9,"text":"<continuation_package>"}"#,
        r#"{"type":"response.content_part.done","output_index":9,"part":"x"}"#,
        r#"{"type":"response.output_item.done"}"#,
        r#"{"type":"response.created","response":[]}"#,
        r#"{"type":"response.completed","response":{"output":[1,[],{"type":[]}],"status":5,"usage":[]}}"#,
        r#"{"type":"response.completed","response":{"id":"","output":{},"usage":{"input_tokens":-4,"output_tokens":"x"}}}"#,
        r#"{"type":"response.failed"}"#,
    ];
    check_hostile_events(FORMAT, start, &events);
}

proptest! {
    #[test]
    fn any_stream_for_the_client_passes_as_it_came(answer in answer(true), size in 1_usize..90) {
        let stream = answer.stream(0);
        for filter in [NO_FILTER, TOOLS, BOTH] {
            let relayed = relay(std::slice::from_ref(&stream), filter, 0, size);
            prop_assert_eq!(&relayed.bytes, &stream);
            prop_assert_eq!(relayed.ended, stream.rfind("event: response").unwrap());
        }
        let (items, _) = accumulate(&stream);
        prop_assert_eq!(items, answer.whole_items(0));
    }

    #[test]
    fn the_client_gets_its_items_in_both_modes(
        answers in prop::collection::vec(answer(false), 1..4),
        size in 1_usize..90,
        left_out in prop_oneof![Just(0_u32), Just(1_000)],
    ) {
        let answers = to_the_end(answers);
        let streams = streams(&answers);
        let relayed = relay(&streams, BOTH, left_out, usize::MAX);
        prop_assert_eq!(&relay(&streams, BOTH, left_out, size), &relayed);
        check_answers(&answers, &relayed, left_out);
        // A compaction, and an unknown entry that begins the answer, are read as entries that no model gave.
        let items = client_items(&answers);
        let is_kind = |item: &Value, kind: &str| item["type"] == kind;
        let begins_answer = |first: &Value| !is_kind(first, "x_new_item");
        let is_one_answer = !items.iter().any(|item| is_kind(item, "compaction"));
        if is_one_answer && items.first().is_some_and(begins_answer) {
            let echo: Vec<_> = items.iter().map(Value::to_string).collect();
            check_echo(Format::Responses, &echo.join(","), &relayed.summary);
        }
        // In one piece: the same items, calls and messages.
        let whole = whole_as(FORMAT, BOTH, &bodies(&answers));
        let json: Value = serde_json::from_slice(&whole.last().unwrap().0).unwrap();
        prop_assert_eq!(json, expected_response(&answers, 0));
        for ((_, whole), turn) in whole.iter().zip(&relayed.turns) {
            prop_assert_eq!(whole, turn);
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
            let json = Bytes::copy_from_slice(line.strip_prefix(b"data: ").unwrap_or(line));
            let _ = rewriter.take_whole(&json);
        }
    }
}
