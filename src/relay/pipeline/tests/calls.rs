//! Proxy-executed calls among the client's.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{
    BOTH, DONE, TEXT, TOOLS, call, calls, chunk, client, client_call, cut_at, filtering, finish,
    messages, more, run, run_cut, say, usage,
};
use crate::relay::pipeline::PipelineOutput;

#[test]
fn an_answer_for_the_client_only_is_untouched() {
    let stream = [
        chunk(json!({"role": "assistant", "content": ""})),
        ": ping\n\n".into(),
        chunk(json!({"content": "a < b"})),
        calls(&[call(0, "t", "get", "")]),
        more(0, "{}"),
        "data: no json\n\n".into(),
        "event: x\nid: 3\ndata: {\"choices\":3}\n\n".into(),
        finish("tool_calls"),
        usage(5, 6),
        DONE.into(),
    ]
    .concat();
    for filter in [TOOLS, TEXT, BOTH] {
        let relayed = run(&[&stream], filter);
        assert_eq!(relayed.bytes, stream);
        assert_eq!(relayed.ended, stream.len() - DONE.len());
        assert_eq!(relayed.turns[0].client_calls, 1);
    }
    let stripped = run_cut(&[&stream], TOOLS, true, |answer| vec![answer]);
    assert_eq!(stripped.bytes, stream.replace(&usage(5, 6), ""));
    assert!(stripped.summary.usage.is_some());
}

#[test]
fn proxy_calls_are_removed_and_client_calls_renumbered() {
    let proxy = |index| call(index, "o", "add_reminder", "");
    let get = |index| call(index, "t", "get", "");
    for (order, expected) in [
        (vec![proxy(0), get(1)], vec![client_call(0)]),
        (vec![get(0), proxy(1)], vec![client_call(0)]),
        (
            vec![get(0), proxy(1), get(2)],
            vec![client_call(0), client_call(1)],
        ),
        (vec![proxy(0), proxy(1), get(2)], vec![client_call(0)]),
        (
            vec![proxy(0), get(1), proxy(2), get(3)],
            vec![client_call(0), client_call(1)],
        ),
    ] {
        let mut single: Vec<_> = vec![chunk(json!({"role": "assistant", "content": null}))];
        for (at, call) in order.iter().enumerate() {
            single.push(calls(std::slice::from_ref(call)));
            single.extend(["{\"a\"", ":1}"].map(|part| more(at as u32, part)));
        }
        let end = [finish("tool_calls"), DONE.into()].concat();
        let relayed = run(&[&(single.concat() + &end)], TOOLS);
        assert_eq!(
            client(&relayed.bytes),
            (String::new(), expected.clone(), Some("tool_calls".into()))
        );
        let whole: Vec<_> = order
            .iter()
            .map(|call| {
                let mut call = call.clone();
                call["function"]["arguments"] = json!("{\"a\":1}");
                call
            })
            .collect();
        let at_once = run(&[&(calls(&whole) + &end)], TOOLS);
        assert_eq!(client(&at_once.bytes).1, expected);
        for relayed in [relayed, at_once] {
            let turn = &relayed.turns[0];
            assert_eq!(turn.client_calls as usize, expected.len());
            assert!(
                turn.proxy_calls
                    .iter()
                    .all(|call| &*call.arguments == "{\"a\":1}" && &*call.id == "o")
            );
            assert_eq!(turn.proxy_calls[0].before, u32::from(order[0]["id"] == "t"));
            let message: Value = serde_json::from_str(&turn.message).unwrap();
            assert_eq!(message["tool_calls"].as_array().unwrap().len(), order.len());
            assert_eq!(
                message["tool_calls"][0]["function"]["arguments"],
                "{\"a\":1}"
            );
            assert_eq!(relayed.summary.call_ids.len(), expected.len());
        }
    }
}

