//! How a stream of Responses ends: early, late, in an error, or not at all.

use super::*;

/// An event of an error, in both shapes.
fn error_events(number: usize) -> [String; 2] {
    let error = json!({"type": "server_error", "code": "c", "message": "m", "param": null});
    let flat = json!({"code": "c", "message": "m", "param": null});
    [
        event("error", number, &json!({ "error": error })),
        event("error", number, &flat),
    ]
}

#[test]
fn an_answer_that_is_cut_off_ends_for_the_client() {
    for status in ["incomplete", "failed"] {
        let answer = answer_of(&[message(&["a"]), call("clear_mind")], status);
        let relayed = run(&[&answer.stream(0)], TOOLS);
        check_answers(std::slice::from_ref(&answer), &relayed, 0);
        assert_eq!(relayed.summary.cut_off, status == "incomplete");
        assert_eq!(relayed.summary.error, status == "failed");
        assert_eq!(relayed.turns[0].proxy_calls.len(), 1);
    }
}

#[test]
fn after_an_error_no_other_answer_follows() {
    let stream = answer_of(&[call("clear_mind")], "completed").stream(0);
    let last = stream.rfind("event: ").unwrap();
    for error in error_events(7) {
        // In the midst, and in the place of the last event.
        for after in [&stream[last..], ""] {
            let stream = [&stream[..last], &error, after].concat();
            let relayed = run(&[&stream], TOOLS);
            assert!(relayed.summary.error && !relayed.summary.is_complete());
            assert!(relayed.bytes.contains("\"message\":\"m\""));
            assert!(!relayed.bytes.contains("clear_mind"));
            // The call's events are gone, and the numbers have no gap.
            assert!(
                relayed
                    .bytes
                    .contains("\"type\":\"error\",\"sequence_number\":2,")
            );
        }
    }
}

#[test]
fn a_stream_without_its_last_event_ends_where_it_stops() {
    let answer = answer_of(
        &[message(&["Hello <cont"]), call("clear_mind")],
        "completed",
    );
    let stream = answer.stream(0);
    let cut = &stream[..stream.rfind("event: ").unwrap()];
    for filter in [NO_FILTER, TEXT] {
        let relayed = run(&[cut], filter);
        assert_eq!(relayed.bytes, cut);
        assert_eq!(relayed.ended, cut.len());
        assert!(!relayed.summary.is_complete());
    }
    let relayed = run(&[cut], TOOLS);
    assert!(relayed.bytes.contains("Hello <cont") && !relayed.bytes.contains("clear_mind"));
}

#[test]
fn a_long_last_event_is_held_until_the_state_is_stored() {
    for (length, is_held) in [(20 << 10, true), (1 << 20, true), (3 << 20, false)] {
        let long: &'static str = "x".repeat(length / 2).leak();
        // Such an item comes twice, each time in an event of its own.
        let answer = answer_of(
            &[message(&["a"]), Item::Custom(vec![long, long])],
            "completed",
        );
        let stream = answer.stream(0);
        let last = stream.rfind("event: ").unwrap();
        for filter in [NO_FILTER, BOTH] {
            let whole = relay(std::slice::from_ref(&stream), filter, 0, usize::MAX);
            assert!(whole.bytes == stream);
            assert_eq!(whole.ended, if is_held { last } else { stream.len() });
            assert_eq!(whole.summary.done, is_held);
            assert_eq!(whole.summary.unreadable, !is_held);
            let cut = relay(std::slice::from_ref(&stream), filter, 0, 50_000);
            assert!(cut == whole);
        }
    }
    // The proxy's calls are removed from one that can be read.
    let long: &'static str = "x".repeat(1 << 19).leak();
    let items = [message(&[long]), call("clear_mind"), call("get")];
    let answer = answer_of(&items, "completed");
    let relayed = relay(&[answer.stream(0)], BOTH, 5, 50_000);
    check_answers(&[answer], &relayed, 5);
}

#[test]
fn left_out_tokens_are_added_where_the_prompt_is_reported() {
    let stream = answer_of(&[message(&["a"])], "completed").stream(0);
    let relayed = relay(std::slice::from_ref(&stream), NO_FILTER, 1_000, 7);
    let counted = stream.replace("\"input_tokens\":100", "\"input_tokens\":1100");
    let counted = counted.replace("\"total_tokens\":120", "\"total_tokens\":1120");
    assert_eq!(relayed.bytes, counted);
    assert_eq!(relayed.summary.usage.unwrap().prompt_tokens, 100);
    // A prompt of 0 is not known.
    let zero = stream.replace("\"input_tokens\":100", "\"input_tokens\":0");
    let relayed = relay(std::slice::from_ref(&zero), NO_FILTER, 1_000, 7);
    assert_eq!(relayed.bytes, zero);
}

#[test]
fn an_empty_answer_ends_the_response() {
    let first = answer_of(&[reasoning(true), call("clear_mind")], "completed");
    let answers = to_the_end(vec![first.clone()]);
    let usage = super::super::whole_as(FORMAT, TOOLS, &bodies(&answers))[0]
        .1
        .usage;
    let empty = FORMAT.empty_answer(true, "m", usage);
    let empty = String::from_utf8(empty.to_vec()).unwrap();
    let (items, _) = accumulate(&empty);
    assert!(items.is_empty());
    let relayed = run(&[&first.stream(0), &empty], TOOLS);
    let (items, response) = accumulate(&relayed.bytes);
    assert_eq!(items, first.client_items(0));
    assert_eq!(response["id"], "resp_0");
    assert_eq!(response["usage"]["output_tokens"], 40);
    let whole: Value = serde_json::from_slice(&FORMAT.empty_answer(false, "m", usage)).unwrap();
    assert_eq!(whole["output"], json!([]));
}
