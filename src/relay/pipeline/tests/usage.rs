use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde_json::Value;

use super::{Pipeline, PipelineOutput, StreamOptions};
use crate::relay::{
    Format, edit_whole_answer,
    tests::{random_pieces, recordings},
};

/// The output of a stream.
fn pass<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, left_out: u32) -> Vec<u8> {
    let changes = StreamOptions {
        left_out: Some(left_out),
        ..StreamOptions::default()
    };
    let mut pipeline = Pipeline::new(changes, None);
    let mut out = VecDeque::new();
    for piece in pieces {
        pipeline.push(Bytes::copy_from_slice(piece), &mut out);
    }
    pipeline.finish_stream(false, &mut out);
    let pieces = out.into_iter().map(|piece| match piece {
        PipelineOutput::Bytes(bytes) => bytes,
        PipelineOutput::End => Bytes::new(),
    });
    pieces.collect::<Vec<_>>().concat()
}

fn check(stream: &str, expected: &str) {
    for end in ["\n", "\r\n", "\r"] {
        let stream = stream.replace('\n', end);
        let expected = expected.replace('\n', end);
        let bytes = stream.as_bytes();
        let found = pass([bytes], 1_000);
        assert_eq!(String::from_utf8_lossy(&found), expected);
        for at in 0..=bytes.len() {
            let cut = pass([&bytes[..at], &bytes[at..]], 1_000);
            assert_eq!(String::from_utf8_lossy(&cut), expected, "cut at {at}");
        }
        let cut = pass(bytes.chunks(1), 1_000);
        assert_eq!(String::from_utf8_lossy(&cut), expected, "cut everywhere");
    }
}

/// Asserts that an event, and a whole answer, get these replacements only.
fn check_event(json: &str, edits: &[(&str, &str)]) {
    let mut expected = json.to_owned();
    for (old, new) in edits {
        assert!(expected.contains(old), "{old}");
        expected = expected.replace(old, new);
    }
    check(
        &format!(": hi\nevent: x\ndata: {json}\n\ndata:{json}\n\ndata: [DONE]\n\n"),
        &format!(": hi\nevent: x\ndata: {expected}\n\ndata:{expected}\n\ndata: [DONE]\n\n"),
    );
    let body = Bytes::copy_from_slice(json.as_bytes());
    let whole = edit_whole_answer(Format::Chat, &mut HeaderMap::new(), body, Some(1_000), None);
    assert_eq!(whole, expected);
    let marked = format!("\u{feff}{json}");
    let whole = edit_whole_answer(
        Format::Chat,
        &mut HeaderMap::new(),
        marked.into(),
        Some(1_000),
        None,
    );
    assert_eq!(whole, format!("\u{feff}{expected}"));
}

