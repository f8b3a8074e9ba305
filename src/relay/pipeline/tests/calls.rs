//! Our calls among the client's.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{
    BOTH, DONE, TEXT, TOOLS, call, calls, chunk, client, cut_at, finish, messages, more, run,
    run_cut, say, sifting, theirs, usage,
};
use crate::relay::pipeline::PipelineOutput;

#[test]
fn an_answer_without_anything_of_ours_is_untouched() {
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
    for sifting in [TOOLS, TEXT, BOTH] {
        let came = run(&[&stream], sifting);
        assert_eq!(came.bytes, stream);
        assert_eq!(came.ended, stream.len() - DONE.len());
        assert_eq!(came.spoken[0].client_calls, 1);
    }
    let stripped = run_cut(&[&stream], TOOLS, true, |answer| vec![answer]);
    assert_eq!(stripped.bytes, stream.replace(&usage(5, 6), ""));
    assert!(stripped.heard.usage.is_some());
}

#[test]
fn our_calls_go_whatever_their_order_and_the_clients_are_renumbered() {
    let own = |index| call(index, "o", "add_reminder", "");
    let get = |index| call(index, "t", "get", "");
    for (order, expected) in [
        (vec![own(0), get(1)], vec![theirs(0)]),
        (vec![get(0), own(1)], vec![theirs(0)]),
        (vec![get(0), own(1), get(2)], vec![theirs(0), theirs(1)]),
        (vec![own(0), own(1), get(2)], vec![theirs(0)]),
        (
            vec![own(0), get(1), own(2), get(3)],
            vec![theirs(0), theirs(1)],
        ),
    ] {
        let mut single: Vec<_> = vec![chunk(json!({"role": "assistant", "content": null}))];
        for (at, call) in order.iter().enumerate() {
            single.push(calls(std::slice::from_ref(call)));
            single.extend(["{\"a\"", ":1}"].map(|part| more(at as u32, part)));
        }
        let end = [finish("tool_calls"), DONE.into()].concat();
        let came = run(&[&(single.concat() + &end)], TOOLS);
        assert_eq!(
            client(&came.bytes),
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
        for came in [came, at_once] {
            let spoken = &came.spoken[0];
            assert_eq!(spoken.client_calls as usize, expected.len());
            assert!(
                spoken
                    .proxy_calls
                    .iter()
                    .all(|own| &*own.arguments == "{\"a\":1}" && &*own.id == "o")
            );
            assert_eq!(
                spoken.proxy_calls[0].before,
                u32::from(order[0]["id"] == "t")
            );
            let message: Value = serde_json::from_str(&spoken.message).unwrap();
            assert_eq!(message["tool_calls"].as_array().unwrap().len(), order.len());
            assert_eq!(
                message["tool_calls"][0]["function"]["arguments"],
                "{\"a\":1}"
            );
            assert_eq!(came.heard.call_ids.len(), expected.len());
        }
    }
}

#[test]
fn names_in_fragments_are_held_only_until_they_are_decided() {
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
        let came = run(&[&stream], TOOLS);
        let (_, calls, _) = client(&came.bytes);
        assert_eq!(calls, [(0, "t".into(), parts.concat(), "{}".into())]);
        assert_eq!(came.spoken[0].proxy_calls, []);
    }
    let stream = named(&["add", "_remin", "der"], "{}");
    let last = [
        chunk(json!({"role": "assistant", "content": "x"})),
        finish("stop"),
        DONE.into(),
    ]
    .concat();
    let came = run(&[&stream, &last], TOOLS);
    assert_eq!(
        client(&came.bytes),
        ("meanwhile\n\nx".into(), vec![], Some("stop".into()))
    );
    assert_eq!(&*came.spoken[0].proxy_calls[0].name, "add_reminder");

    // Nothing but the event in question waits.
    let mut pipeline = sifting(TOOLS, false);
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
fn what_is_said_beside_an_undecided_call_keeps_its_order() {
    let mut pipeline = sifting(TOOLS, false);
    let mut out = VecDeque::new();
    let both = chunk(json!({"content": "x", "tool_calls": [call(0, "t", "add", "")]}));
    let text = chunk(json!({"content": "y"}));
    let more = more(0, "{}");
    pipeline.push(both.clone().into(), &mut out);
    pipeline.push(text.clone().into(), &mut out);
    assert!(out.is_empty());
    pipeline.push(more.clone().into(), &mut out);
    let came = [both, text, more].map(|event| PipelineOutput::Bytes(event.into()));
    assert_eq!(Vec::from(out), came);
}

#[test]
fn an_endless_name_is_not_held_for_ever() {
    let mut pipeline = sifting(TOOLS, false);
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
fn indices_that_tell_nothing_are_left_alone() {
    let end = [finish("tool_calls"), DONE.into()].concat();
    let none = |id: &str, name: &str| json!({"id": id, "function": {"name": name, "arguments": "{\"a\":1}"}});
    let check = |stream: String, left: Value| {
        let came = run(&[&stream], TOOLS);
        let found = messages(&came.bytes);
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
                came.spoken[0].proxy_calls.len(),
                came.spoken[0].client_calls
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
fn a_legacy_call_is_one_too() {
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
    let came = run(&[&legacy("clear_mind"), &stream], TOOLS);
    let own = &came.spoken[0].proxy_calls[0];
    assert!(own.legacy);
    assert_eq!(
        &*own.json,
        r#"{"arguments":"{\"a\":1}","name":"clear_mind"}"#
    );
    let (role, rest) = (messages(&came.bytes), messages(&stream));
    assert_eq!(role[2..], rest[1..]);
    assert_eq!(
        role[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": null})
    );
}

#[test]
fn a_finish_that_is_no_end_of_ours_stays() {
    for reason in ["length", "content_filter"] {
        let role = chunk(json!({"role": "assistant", "content": null}));
        let end = finish(reason) + DONE;
        let stream = [&role, &*calls(&[call(0, "o", "clear_mind", "{")]), &end].concat();
        let came = run(&[&stream], TOOLS);
        assert_eq!(came.bytes, role + &end);
        assert_eq!(came.spoken[0].proxy_calls.len(), 1);
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
    let came = run(&[&stream], TOOLS);
    assert!(came.heard.error);
    assert!(came.bytes.starts_with(&other) && came.bytes.contains(error));
    assert!(came.bytes.ends_with(&finish("tool_calls")));
}

#[test]
fn arguments_are_kept_within_a_bound() {
    let long = "x".repeat(50_000);
    let mut stream = calls(&[call(0, "o", "clear_mind", "")]);
    (0..3).for_each(|_| stream += &more(0, &long));
    let last = finish("stop");
    let came = run_cut(
        &[&(stream + &finish("tool_calls")), &last],
        TOOLS,
        false,
        |answer| vec![answer],
    );
    let own = &came.spoken[0].proxy_calls[0];
    assert!(own.overlong && own.arguments.is_empty());
    assert_eq!(came.bytes, last);
    let huge = say(&[&*"y".repeat(3 << 20), "z"]) + &last;
    let came = run_cut(&[&huge], TEXT, false, |answer| cut_at(answer, 60_000));
    assert_eq!(came.bytes, huge);
}
