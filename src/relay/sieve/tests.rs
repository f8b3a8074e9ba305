use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_HELD, Sieve, Sifted, Sifter};
use crate::{
    relay::{
        Before, Heard, Own, Sifting, Spoken,
        passage::{
            Piece,
            recorded::{random_pieces, recordings},
        },
    },
    wire::text,
};

const TOOLS: Sifting = Sifting {
    tools: &["add_reminder", "update_reminder", "clear_mind"],
    package: false,
};
const TEXT: Sifting = Sifting {
    tools: &[],
    package: true,
};
const BOTH: Sifting = Sifting {
    package: true,
    ..TOOLS
};
const DONE: &str = "data: [DONE]\n\n";

/// All that a response to a client came to.
#[derive(Clone, Debug, PartialEq)]
struct Came {
    bytes: String,
    spoken: Vec<Spoken>,
    before: Before,
    heard: Heard,
    ended: usize,
}

fn cut_at(stream: &[u8], size: usize) -> Vec<&[u8]> {
    stream.chunks(size).collect()
}

/// Runs answers through a sieve, each cut by `cut`.
fn run_cut<'a>(
    answers: &[&'a str],
    sifting: Sifting,
    strip: bool,
    cut: impl Fn(&'a [u8]) -> Vec<&'a [u8]>,
) -> Came {
    let mut sieve = Sieve::new(sifting, strip, false);
    let (mut out, mut spoken) = (VecDeque::new(), Vec::new());
    for answer in answers {
        if !spoken.is_empty() || sieve.round() {
            assert!(sieve.round(), "the answer was not gone on with: {out:?}");
            spoken.push(sieve.turn());
        } else if sieve.drained() {
            panic!("the first answer was the last");
        }
        for piece in cut(answer.as_bytes()) {
            sieve.push(Bytes::copy_from_slice(piece), &mut out);
        }
        sieve.finish(false, &mut out);
    }
    assert!(!sieve.round(), "another answer is wanted");
    spoken.push(sieve.spoken());
    let (mut bytes, mut ended) = (Vec::new(), usize::MAX);
    for piece in out {
        match piece {
            Piece::Bytes(piece) => bytes.extend_from_slice(&piece),
            Piece::End => {
                assert_eq!(ended, usize::MAX, "the answer ends once");
                ended = bytes.len();
            }
        }
    }
    Came {
        bytes: String::from_utf8(bytes).unwrap(),
        spoken,
        before: sieve.before(),
        heard: sieve.heard(),
        ended,
    }
}

/// The same at every cut, or the test fails.
fn run(answers: &[&str], sifting: Sifting) -> Came {
    let whole = run_cut(answers, sifting, false, |answer| vec![answer]);
    let longest = answers.iter().map(|answer| answer.len()).max().unwrap_or(0);
    for at in 0..longest {
        let cut = run_cut(answers, sifting, false, |answer| {
            let (left, right) = answer.split_at(at.min(answer.len()));
            vec![left, right]
        });
        assert_eq!(cut, whole, "cut at {at}");
    }
    for size in [1, 2, 7] {
        let cut = run_cut(answers, sifting, false, |answer| cut_at(answer, size));
        assert_eq!(cut, whole, "pieces of {size}");
    }
    for end in ["\r\n", "\r"] {
        let spelled: Vec<_> = answers
            .iter()
            .map(|answer| answer.replace('\n', end))
            .collect();
        let spelled: Vec<_> = spelled.iter().map(|answer| &**answer).collect();
        let other = run_cut(&spelled, sifting, false, |answer| cut_at(answer, 1));
        assert_eq!(other.spoken, whole.spoken);
        assert_eq!(messages(&other.bytes), messages(&whole.bytes), "{end:?}");
        let again = run_cut(&spelled, sifting, false, |answer| vec![answer]);
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

/// What a client's library makes of the stream: text, calls as (index, id, name, arguments), and
/// the finish reason.
fn client(stream: &str) -> (String, Vec<(u64, String, String, String)>, Option<String>) {
    let (mut text, mut finish) = (String::new(), None);
    let mut calls = Vec::<(u64, String, String, String)>::new();
    for message in messages(stream) {
        let choice = &message["choices"][0];
        text += choice["delta"]["content"].as_str().unwrap_or_default();
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let index = call["index"].as_u64().unwrap_or(0);
            let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let function = &call["function"];
            if !calls.iter().any(|(at, ..)| *at == index) {
                calls.push((index, String::new(), String::new(), String::new()));
            }
            let known = calls.iter_mut().find(|(at, ..)| *at == index).unwrap();
            known.1 += &said(&call["id"]);
            known.2 += &said(&function["name"]);
            known.3 += &said(&function["arguments"]);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            assert_eq!(finish, None, "one finish reason");
            finish = Some(reason.to_owned());
        }
    }
    (text, calls, finish)
}

fn theirs(index: u64) -> (u64, String, String, String) {
    (index, "t".into(), "get".into(), "{\"a\":1}".into())
}

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
        assert_eq!(came.spoken[0].theirs, 1);
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
            assert_eq!(spoken.theirs as usize, expected.len());
            assert!(
                spoken
                    .own
                    .iter()
                    .all(|own| &*own.arguments == "{\"a\":1}" && &*own.id == "o")
            );
            assert_eq!(spoken.own[0].before, u32::from(order[0]["id"] == "t"));
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
        assert_eq!(came.spoken[0].own, []);
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
    assert_eq!(&*came.spoken[0].own[0].name, "add_reminder");

    // Nothing but the event in question waits.
    let mut sieve = Sieve::new(TOOLS, false, false);
    let mut out = VecDeque::new();
    sieve.push(calls(&[call(0, "t", "add_re", "")]).into(), &mut out);
    assert!(out.is_empty());
    let text = chunk(json!({"content": "x"}));
    sieve.push(text.clone().into(), &mut out);
    assert_eq!(out.pop_front(), Some(Piece::Bytes(text.into())));
    sieve.push(
        calls(&[json!({"index": 0, "function": {"name": "ally"}})]).into(),
        &mut out,
    );
    assert_eq!(out.len(), 2);
}

#[test]
fn what_is_said_beside_an_undecided_call_goes_on_at_once() {
    let mut sieve = Sieve::new(TOOLS, false, false);
    let mut out = VecDeque::new();
    let both = chunk(json!({"content": "x", "tool_calls": [call(0, "t", "add", "")]}));
    sieve.push(both.into(), &mut out);
    let Some(Piece::Bytes(sent)) = out.pop_front() else {
        panic!("nothing came")
    };
    let sent = messages(std::str::from_utf8(&sent).unwrap());
    assert_eq!(sent[0]["choices"][0]["delta"], json!({"content": "x"}));
    let rest = [more(0, "{}"), finish("tool_calls"), DONE.into()].concat();
    sieve.push(rest.into(), &mut out);
    let Some(Piece::Bytes(held)) = out.pop_front() else {
        panic!("nothing came")
    };
    let held = messages(std::str::from_utf8(&held).unwrap());
    assert_eq!(
        held[0]["choices"][0]["delta"],
        json!({"tool_calls": [call(0, "t", "add", "")]})
    );
}

#[test]
fn an_endless_name_is_not_held_for_ever() {
    let mut sieve = Sieve::new(TOOLS, false, false);
    let mut out = VecDeque::new();
    for _ in 0..2 * MAX_HELD / 50 {
        sieve.push(more(0, "").into(), &mut out);
    }
    assert!(!out.is_empty());
    assert!(sieve.held.is_empty());
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
        assert_eq!((came.spoken[0].own.len(), came.spoken[0].theirs), (1, 1));
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
    let own = &came.spoken[0].own[0];
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
fn several_answers_are_one() {
    let first = [
        chunk(json!({"role": "assistant", "content": "Let me note that."})),
        calls(&[call(0, "o", "add_reminder", "{}")]),
        finish("tool_calls"),
        usage(100, 20),
        DONE.into(),
    ]
    .concat();
    let second = first
        .replace("one", "two")
        .replace("note that.", "note more. ");
    let third = [
        chunk(json!({"role": "assistant", "content": ""})),
        chunk(json!({"role": "assistant", "content": "Ready"})),
        calls(&[call(0, "t", "get", "{}")]),
        finish("tool_calls"),
        usage(130, 7),
        DONE.into(),
    ]
    .concat()
    .replace("one", "three");
    let came = run(&[&first, &second, &third], TOOLS);
    let text = "Let me note that.\n\nLet me note more. Ready";
    let call = (0, "t".to_owned(), "get".to_owned(), "{}".to_owned());
    assert_eq!(
        client(&came.bytes),
        (text.into(), vec![call], Some("tool_calls".into()))
    );
    let messages = messages(&came.bytes);
    let events = messages.iter().filter(|message| message.is_object());
    assert!(events.clone().all(|message| message["id"] == "one"));
    let role = |message: &&Value| message["choices"][0]["delta"].get("role").is_some();
    assert_eq!(events.clone().filter(role).count(), 1);
    let usage = events
        .clone()
        .find_map(|message| message.get("usage"))
        .unwrap();
    assert_eq!(
        *usage,
        json!({"prompt_tokens": 130, "completion_tokens": 47, "total_tokens": 177})
    );
    let spoke = text.strip_suffix("Ready").unwrap();
    assert_eq!(came.before.chars as usize, spoke.chars().count());
    assert_eq!(
        came.before.digest,
        text::digest(text::escape(spoke).as_bytes())
    );
    assert_eq!(came.heard.text, text::digest(text::escape(text).as_bytes()));
    assert_eq!(came.heard.usage.unwrap().completion_tokens, Some(47));
    assert_eq!(came.heard.usage.unwrap().prompt_tokens, 130);
    let reported: Vec<_> = came
        .spoken
        .iter()
        .map(|spoken| spoken.usage.unwrap().completion_tokens)
        .collect();
    assert_eq!(reported, [Some(20), Some(20), Some(7)]);
    assert_eq!(
        &*came.spoken[2].message,
        r#"{"role":"assistant","content":"Ready","tool_calls":[{"function":{"arguments":"{}","name":"get"},"id":"t","type":"function"}]}"#
    );
}

#[test]
fn usage_is_summed_wherever_it_stands() {
    let first = [
        calls(&[call(0, "o", "clear_mind", "{}")]),
        finish("stop"),
        usage(9, 10),
        DONE.into(),
    ]
    .concat();
    let spelled = r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":8}"#;
    let summed = r#"{"prompt_tokens":3,"completion_tokens":14,"total_tokens":18}"#;
    for place in [
        format!(
            r#"data: {{"choices":[{{"delta":{{}},"finish_reason":"stop"}}],"usage":{spelled}}}"#
        ),
        format!(
            r#"data: {{"choices":[{{"delta":{{}},"finish_reason":"stop","usage":{spelled}}}]}}"#
        ),
        format!(
            r#"data: {{"choices":[{{"delta":{{}},"finish_reason":"stop"}}],"x_groq":{{"usage":{spelled}}}}}"#
        ),
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"x\"}}}}],\"usage\":{spelled}}}\n\n{}",
            finish("stop").trim_end()
        ),
    ] {
        let second = format!("{place}\n\n{DONE}");
        let came = run(&[&first, &second], TOOLS);
        assert_eq!(came.bytes, second.replace(spelled, summed));
    }
}

#[test]
fn a_finish_that_is_no_end_of_ours_stays() {
    for reason in ["length", "content_filter"] {
        let role = chunk(json!({"role": "assistant", "content": null}));
        let end = finish(reason) + DONE;
        let stream = [&role, &*calls(&[call(0, "o", "clear_mind", "{")]), &end].concat();
        let came = run(&[&stream], TOOLS);
        assert_eq!(came.bytes, role + &end);
        assert_eq!(came.spoken[0].own.len(), 1);
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
fn finish_chunks_that_say_something_say_it() {
    let call = call(0, "o", "clear_mind", "{}");
    let first = [
        ended(
            json!({"role": "assistant", "content": "x", "tool_calls": [call]}),
            json!("tool_calls"),
        ),
        DONE.into(),
    ]
    .concat();
    let second = ended(json!({"content": "y"}), json!("stop")) + DONE;
    let came = run(&[&first, &second], TOOLS);
    assert_eq!(
        client(&came.bytes),
        ("x\n\ny".into(), vec![], Some("stop".into()))
    );
    // Some providers give no finish reason at all.
    let call = calls(&[call]);
    let came = run(&[&(call + DONE), &second], TOOLS);
    assert_eq!(came.bytes, second);
}

fn say(texts: &[&str]) -> String {
    let deltas = texts.iter().map(|text| {
        format!(
            "data: {{\"id\":\"one\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
        )
    });
    deltas.collect()
}

#[test]
fn blocks_are_taken_out_as_they_stream() {
    let block = "<continuation_package>\\n1. x\\n</continuation_package>";
    let read = "<continuation_package>\n1. x\n</continuation_package>";
    for texts in [
        &["All done.\\n", block][..],
        &[
            "All done.\\n<cont",
            "inuation_package>\\n1. x\\n</continuation",
            "_package>",
        ],
        &[
            "All done.\\n\\u003c",
            "continuation_package\\u003E",
            "\\n1. x",
            "\\n<",
            "/continuation_package>",
        ],
        &["All done.\\n<continuation_package>\\n1. x\\n</continuation_package>"],
    ] {
        let stream = say(texts) + &finish("stop") + DONE;
        let came = run(&[&stream], TEXT);
        assert_eq!(
            client(&came.bytes),
            ("All done.\n".into(), vec![], Some("stop".into()))
        );
        let package = came.spoken[0].package.clone().unwrap();
        assert_eq!(
            (&*package.text, package.before_chars, package.alone),
            (read, 10, false)
        );
        let message: Value = serde_json::from_str(&came.spoken[0].message).unwrap();
        assert_eq!(message["content"], format!("All done.\n{read}"));
        assert!(!came.bytes.contains("continuation"));
    }
    let stream = say(&["a <cont", "rary> ", "<continuation_"]) + &finish("stop") + DONE;
    let came = run(&[&stream], TEXT);
    assert_eq!(client(&came.bytes).0, "a <contrary> <continuation_");
    let cut = say(&["a <cont"]);
    let came = run(&[&cut], TEXT);
    assert_eq!(client(&came.bytes).0, "a <cont");
    let came = run(&[cut.trim_end()], TEXT);
    assert_eq!(client(&came.bytes).0, "a <cont");
    let in_finish = ended(json!({"content": "b<"}), json!("stop")) + DONE;
    assert_eq!(run(&[&in_finish], TEXT).bytes, in_finish);
}

#[test]
fn a_block_alone_is_gone_on_with() {
    let block = [
        "\\n",
        "<continuation_package>x</continuation_package>",
        "\\n",
    ];
    let first = say(&block) + &finish("stop") + &usage(5, 5) + DONE;
    let second = say(&["On it."]) + &finish("stop") + DONE;
    let came = run(&[&first, &second], TEXT);
    assert_eq!(client(&came.bytes).0, "\n\nOn it.");
    assert!(came.spoken[0].package.clone().unwrap().alone);
    assert_eq!(came.before.chars, 2);
    let length = say(&block) + &finish("length") + DONE;
    assert_eq!(
        client(&run(&[&length], TEXT).bytes).2,
        Some("length".into())
    );
    let with_calls =
        say(&block) + &calls(&[call(0, "t", "get", "{\"a\":1}")]) + &finish("tool_calls") + DONE;
    let came = run(&[&with_calls], TEXT);
    assert_eq!(client(&came.bytes).1, [theirs(0)]);
    assert!(!came.spoken[0].package.clone().unwrap().alone);
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
    let own = &came.spoken[0].own[0];
    assert!(own.overlong && own.arguments.len() == 64 << 10);
    assert_eq!(came.bytes, last);
    let huge = say(&[&*"y".repeat(3 << 20), "z"]) + &last;
    let came = run_cut(&[&huge], TEXT, false, |answer| cut_at(answer, 60_000));
    assert_eq!(came.bytes, huge);
}

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
            assert!(whole.spoken[0].theirs > 1, "{file}");
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

/// The calls of an answer as a stream, arguments in so many pieces.
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

/// Index, name and arguments by id, of a stream in which every call says its id first.
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

/// Calls with the spelling of others, which differs between the modes.
fn same_json(own: &[Own], spelled: &Spoken) -> Vec<Own> {
    let pairs = own.iter().zip(&spelled.own);
    pairs
        .map(|(own, other)| Own {
            json: other.json.clone(),
            ..own.clone()
        })
        .collect()
}

proptest! {
    #[test]
    fn any_stream_is_the_same_at_any_cut(events in prop::collection::vec(event(), 0..10), sizes in prop::collection::vec(1usize..60, 1..6), reason in 0usize..4) {
        let end = ["", "stop", "tool_calls", "length"][reason];
        let end = if end.is_empty() { String::new() } else { finish(end) + DONE };
        let stream = events.concat() + &end;
        let last = say(&["z"]) + &finish("stop") + DONE;
        let run = |cut: &dyn Fn(&[u8]) -> Vec<Bytes>| {
            let mut sieve = Sieve::new(BOTH, false, false);
            let mut out = VecDeque::new();
            let mut spoken = Vec::new();
            for answer in [&stream, &last] {
                cut(answer.as_bytes()).into_iter().for_each(|piece| sieve.push(piece, &mut out));
                sieve.finish(false, &mut out);
                if !sieve.round() {
                    break;
                }
                spoken.push(sieve.turn());
            }
            spoken.push(sieve.spoken());
            let bytes: Vec<u8> = out.into_iter().flat_map(|piece| match piece {
                Piece::Bytes(bytes) => bytes.to_vec(),
                Piece::End => Vec::new(),
            }).collect();
            (String::from_utf8(bytes).unwrap(), spoken, sieve.before(), sieve.heard())
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
        for spoken in &whole.1 {
            prop_assert!(spoken.message.is_empty() || serde_json::from_str::<Value>(&spoken.message).is_ok());
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
        let whole = json!({"id": "one", "choices": [{"message": {"role": "assistant", "content": text, "tool_calls": all}, "finish_reason": "tool_calls"}]});
        let last = json!({"id": "two", "choices": [{"message": {"role": "assistant", "content": "End."}, "finish_reason": "stop"}]});
        let alone = called.iter().all(|(name, _)| *name < 2);
        let end = say(&["End."]) + &finish("stop") + DONE;
        let answers = if alone { vec![&*answer, &*end] } else { vec![&*answer] };
        let came = run_cut(&answers, TOOLS, false, |answer| cut_at(answer, size));

        let mut sifter = Sifter::new(TOOLS);
        let mut sifted = sifter.answer(&whole.to_string().into()).unwrap();
        if alone {
            prop_assert!(matches!(&sifted, Sifted::Round(spoken) if spoken.own == same_json(&came.spoken[0].own, spoken)));
            sifted = sifter.answer(&last.to_string().into()).unwrap();
        }
        let Sifted::Last { json, spoken } = sifted else { panic!("no end") };
        let message = serde_json::from_slice::<Value>(&json).unwrap()["choices"][0]["message"].clone();
        prop_assert_eq!(sifter.before(), came.before);
        prop_assert_eq!(spoken.theirs, came.spoken.last().unwrap().theirs);
        prop_assert_eq!(client(&came.bytes).0, message["content"].as_str().unwrap());
        let theirs: Vec<_> = all.iter().zip(&called).filter(|(_, (name, _))| *name > 1).collect();
        let kept = message["tool_calls"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(kept.len(), theirs.len());
        let mut streamed = calls_of(&came.bytes);
        for (at, (call, _)) in theirs.iter().enumerate() {
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