#[test]
fn prompt_and_total_tokens_grow_in_every_usage() {
    let both = [("\"prompt_tokens\":7", "\"prompt_tokens\":1007")];
    let both: Vec<_> = both
        .into_iter()
        .chain([("\"total_tokens\" : 9", "\"total_tokens\" : 1009")])
        .collect();
    const USAGE: &str = r#"{"prompt_tokens":7,"completion_tokens":2,"total_tokens" : 9 ,"prompt_tokens_details":{"prompt_tokens":5,"total_tokens":[6],"s":"\"}"},"completion_tokens_details":null}"#;
    for json in [
        format!(r#"{{"choices":[],"usage":{USAGE}}}"#),
        format!(r#" {{ "usage" : {USAGE} , "choices":[{{"delta":{{"content":"a"}}}}]}}"#),
        format!(r#"{{"id":"x","x_groq":{{"id":"\\","usage":{USAGE}}},"choices":[]}}"#),
        format!(r#"{{"choices":[{{"index":0,"delta":{{}},"usage":{USAGE}}}]}}"#),
        format!(r#"{{"choices":[{{"delta":{{}}}},{{"usage":{USAGE}}}],"usage":{USAGE}}}"#),
    ] {
        check_event(&json, &both);
    }
    check_event(
        r#"{"usage":{"total_tokens":4294967295,"input_tokens":12,"output_tokens":3}}"#,
        &[("4294967295", "4294968295"), (":12,", ":1012,")],
    );
}

#[test]
fn other_numbers_do_not_change() {
    for json in [
        r#"{"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":7}"}}],"usage":null}"#,
        r#"{"choices":[{"delta":{"usage":{"prompt_tokens":7}},"message":[{"usage":{"prompt_tokens":7}}]}]}"#,
        r#"{"a":{"usage":{"prompt_tokens":7}},"b":[[{"usage":{"prompt_tokens":7}}]]}"#,
        r#"{"usage":{"prompt_tokens":7.0,"total_tokens":7e1}}"#,
        r#"{"usage":{"prompt_tokens":-7,"total_tokens":"7"}}"#,
        r#"{"usage":{"prompt_tokens":007,"total_tokens":12345678901}}"#,
        r#"{"usage":{"prompt_tokens":4294967296,"total_tokens":null}}"#,
        r#"{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":3}}"#,
        r#"{"usage":[{"prompt_tokens":7}],"prompt_tokens":7}"#,
        r#"{"us\u0061ge":{"prompt_tokens":7},"usag":{"prompt_tokens":7},"usages":{"prompt_tokens":7}}"#,
        r#"{"usage":{"prompt_tokens_":7,"prompt_token":7,"\"prompt_tokens":7}}"#,
        r#"[{"usage":{"prompt_tokens":7}}]"#,
        r#"{]"usage":{"prompt_tokens":7}}"#,
        r#""usage":{"prompt_tokens":7}"#,
        "",
        "7",
    ] {
        check_event(json, &[]);
    }
    check(
        "id: {\"usage\":{\"prompt_tokens\":7}}\ndat: {\"usage\":{\"prompt_tokens\":7}}\n\n: {\"usage\":{\"prompt_tokens\":7}}\n\n",
        "id: {\"usage\":{\"prompt_tokens\":7}}\ndat: {\"usage\":{\"prompt_tokens\":7}}\n\n: {\"usage\":{\"prompt_tokens\":7}}\n\n",
    );
}

#[test]
fn events_are_edited_in_every_spelling() {
    // An event with several data lines is written anew.
    for end in ["\n", "\r\n", "\r"] {
        let stream = "\u{feff}data: {\"usage\":\ndata:{\"prompt_tokens\":7\ndata: }}\n\n";
        let found = pass([stream.replace('\n', end).as_bytes()], 1_000);
        let anew = "data: {\"usage\":\ndata: {\"prompt_tokens\":1007\ndata: }}\n\n";
        assert_eq!(String::from_utf8_lossy(&found), anew);
    }
    check(
        "\u{feff}data: {\"usage\":{\"prompt_tokens\":7}}\n\n",
        "\u{feff}data: {\"usage\":{\"prompt_tokens\":1007}}\n\n",
    );
    // The event after a broken one is edited.
    check(
        "data: {\"usage\":{{\n\ndata: {\"usage\":{\"prompt_tokens\":7}}\n\n",
        "data: {\"usage\":{{\n\ndata: {\"usage\":{\"prompt_tokens\":1007}}\n\n",
    );
}

#[test]
fn a_compressed_answer_is_decompressed_only_if_it_changes() {
    let compressed = |json: &str| Bytes::from(zstd::encode_all(json.as_bytes(), 3).unwrap());
    let answer = |body: Bytes, left_out| {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", HeaderValue::from_static("zstd"));
        let body = edit_whole_answer(Format::Chat, &mut headers, body, left_out, None);
        (body, headers.contains_key("content-encoding"))
    };
    let body = compressed(r#"{"usage":{"prompt_tokens":7}}"#);
    let edited = Bytes::from(r#"{"usage":{"prompt_tokens":12}}"#);
    assert_eq!(answer(body.clone(), Some(5)), (edited, false));
    for left_out in [None, Some(0)] {
        assert_eq!(answer(body.clone(), left_out), (body.clone(), true));
    }
    for body in [compressed("{}"), Bytes::from_static(b"damaged")] {
        assert_eq!(answer(body.clone(), Some(5)), (body, true));
    }
}

/// Adds tokens to every count, by code that shares nothing with the reader.
fn grown(mut json: Value, tokens: u64) -> Value {
    fn grow(usage: Option<&mut Value>, tokens: u64) {
        let Some(usage) = usage.and_then(Value::as_object_mut) else {
            return;
        };
        if usage.get("prompt_tokens").and_then(Value::as_u64) == Some(0) {
            return;
        }
        for name in ["prompt_tokens", "input_tokens", "total_tokens"] {
            let count = usage.get(name).and_then(Value::as_u64);
            if let Some(count) = count.filter(|count| *count > 0) {
                usage.insert(name.into(), (count + tokens).into());
            }
        }
    }
    grow(json.get_mut("usage"), tokens);
    let groq = json.get_mut("x_groq");
    grow(groq.and_then(|groq| groq.get_mut("usage")), tokens);
    let choices = json.get_mut("choices").and_then(Value::as_array_mut);
    for choice in choices.into_iter().flatten() {
        grow(choice.get_mut("usage"), tokens);
    }
    json
}

fn events(stream: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(stream).into_owned();
    let lines = text.split(['\n', '\r']);
    let data = lines.filter_map(|line| line.strip_prefix("data:"));
    data.filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

#[test]
fn recorded_streams_change_in_their_counts_only() {
    let mut reports = 0;
    for (file, stream, prompt) in recordings() {
        let found = pass([&stream[..]], 1_000);
        for cut in [stream.chunks(1).collect(), random_pieces(&stream, 7)] {
            assert!(pass(cut, 1_000) == found, "{file}");
        }
        let expected: Vec<_> = events(&stream)
            .into_iter()
            .filter(Value::is_object)
            .map(|json| grown(json, 1_000))
            .collect();
        let got = events(&found).into_iter().filter(Value::is_object);
        assert_eq!(got.collect::<Vec<_>>(), expected, "{file}");
        let bare = |bytes: &[u8]| {
            let kept = bytes.iter().copied();
            kept.filter(|byte| !byte.is_ascii_digit())
                .collect::<Vec<_>>()
        };
        assert!(bare(&found) == bare(&stream), "{file}");
        assert_eq!(
            found != stream,
            prompt.is_some_and(|tokens| tokens > 0),
            "{file}"
        );
        reports += usize::from(found != stream);
    }
    println!("{reports} recorded streams were edited");
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(
        parts in prop::collection::vec(prop_oneof![
            Just("data: "), Just("{"), Just("}"), Just("\"usage\":"), Just("{\"prompt_tokens\":"),
            Just("\"total_tokens\":"), Just("12"), Just("3"), Just(","), Just("\n"), Just("\r\n"),
            Just("\n\n"), Just("\"choices\":["), Just("]"), Just("\""), Just("\\"), Just(" "),
            Just("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":345}}\n\n"),
        ], 0..30),
        cuts in prop::collection::vec(0usize..400, 0..8),
    ) {
        let stream = parts.concat();
        let bytes = stream.as_bytes();
        let whole = pass([bytes], 17);
        let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(pass(pieces, 17), whole.clone());
        prop_assert_eq!(pass(bytes.chunks(1), 17), whole);
        prop_assert_eq!(pass([bytes], 0), bytes);
    }

    #[test]
    fn usage_in_any_member_is_edited(prompt: u32, total in 0u32..100_000, tokens in 1u32..1_000_000, shape in 0usize..4) {
        let usage = serde_json::json!({"total_tokens": total, "prompt_tokens": prompt.max(1), "completion_tokens": 7});
        let json = match shape {
            0 => serde_json::json!({"usage": usage}),
            1 => serde_json::json!({"choices": [{"delta": {}, "usage": usage}]}),
            2 => serde_json::json!({"x_groq": {"usage": usage}, "usage": usage}),
            _ => serde_json::json!({"choices": [{"delta": {"usage": usage}}], "usage": null}),
        };
        let found = edit_whole_answer(Format::Chat, &mut HeaderMap::new(), json.to_string().into(), Some(tokens), None);
        prop_assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), grown(json, u64::from(tokens)));
    }
}