#[test]
fn calls_are_held_only_until_their_names_are_decided() {
    let named = |parts: &[&str], arguments: &str| {
        let mut events = vec![chunk(
            json!({"role": "assistant", "content": null, "tool_calls": [{"index": 0, "id": "t", "function": {"name": parts[0], "arguments": ""}}]}),
        )];
        events.extend(
            parts[1..]
                .iter()
                .map(|part| calls(&[json!({"index": 0, "function": {"name": part}})])),
        );
        events.push(chunk(json!({"content": "meanwhile"})));
        events.push(more(0, arguments));
        events.push(finish("tool_calls"));
        events.concat() + DONE
    };
    for parts in [
        &["add"][..],
        &["add_rem", "inders"],
        &["", "add"],
        &["add_reminder", "s"],
    ] {
        let stream = named(parts, "{}");
        let relayed = run(&[&stream], TOOLS);
        let (_, calls, _) = client(&relayed.bytes);
        assert_eq!(calls, [(0, "t".into(), parts.concat(), "{}".into())]);
        assert_eq!(relayed.turns[0].proxy_calls, []);
    }
    let stream = named(&["add", "_remin", "der"], "{}");
    let last = [
        chunk(json!({"role": "assistant", "content": "x"})),
        finish("stop"),
        DONE.into(),
    ]
    .concat();
    let relayed = run(&[&stream, &last], TOOLS);
    assert_eq!(
        client(&relayed.bytes),
        ("meanwhile\n\nx".into(), vec![], Some("stop".into()))
    );
    assert_eq!(&*relayed.turns[0].proxy_calls[0].name, "add_reminder");

    // Nothing but the event in question waits.
    let mut pipeline = filtering(TOOLS, false);
    let mut out = VecDeque::new();
    pipeline.push(calls(&[call(0, "t", "add_re", "")]).into(), &mut out);
    assert!(out.is_empty());
    let text = chunk(json!({"content": "x"}));
    pipeline.push(text.clone().into(), &mut out);
    assert_eq!(out.pop_front(), Some(PipelineOutput::Bytes(text.into())));
    pipeline.push(
        calls(&[json!({"index": 0, "function": {"name": "ally"}})]).into(),
        &mut out,
    );
    assert_eq!(out.len(), 2);
}

#[test]
fn text_beside_an_undecided_call_keeps_its_order() {
    let mut pipeline = filtering(TOOLS, false);
    let mut out = VecDeque::new();
    let both = chunk(json!({"content": "x", "tool_calls": [call(0, "t", "add", "")]}));
    let text = chunk(json!({"content": "y"}));
    let more = more(0, "{}");
    pipeline.push(both.clone().into(), &mut out);
    pipeline.push(text.clone().into(), &mut out);
    assert!(out.is_empty());
    pipeline.push(more.clone().into(), &mut out);
    let relayed = [both, text, more].map(|event| PipelineOutput::Bytes(event.into()));
    assert_eq!(Vec::from(out), relayed);
}

#[test]
fn a_call_without_a_name_is_held_up_to_a_bound() {
    let mut pipeline = filtering(TOOLS, false);
    let mut out = VecDeque::new();
    // Each is more than 50 bytes, and 64 KiB of them are held.
    for _ in 0..2 * (64 << 10) / 50 {
        pipeline.push(more(0, "").into(), &mut out);
    }
    assert!(!out.is_empty());
    let sent = out.len();
    pipeline.push(more(0, "").into(), &mut out);
    assert_eq!(out.len(), sent + 1);
}

#[test]
fn missing_or_shared_indices_are_not_renumbered() {
    let end = [finish("tool_calls"), DONE.into()].concat();
    let none = |id: &str, name: &str| json!({"id": id, "function": {"name": name, "arguments": "{\"a\":1}"}});
    let check = |stream: String, left: Value| {
        let relayed = run(&[&stream], TOOLS);
        let found = messages(&relayed.bytes);
        let mut found = found.iter().flat_map(|message| {
            message["choices"][0]["delta"]["tool_calls"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        });
        assert_eq!(found.next(), Some(left));
        assert_eq!(found.next(), None);
        assert_eq!(
            (
                relayed.turns[0].proxy_calls.len(),
                relayed.turns[0].client_calls
            ),
            (1, 1)
        );
    };
    check(
        calls(&[none("o", "clear_mind"), none("t", "get")]) + &end,
        none("t", "get"),
    );
    check(
        calls(&[none("o", "clear_mind")]) + &calls(&[none("t", "get")]) + &end,
        none("t", "get"),
    );
    let zero = |id: &str, name: &str| call(0, id, name, "{}");
    check(
        calls(&[zero("o", "clear_mind")]) + &calls(&[zero("t", "get")]) + &end,
        zero("t", "get"),
    );
    check(
        calls(&[zero("", "clear_mind"), zero("", "get")]) + &end,
        zero("", "get"),
    );
    check(
        calls(&[zero("", "clear_mind")]) + &calls(&[zero("", "get")]) + &end,
        zero("", "get"),
    );
}

#[test]
fn legacy_calls_are_removed_too() {
    let legacy = |name: &str| {
        [
            chunk(json!({"role": "assistant", "content": null, "function_call": {"name": name, "arguments": ""}})),
            chunk(json!({"function_call": {"arguments": "{\"a\""}})),
            chunk(json!({"function_call": {"arguments": ":1}"}})),
            finish("function_call"),
            DONE.into(),
        ]
        .concat()
    };
    let stream = legacy("get");
    assert_eq!(run(&[&stream], TOOLS).bytes, stream);
    let relayed = run(&[&legacy("clear_mind"), &stream], TOOLS);
    let call = &relayed.turns[0].proxy_calls[0];
    assert!(call.legacy);
    assert_eq!(
        &*call.json,
        r#"{"arguments":"{\"a\":1}","name":"clear_mind"}"#
    );
    let (role, rest) = (messages(&relayed.bytes), messages(&stream));
    assert_eq!(role[2..], rest[1..]);
    assert_eq!(
        role[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": null})
    );
}

#[test]
fn an_answer_that_is_cut_off_ends_for_the_client() {
    for reason in ["length", "content_filter"] {
        let role = chunk(json!({"role": "assistant", "content": null}));
        let end = finish(reason) + DONE;
        let stream = [&role, &*calls(&[call(0, "o", "clear_mind", "{")]), &end].concat();
        let relayed = run(&[&stream], TOOLS);
        assert_eq!(relayed.bytes, role + &end);
        assert_eq!(relayed.turns[0].proxy_calls.len(), 1);
    }
}

#[test]
fn other_choices_and_errors_pass() {
    let other = format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 1, "delta": {"tool_calls": [call(0, "o", "clear_mind", "{}")]}, "finish_reason": "tool_calls"}]})
    );
    let error = "event: error\ndata: {\"error\":{\"message\":\"m\"}}\n\n";
    let stream = format!(
        "{other}{}{error}{}",
        calls(&[call(0, "o", "clear_mind", "{}")]),
        finish("tool_calls")
    );
    let relayed = run(&[&stream], TOOLS);
    assert!(relayed.summary.error);
    assert!(relayed.bytes.starts_with(&other) && relayed.bytes.contains(error));
    assert!(relayed.bytes.ends_with(&finish("tool_calls")));
}

#[test]
fn arguments_are_kept_within_a_bound() {
    let long = "x".repeat(50_000);
    let mut stream = calls(&[call(0, "o", "clear_mind", "")]);
    (0..3).for_each(|_| stream += &more(0, &long));
    let last = finish("stop");
    let relayed = run_cut(
        &[&(stream + &finish("tool_calls")), &last],
        TOOLS,
        false,
        |answer| vec![answer],
    );
    let call = &relayed.turns[0].proxy_calls[0];
    assert!(call.overlong && call.arguments.is_empty());
    assert_eq!(relayed.bytes, last);
    let huge = say(&[&*"y".repeat(3 << 20), "z"]) + &last;
    let relayed = run_cut(&[&huge], TEXT, false, |answer| cut_at(answer, 60_000));
    assert_eq!(relayed.bytes, huge);
}
